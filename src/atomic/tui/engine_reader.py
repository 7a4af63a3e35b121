"""Read the engine's events and apply them in short slices, so that keys are handled in between."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from atomic.chat.merge import merged
from atomic.chat.protocol import ChatEvent, Left

if TYPE_CHECKING:
    from atomic.chat.client import ChatClient
    from atomic.tui.watchdog import Watchdog

SLICE = 0.005  # seconds of work before waiting keys are handled


class EngineReader:
    """Receives events from the engine and passes them to `apply`."""

    def __init__(
        self,
        link: ChatClient,
        apply: Callable[[ChatEvent], None],
        call_later: Callable[[Callable[[], None]], object],
        watchdog: Watchdog,
    ) -> None:
        """`call_later` queues a call after pending messages, such as keys."""
        self._link = link
        self._apply = apply
        self._call_later = call_later
        self._watchdog = watchdog
        self._pending: deque[ChatEvent] = deque()
        self._is_scheduled = False
        self.has_left = asyncio.Event()  # the engine has sent its final message

    async def run(self) -> None:
        """Receive events until the link is closed."""
        async for event in self._link.events():
            self._pending.append(event)
            if not self._is_scheduled:
                self._is_scheduled = True
                self._call_later(self._apply_slice)
            if isinstance(event, Left):
                self.has_left.set()

    def _apply_slice(self) -> None:
        self._watchdog.wake()
        waiting = self._pending
        self._pending = deque()
        end = time.perf_counter() + SLICE
        rest = merged(waiting)
        for event in rest:
            self._apply(event)
            if time.perf_counter() > end:
                self._pending.extendleft(reversed(list(rest)))
                break
        self._is_scheduled = bool(self._pending)
        if self._is_scheduled:
            self._call_later(self._apply_slice)
