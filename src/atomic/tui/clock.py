"""When to paint: seldom enough to be cheap, at once where nobody waits, never while nothing moves, and keys first.

`FrameClock` is pure: it is told the time. Whoever owns it keeps one timer, for `next_frame`.
"""

from __future__ import annotations

from enum import Flag
from typing import Generic, TypeVar

Flags = TypeVar("Flags", bound=Flag)

FRAME = 1 / 15  # seconds: the shortest time between two frames
QUIET = 0.06  # seconds after a key in which the next one is likely
HOLD = 0.2  # seconds that keys may hold a frame back


class FrameClock(Generic[Flags]):
    """Collects what has changed, and says when to show it."""

    def __init__(self, nothing: Flags, *, frame: float = FRAME, quiet: float = QUIET, hold: float = HOLD) -> None:
        self._nothing = nothing
        self._waiting = nothing
        self._frame, self._quiet, self._hold = frame, quiet, hold
        self._last = self._key = float("-inf")
        self._since = 0.0

    def mark(self, changes: Flags, now: float) -> None:
        """Something is to be shown."""
        if changes == self._nothing:
            return
        if self._waiting == self._nothing:
            self._since = now
        self._waiting |= changes

    def key(self, now: float) -> None:
        """A key arrived: what it changes is painted first."""
        self._key = now

    @property
    def is_waiting(self) -> bool:
        return self._waiting != self._nothing

    def next_frame(self) -> float | None:
        """When the next frame is due; None while there is nothing to show."""
        if not self.is_waiting:
            return None
        due = max(self._since, self._last + self._frame)
        return max(due, min(self._key + self._quiet, self._since + self._hold))

    def take(self, now: float) -> Flags:
        """What the frame that begins now shows; nothing if it is too early."""
        due = self.next_frame()
        if due is None or now < due:
            return self._nothing
        taken, self._waiting = self._waiting, self._nothing
        self._last = now
        return taken
