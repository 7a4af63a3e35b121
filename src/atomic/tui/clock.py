"""Decide when to paint a frame: rarely enough to be cheap, and after pending keys.

Nothing is painted while nothing changes. `FrameClock` is pure: callers pass the time,
and the owner keeps one timer for `next_frame`.
"""

from __future__ import annotations

from enum import Flag
from typing import Generic, TypeVar

Flags = TypeVar("Flags", bound=Flag)

FRAME = 1 / 15  # seconds: shortest time between two frames
QUIET = 0.06  # seconds after a key in which another key is likely
HOLD = 0.2  # seconds that keys may delay a frame


class FrameClock(Generic[Flags]):
    """Collects changes and decides when to show them."""

    def __init__(self, nothing: Flags, *, frame: float = FRAME, quiet: float = QUIET, hold: float = HOLD) -> None:
        self._nothing = nothing
        self._waiting = nothing
        self._frame = frame
        self._quiet = quiet
        self._hold = hold
        self._last = self._key = float("-inf")
        self._since = 0.0

    def mark(self, changes: Flags, now: float) -> None:
        """Add changes to the next frame."""
        if changes == self._nothing:
            return
        if self._waiting == self._nothing:
            self._since = now
        self._waiting |= changes

    def key(self, now: float) -> None:
        """Note that a key arrived; its effect is painted first."""
        self._key = now

    @property
    def is_waiting(self) -> bool:
        return self._waiting != self._nothing

    def next_frame(self) -> float | None:
        """Return when the next frame is due, or None if nothing has changed."""
        if not self.is_waiting:
            return None
        due = max(self._since, self._last + self._frame)
        return max(due, min(self._key + self._quiet, self._since + self._hold))

    def take(self, now: float) -> Flags:
        """Return the changes to paint now, or no changes if it is too early."""
        due = self.next_frame()
        if due is None or now < due:
            return self._nothing
        taken = self._waiting
        self._waiting = self._nothing
        self._last = now
        return taken
