"""Keep keys in the order in which they were pressed.

Textual sends characters to the focused widget and other keys to the widget that binds
them, each through its own queue: `abc` and Enter that arrive together could become
Enter and `abc`. Here the input thread delays one kind until the other has been
delivered.
"""

from __future__ import annotations

import asyncio
from threading import Event

from textual import events
from textual.driver import Driver
from textual.message import Message
from textual.message_pump import MessagePump

# Seconds that a key waits for earlier characters. After that the event loop is stuck
# and the order no longer matters.
_SETTLE = 0.5


class OrderedKeys(Driver):
    """Driver that delivers keys in order."""

    _last_kind: bool | None = None  # whether the last key was a character

    def process_message(self, message: Message) -> None:
        if isinstance(message, events.Key | events.Paste):
            kind = isinstance(message, events.Key) and message.is_printable
            if self._last_kind is not None and kind is not self._last_kind:
                self._settle()
            self._last_kind = kind
        super().process_message(message)

    def _settle(self) -> None:
        """Wait until earlier keys have passed every queue on their way."""
        done = Event()
        asyncio.run_coroutine_threadsafe(self._walk(done), self._loop)
        done.wait(_SETTLE)

    async def _walk(self, done: Event) -> None:
        """Follow the way of a key: the app, the focused widget, and its ancestors back to the app."""
        focused = self._app.focused
        way: list[MessagePump] = [self._app, *(focused.ancestors_with_self if focused is not None else ()), self._app]

        def step() -> None:
            if way:
                way.pop(0).call_later(step)
            else:
                done.set()

        step()
