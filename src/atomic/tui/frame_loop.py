"""Paint frames when they are due, with one timer that runs only while something
changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from atomic.tui.state.model import DURATIONS, Changes

FRAME = 1 / 15  # seconds: shortest time between two frames
QUIET = 0.06  # seconds after a key in which another key is likely
HOLD = 0.2  # seconds that keys may delay a frame
TICK = 1.0  # seconds between two frames that only update durations


class FrameClock:
    """Collects changes and decides when to show them."""

    def __init__(self) -> None:
        self._waiting = Changes.NONE
        self._last = float("-inf")  # when the last frame was painted
        self._key = float("-inf")  # when the last key arrived
        self._since = 0.0  # when the first of the waiting changes was marked

    def mark(self, changes: Changes, now: float) -> None:
        """Add changes to the next frame."""
        if not self._waiting:
            self._since = now
        self._waiting |= changes

    def key(self, now: float) -> None:
        """Note that a key arrived; its effect is painted first."""
        self._key = now

    def next_frame(self) -> float | None:
        """Return when the next frame is due, or None if nothing has changed."""
        if not self._waiting:
            return None
        due = max(self._since, self._last + FRAME)
        return max(due, min(self._key + QUIET, self._since + HOLD))

    def take(self, now: float) -> Changes:
        """Return the changes to paint now, or no changes if it is too early."""
        due = self.next_frame()
        if due is None or now < due:
            return Changes.NONE
        taken = self._waiting
        self._waiting = Changes.NONE
        self._last = now
        return taken


class FrameLoop:
    """Collects changes and calls `paint` with them at most 15 times a second."""

    def __init__(
        self,
        paint: Callable[[Changes], None],
        call_later: Callable[[Callable[[], None]], object],
        monotonic: Callable[[], float],
    ) -> None:
        """`call_later` queues a call after pending messages."""
        self._clock = FrameClock()
        self._paint = paint
        self._call_later = call_later
        self._monotonic = monotonic
        self._frame_timer: asyncio.TimerHandle | None = None
        self._tick_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Return whether no timer is running."""
        return self._frame_timer is None and self._tick_timer is None

    @property
    def is_ticking(self) -> bool:
        """Return whether a tick is planned."""
        return self._tick_timer is not None

    def mark(self, changes: Changes) -> None:
        """Add changes to the next frame."""
        self._clock.mark(changes, self._monotonic())
        self._set_timer()

    def key(self, now: float) -> None:
        """Note that a key arrived; its effect is painted before the next frame."""
        self._clock.key(now)

    def tick_later(self) -> None:
        """Plan a frame that updates durations in a second, unless one is planned
        already.
        """

        def tick() -> None:
            self._tick_timer = None
            self.mark(DURATIONS)

        if self._tick_timer is None:
            self._tick_timer = asyncio.get_running_loop().call_later(TICK, tick)

    def stop(self) -> None:
        """Cancel the timers."""
        for timer in (self._frame_timer, self._tick_timer):
            if timer is not None:
                timer.cancel()

    def _set_timer(self) -> None:
        due = self._clock.next_frame()
        if due is None or self._frame_timer is not None:
            return
        delay = max(0.0, due - self._monotonic())
        self._frame_timer = asyncio.get_running_loop().call_later(delay, self._call_later, self._run_frame)

    def _run_frame(self) -> None:
        self._frame_timer = None
        changes = self._clock.take(self._monotonic())
        if changes:
            self._paint(changes)
        self._set_timer()
