"""The screen: what a person does with keys. `TalkingApp` speaks with the engine, `ReadingApp` shows what it says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual import events

from atomic.tui.keys import TABLE, Where
from atomic.tui.reader import EVERYTHING, WIDE, panel_name
from atomic.tui.state.changes import Changes
from atomic.tui.suggest import needs_argument
from atomic.tui.talker import TalkingApp
from atomic.tui.widgets.status import IDLE_HINTS

if TYPE_CHECKING:
    from atomic.config import Settings
    from atomic.tui.link import EngineLink

TWICE = 1.0  # seconds between two presses of Ctrl+C that leave at once
AGAIN = 2.0  # seconds for the second press that was asked for

_PLACES = {
    Where.ANYWHERE: "Anywhere",
    Where.EMPTY: "Empty prompt",
    Where.PROMPT: "Prompt",
    Where.POPUP: "List of the prompt",
    Where.TRANSCRIPT: "Transcript",
}
_IN_DIALOGS = (("stop", "escape"), ("questions", "f6"))  # what dialogs bind themselves
_READING_HINTS = (("j/k", "move"), ("⏎", "unfold"), ("y", "copy"), ("g/G", "ends"), ("q", "back"))
_KEEP_WAY_BACK = ("stop", "interrupt", "tasks", "agents", "graph", "questions")
_PANEL_WORDS = {"task": "No tasks yet", "agent": "No agent is at work", "graph": "No workflow has begun"}


class AtomicApp(TalkingApp):
    """The app; its result is the engine's last word."""

    def __init__(self, link: EngineLink, *, settings: Settings, **options: Any) -> None:
        """See `TalkingApp` and `ReadingApp` for the options."""
        super().__init__(link, settings=settings, **options)
        self._last_ctrl_c = self._may_leave_until = float("-inf")
        self._is_reading = False  # the transcript, block by block
        self._own_key: events.Key | None = None  # the last one that we sent ourselves, in a person's place

    # -- keys

    async def on_event(self, event: events.Event) -> None:
        """Take keys before any widget sees them, and at once: `abc` and Enter that come together keep their order."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            self._last_key = now = self._monotonic()
            is_interrupt = isinstance(event, events.Key) and event.key in self._keys.keys("interrupt")
            if not is_interrupt and event is not self._own_key:
                self._stay()
            self._watchdog.wake()
            self._clock.key(now)
            if self._takes(event):
                return
        await super().on_event(event)

    def _takes(self, event: events.Key | events.Paste) -> bool:
        """Whether a key or a paste was for us, not for a dialog."""
        if self._is_too_early(event):
            return True
        if isinstance(event, events.Key):
            return self._key(event.key) or (self._is_typing() and self._prompt.type(event))
        if self._is_typing():
            self._prompt.paste(event.text)
            return True
        return self._is_reading and not self._has_dialog

    def _is_too_early(self, event: events.Key | events.Paste) -> bool:
        """Return whether it was typed before the question that is open was painted: it must not answer it."""
        if isinstance(event, events.Key) and event.key in self._keys.keys("interrupt"):
            return False
        if not self._has_dialog:
            return False
        from atomic.tui.screens.sheet import Dialog

        return isinstance(self.screen, Dialog) and not self.screen.is_for(event)

    def _is_typing(self) -> bool:
        """Whether letters go to the prompt; a click elsewhere does not keep them from it."""
        if self._has_dialog or self._is_reading:
            return False
        self._prompt.focus_text()
        return True

    def _key(self, key: str) -> bool:
        """Do what a key stands for; False: it is a letter, or the dialog's own."""
        self._prompt.settle()
        if self._has_dialog:
            if (own := self._key_of_dialog(key)) != key:
                self._send_key(own)
                return True
            action = "interrupt" if key in self._keys.keys("interrupt") else None
        else:
            action = self._keys.action(key, *self._places())
        if action not in _KEEP_WAY_BACK:
            self._forget_way_back()
        if action is None:
            return self._is_reading and not self._has_dialog  # no letter reaches a text that nobody looks at
        self._do(action)
        return True

    def _send_key(self, key: str) -> None:
        """Press a key in the dialog that is open."""
        self._own_key = events.Key(key, None)
        self.post_message(self._own_key)

    def _key_of_dialog(self, key: str) -> str:
        """The key by which a dialog knows what the person has given another key."""
        return next((own for action, own in _IN_DIALOGS if key in self._keys.keys(action)), key)

    def _do(self, action: str) -> None:
        """Do what the table of keys calls so: the screen's business, else the prompt's."""
        own = cast("Callable[[], object] | None", getattr(self, f"do_{action}", None))
        if own is not None:
            own()
        else:
            self._prompt.do(action)

    def _places(self) -> Sequence[Where]:
        """Where a key is looked up now, in this order."""
        if self._is_reading:
            return Where.TRANSCRIPT, Where.ANYWHERE
        popup = (Where.POPUP,) if self._prompt.has_list else ()
        empty = (Where.EMPTY,) if self._prompt.is_empty else ()
        return *popup, *empty, Where.PROMPT, Where.ANYWHERE

    def do_stop(self) -> None:
        """Esc: the first that applies."""
        if not self._close_something():
            self._stop()

    def do_interrupt(self) -> None:
        """Ctrl+C: the same, then clear the input, then leave; twice within a second leaves at once."""
        now = self._monotonic()
        before, self._last_ctrl_c = self._last_ctrl_c, now
        if now - before < TWICE or now < self._may_leave_until:
            self.leave_at_once()
        elif not (self._close_something() or self._stop() or self._clear_input()):
            self._may_leave_until = now + AGAIN
            self._remind(f"{self._keys.shown('interrupt')} again leaves")
            asyncio.get_running_loop().call_later(AGAIN, self._remind, "")

    def _stay(self) -> None:
        """End the pair of Ctrl+C: whoever presses another key in between does not want to leave."""
        self._last_ctrl_c = float("-inf")
        if self._may_leave_until > self._monotonic():
            self._may_leave_until = float("-inf")
            self._remind("")

    def _close_something(self) -> bool:
        """Close what lies above: a dialog, the list, a panel, the reading of the transcript."""
        if self._has_dialog:
            self._send_key("escape")
        elif self._prompt.is_open and not self._is_reading:
            self._prompt.dismiss()
        elif self._overlay and self.columns < WIDE:
            self._toggle_panel(self._overlay)
        elif self._is_reading:
            self.do_block_leave()
        elif self._way_back is not None:
            _, undo = self._way_back
            self._forget_way_back()
            undo()
        else:
            return False
        return True

    def _forget_way_back(self) -> None:
        """The person does something else now: Esc no longer returns from the key before."""
        if self._way_back is not None:
            self._way_back = None
            self._mark(EVERYTHING)

    def _stop(self) -> bool:
        """Stop what the person waits for: at once in the state, then by the engine; again: by force."""
        interrupt = self.store.stop_foreground(time.time())
        if interrupt is None:
            return False
        self._link.send(interrupt)
        self._mark(Changes.STATUS | Changes.TRANSCRIPT)
        return True

    def _clear_input(self) -> bool:
        if self._prompt.is_empty:
            return False
        self._prompt.sent.add(self._prompt.clear(), time.time())
        return True

    def do_leave(self) -> None:
        """Ctrl+D on the empty prompt."""
        self.leave()

    def do_tasks(self) -> None:
        self._toggle_panel("task")

    def do_agents(self) -> None:
        self._toggle_panel("agent")

    def do_graph(self) -> None:
        self._toggle_panel("graph")

    def do_questions(self) -> None:
        """F6: the questions that wait."""
        if self.store.screen.questions:
            self._ask(by_itself=False)
        else:
            self.say("No question waits")
            self._way_back = "questions", self.clear_notifications
            self._mark(EVERYTHING)

    def _toggle_panel(self, name: str) -> None:
        """Show or hide a panel: beside the transcript, or above it where the screen is narrow."""
        panel = next(panel for panel in self._panels() if panel_name(panel) == name)
        is_second = self._way_back is not None and self._way_back[0] == name
        if not panel.has_something() and self._overlay != name:
            self.say(_PANEL_WORDS[name])
            self._way_back = name, self.clear_notifications
        elif self.columns >= WIDE:
            self._switch_panel(name)
            self._way_back = None if is_second else (name, partial(self._switch_panel, name))
        else:
            self._overlay = "" if self._overlay == name else name
            self._way_back = None
        self._mark(EVERYTHING)

    def _switch_panel(self, name: str) -> None:
        self._hidden ^= {name}
        self._mark(EVERYTHING)

    def do_repaint(self) -> None:
        """Ctrl+L: everything anew, for a terminal that something else has written to."""
        self.refresh(layout=True)
        self.screen.refresh(layout=True)

    def do_suspend(self) -> None:
        """Ctrl+Z: back to the shell."""
        self.action_suspend_process()

    def do_page_up(self) -> None:
        self._transcript.action_page_up()

    def do_page_down(self) -> None:
        self._transcript.action_page_down()

    def do_scroll_start(self) -> None:
        self._transcript.action_scroll_home()

    def do_scroll_end(self) -> None:
        self._transcript.follow()

    def do_copy_answer(self) -> None:
        """Ctrl+Y: what is selected, else the last answer."""
        text = self._transcript.selected_text() or self._transcript.last_answer(self.store.screen)
        self._copy(text, "There is no answer yet")

    def do_editor(self) -> None:
        """Ctrl+G: the text in the person's editor, pastes in full."""
        from textual.app import SuspendNotSupported

        from atomic.tui.editor import EditorError, edit, editor_command

        after, trouble = self._prompt.full_text, ""
        self._watchdog.pause(True)
        try:
            with self.suspend():
                try:
                    after = edit(after, editor_command(self._settings.editor))
                except EditorError as error:  # in here: Textual comes back only if nothing is raised
                    trouble = str(error)
        except SuspendNotSupported:
            self.say("There is no editor in a browser", severity="warning")
            return
        finally:
            self._watchdog.pause(False)
        if trouble:
            self.say(trouble, severity="error")
        else:
            self._prompt.put(after)

    # -- dialogs that keys open

    def do_help(self) -> None:
        """F1: all commands."""
        from atomic.tui.screens.help import HelpScreen

        def taken(name: str | None) -> None:
            if name is not None:
                self._prompt.put(f"/{name} ")

        self.push_screen(HelpScreen(self.store.screen.commands), taken)

    def do_keys(self) -> None:
        """`?` on the empty prompt: all keys."""
        from atomic.tui.screens.keys import KeysScreen

        self.push_screen(KeysScreen([(keys, does, _PLACES[where]) for where, keys, does in self._keys.rows()]))

    def do_palette(self) -> None:
        """Ctrl+P: everything that can be done."""
        from atomic.tui.screens.palette import Action, PaletteScreen

        actions = [
            Action(action.name, action.description, self._keys.shown(action.name))
            for action in TABLE
            if action.where in (Where.ANYWHERE, Where.EMPTY) and action.name not in ("stop", "interrupt", "palette")
        ]
        self.push_screen(PaletteScreen(self.store.screen.commands, actions), self._chosen)

    def _chosen(self, value: str | None) -> None:
        if value is None:
            return
        if not value.startswith("/"):
            self._do(value)
            return
        hint = next((one.argument_hint for one in self.store.screen.commands if f"/{one.name}" == value), "")
        if needs_argument(hint):
            self._prompt.put(f"{value} ")
        else:
            self._say_or_queue(value)

    def do_model(self) -> None:
        """F2."""
        self._say_or_queue("/model")

    def do_theme(self) -> None:
        """F4."""
        self._say_or_queue("/theme")

    # -- reading the transcript block by block

    def do_transcript(self) -> None:
        """Ctrl+O: the keys move in the transcript; again: back to the prompt."""
        if self._is_reading:
            self.do_block_leave()
            return
        self._is_reading = True
        self._transcript.focus()
        self._transcript.previous_block()
        self._hint(_READING_HINTS)

    def do_block_leave(self) -> None:
        """Back to the prompt."""
        self._is_reading = False
        self._transcript.clear_cursor()
        self._hint(IDLE_HINTS)
        self._prompt.focus_text()

    def do_block_next(self) -> None:
        self._transcript.next_block()

    def do_block_previous(self) -> None:
        self._transcript.previous_block()

    def do_block_unfold(self) -> None:
        self._transcript.toggle_current()

    def do_block_copy(self) -> None:
        """`y`: what is selected, else the block."""
        text = self._transcript.selected_text() or self._transcript.current_text()
        self._copy(text, "There is nothing to copy")

    def do_block_first(self) -> None:
        self._transcript.action_scroll_home()
        self._transcript.clear_cursor()
        self._transcript.next_block()

    def do_block_last(self) -> None:
        self._transcript.follow()
        self._transcript.clear_cursor()
        self._transcript.previous_block()
