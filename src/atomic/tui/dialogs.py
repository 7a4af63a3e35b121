"""Open dialogs above the main screen and handle their results."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from atomic.chat.protocol import Answer, Picked
from atomic.tui.key_bindings import TABLE, Where
from atomic.tui.state.model import Changes
from atomic.tui.suggestions import needs_argument

if TYPE_CHECKING:
    from atomic.tui.app import AtomicApp
    from atomic.tui.screens.question import Answered

QUIET_BEFORE_DIALOG = 1.0  # seconds without a key: typed letters must not answer a question

_PLACES = {
    Where.ANYWHERE: "Anywhere",
    Where.EMPTY: "Empty prompt",
    Where.PROMPT: "Prompt",
    Where.POPUP: "List of the prompt",
    Where.TRANSCRIPT: "Transcript",
}
_NOT_IN_PALETTE = ("stop", "interrupt", "palette")


class Dialogs:
    """The dialogs of the app. Their modules are imported when the first one opens."""

    def __init__(self, app: AtomicApp) -> None:
        self._app = app
        self._known_questions: set[str] = set()
        self._unseen_questions: set[str] = set()  # not yet shown in a dialog

    @property
    def has_one(self) -> bool:
        """Return whether a dialog is open."""
        return len(self._app.screen_stack) > 1

    # questions

    def ask(self, *, by_itself: bool) -> None:
        """Open the dialog for open questions.

        `by_itself`: not requested by a key. Then it opens only for new questions, and
        only while the user is not typing.
        """
        app = self._app
        questions = app.store.screen.questions
        if not questions and not self.has_one:
            self._known_questions.clear()
            return
        from atomic.tui.screens.question import QuestionScreen

        if isinstance(app.screen, QuestionScreen):
            app.screen.sync(app.store.screen, time.time())
        new = questions.keys() - self._known_questions
        self._known_questions = set(questions)
        self._unseen_questions = (self._unseen_questions | new) & questions.keys()
        if by_itself and new:
            app.desktop.notify_away("Atomic has a question")
        if questions and not self.has_one and (not by_itself or self._may_interrupt()):
            self._unseen_questions.clear()
            later = app.keys.shown("questions")
            app.push_screen(QuestionScreen(list(questions.values()), later=later), self._answered)

    def _may_interrupt(self) -> bool:
        """Return whether a dialog may open now.

        If it is only too early, try again later.
        """
        app = self._app
        if not self._unseen_questions or not app.prompt.is_empty:
            return False
        patience = app.last_key + QUIET_BEFORE_DIALOG - app.monotonic()
        if patience > 0:
            asyncio.get_running_loop().call_later(patience, app.frames.mark, Changes.QUESTIONS)
        return patience <= 0

    def _answered(self, answered: Answered | None) -> None:
        """Send the answer to a question. None postpones it."""
        if answered is None:
            return
        app = self._app
        app.frames.mark(app.store.close_question(answered.question))
        app.client.send(Answer(question=answered.question, answers=answered.answers))
        if app.store.screen.questions:
            app.call_later(self.ask, by_itself=False)

    # lists

    def pick(self) -> None:
        """Open the picker that the engine requested."""
        from atomic.tui.screens.lists import PickScreen

        app = self._app
        pick = app.store.screen.pick
        if pick is None:
            return

        def picked(value: str | None) -> None:
            app.frames.mark(app.store.close_pick())
            app.client.send(Picked(request=pick.request, value=value))

        app.push_screen(PickScreen(pick), picked)

    def show_help(self) -> None:
        """List all commands. The chosen one is put into the prompt."""
        from atomic.tui.screens.lists import HelpScreen

        app = self._app

        def chosen(name: str | None) -> None:
            if name is not None:
                app.prompt.put(f"/{name} ")

        app.push_screen(HelpScreen(app.store.screen.commands), chosen)

    def show_keys(self) -> None:
        """List all keys."""
        from atomic.tui.screens.lists import KeysScreen

        rows = [(keys, does, _PLACES[where]) for where, keys, does in self._app.keys.rows()]
        self._app.push_screen(KeysScreen(rows))

    def show_palette(self) -> None:
        """List all commands and actions, and run the chosen one."""
        from atomic.tui.screens.lists import PaletteScreen

        app = self._app
        actions = [
            (action.name, action.description, app.keys.shown(action.name))
            for action in TABLE
            if action.where in (Where.ANYWHERE, Where.EMPTY) and action.name not in _NOT_IN_PALETTE
        ]
        app.push_screen(PaletteScreen(app.store.screen.commands, actions), self._run_chosen)

    async def _run_chosen(self, value: str | None) -> None:
        """Run what was chosen in the palette: an action, or a command such as `/model`."""
        app = self._app
        if value is None:
            return
        if not value.startswith("/"):
            await app.run_named(value)
            return
        hint = next((one.argument_hint for one in app.store.screen.commands if f"/{one.name}" == value), "")
        if needs_argument(hint):
            app.prompt.put(f"{value} ")
        else:
            app.sender.send_or_queue(value)
