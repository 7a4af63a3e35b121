"""Handle keys and pastes before any widget sees them.

Each key is looked up in the key table, so all of them can be remapped. What the table
does not have is text for the prompt, or belongs to the open dialog.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import events

from atomic.tui.key_bindings import Where

if TYPE_CHECKING:
    from atomic.tui.app import AtomicApp

Input = events.Key | events.Paste

_DIALOG_KEYS = (("stop", "escape"), ("questions", "f6"))  # keys that dialogs bind themselves
_KEEP_UNDO = ("stop", "interrupt", "tasks", "agents", "graph", "questions")


class KeyInput:
    """Decides what a key or a paste does."""

    def __init__(self, app: AtomicApp) -> None:
        self._app = app
        self._own_key: events.Key | None = None  # the last key that the app sent to a dialog

    async def handle(self, event: Input) -> bool:
        """Return whether the app handled a key or a paste; the rest is for a dialog."""
        app = self._app
        if not self._is_interrupt(event) and event is not self._own_key:
            app.cancel_leaving()
        if self._is_too_early(event):
            return True
        if isinstance(event, events.Key):
            return await self._handle_key(event.key) or (self._is_typing() and app.prompt.type(event))
        if self._is_typing():
            app.prompt.area.paste(event.text)
            return True
        return app.is_reading and not app.dialogs.has_one

    def send_to_dialog(self, key: str) -> None:
        """Press a key in the open dialog."""
        self._own_key = events.Key(key, None)
        self._app.post_message(self._own_key)

    def _is_interrupt(self, event: Input) -> bool:
        return isinstance(event, events.Key) and event.key in self._app.keys.keys("interrupt")

    def _is_too_early(self, event: Input) -> bool:
        """Return whether it was typed before the open question was painted: it is no
        answer.
        """
        app = self._app
        if self._is_interrupt(event) or not app.dialogs.has_one:
            return False
        from atomic.tui.screens.dialog import Dialog

        return isinstance(app.screen, Dialog) and not app.screen.is_for(event)

    def _is_typing(self) -> bool:
        """Return whether letters go to the prompt.

        It gets the focus back after a click elsewhere.
        """
        app = self._app
        if app.dialogs.has_one or app.is_reading:
            return False
        app.prompt.area.focus()
        return True

    async def _handle_key(self, key: str) -> bool:
        """Run the action of a key. Return False for a letter or a key of the dialog."""
        app = self._app
        app.prompt.settle()
        if app.dialogs.has_one:
            dialog_key = next((own for action, own in _DIALOG_KEYS if key in app.keys.keys(action)), key)
            if dialog_key != key:
                self.send_to_dialog(dialog_key)
                return True
            action = "interrupt" if key in app.keys.keys("interrupt") else None
        else:
            action = app.keys.action(key, *self._places())
        if action not in _KEEP_UNDO:
            app.forget_undo()
        if action is None:
            return app.is_reading and not app.dialogs.has_one  # letters must not reach the hidden prompt
        await app.run_named(action)
        return True

    def _places(self) -> Sequence[Where]:
        """Return the places in which a key is looked up now, in this order."""
        if self._app.is_reading:
            return Where.TRANSCRIPT, Where.ANYWHERE
        prompt = self._app.prompt
        popup = (Where.POPUP,) if prompt.has_list else ()
        empty = (Where.EMPTY,) if prompt.is_empty else ()
        return *popup, *empty, Where.PROMPT, Where.ANYWHERE
