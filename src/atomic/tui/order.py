"""Keys in the order in which they were pressed.

Textual hands letters to the widget that has the focus, and keys that do something to whoever binds them, each with a
queue of its own: `abc` and Enter that come at once would be Enter and `abc`. One kind waits here, in the thread that
reads the input, until the other has arrived.
"""

from __future__ import annotations

import asyncio
from threading import Event

from textual import events
from textual.driver import Driver
from textual.message import Message
from textual.message_pump import MessagePump

_SETTLE = 0.5  # seconds that a key waits for the letters before it; then the loop is stuck, and order matters no more


class InOrder(Driver):
    """A driver whose keys arrive in order."""

    _last_kind: bool | None = None  # whether the last key was a letter

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key | events.Paste):
            kind = isinstance(message, events.Key) and message.is_printable
            if self._last_kind is not None and kind is not self._last_kind:
                self._settle()
            self._last_kind = kind
        super().process_message(message)

    def _settle(self) -> None:
        """Wait until what was typed has gone through every queue that it may go through."""
        done = Event()
        asyncio.run_coroutine_threadsafe(self._walk(done), self._loop)
        done.wait(_SETTLE)

    async def _walk(self, done: Event) -> None:
        """Follow a key: to the app, to the widget that has the focus, and up again to those who bind it."""
        focused = self._app.focused
        way: list[MessagePump] = [self._app, *(focused.ancestors_with_self if focused is not None else ()), self._app]

        def step() -> None:
            if way:
                way.pop(0).call_later(step)
            else:
                done.set()

        step()
