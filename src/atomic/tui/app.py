"""The screen: what a person does becomes an intent for the engine; what the engine says is shown by `ReadingApp`."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from textual import events

from atomic.tui import attention, compat
from atomic.tui.keys import Keymap, Where, keymap
from atomic.tui.protocol import (
    Answer,
    FilesFound,
    FindFiles,
    Interrupt,
    Leave,
    News,
    RunKind,
    ScreenSize,
    Shell,
    Submit,
)
from atomic.tui.reader import EVERYTHING, WIDE, ReadingApp, panel_name
from atomic.tui.state.changes import Changes
from atomic.tui.widgets.prompt import HINTS_OF_POPUP, Prompt
from atomic.tui.widgets.status import IDLE_HINTS
from atomic.tui.widgets.transcript import TranscriptView

if TYPE_CHECKING:
    from atomic.config import Settings
    from atomic.tui.link import EngineLink
    from atomic.tui.screens.question import Answered

TWICE = 1.0  # seconds between two presses of Ctrl+C that leave at once
AGAIN = 2.0  # seconds for the second press that was asked for
GOODBYE = 5.0  # seconds for the engine's last word
QUIET_BEFORE_DIALOG = 1.0  # seconds without a key: no letter of a text may answer a question

_FOREGROUND = (RunKind.TURN, RunKind.CREW, RunKind.SHELL, RunKind.COMMAND)
_AT_ONCE = frozenset(("help", "h", "?", "theme", "exit", "quit", "q", "mcp", "sessions", "model", "m"))


class AtomicApp(ReadingApp):
    """The app; its result is the engine's last word."""

    def __init__(self, link: EngineLink, *, settings: Settings, **options: Any) -> None:
        """See `ReadingApp` for the options."""
        super().__init__(link, settings=settings, **options)
        self._keys: Keymap
        self._keys, self._key_warnings = keymap(settings.keys)
        self._last_ctrl_c = self._last_key = self._may_leave_until = float("-inf")
        self._is_leaving = False
        self._was_busy = False
        self._is_reading = False  # the transcript, block by block
        self._runs = self._requests = 0
        self._asked_for = ("", "")  # the request for files, and its letters
        self._width = 0

    # -- begin and end

    def _begin(self) -> None:
        super()._begin()
        if compat.can_ask_for_shift():
            compat.write(self, compat.ASK_FOR_SHIFT)
        self._send_size()  # the first intent: it starts the engine
        for warning in (*self._settings.warnings, *self._key_warnings):
            self.say(warning, severity="warning")

    async def on_unmount(self) -> None:
        """Whoever ended the screen: the engine is told, and it is gone before we are."""
        if compat.can_ask_for_shift():
            compat.write(self, compat.END_ASKING)
        if not self._is_leaving:
            self._is_leaving = True
            self._link.send(Leave())
        await self._link.close()
        self._end()

    def leave(self, *, pause: bool = True) -> None:
        """Leave in order: the engine has the last word, if it comes in time."""
        if self._is_leaving:
            self.leave_at_once()
            return
        self._is_leaving = True
        self._status.say("leaving …")
        self._link.send(Leave(pause=pause))
        asyncio.get_running_loop().call_later(GOODBYE, self.exit, "")

    def leave_at_once(self) -> None:
        """Leave without waiting for anybody; workflows go on."""
        if not self._is_leaving:
            self._is_leaving = True
            self._link.send(Leave())
        self.exit(self.store.screen.left or "")

    # -- what news bring with them

    def _apply(self, news: News) -> None:
        if isinstance(news, FilesFound):
            request, letters = self._asked_for
            if news.request == request:
                self._prompt.found_files(letters, news.paths)
            return
        super()._apply(news)

    def _follow_up(self, changes: Changes) -> None:
        super()._follow_up(changes)
        if changes & Changes.QUEUE:
            self._prompt.has_queue = bool(self.store.screen.queue)
        if changes & Changes.COMMANDS:
            self._start(self._learn_commands())
        if changes & Changes.QUESTIONS:
            self._ask(by_itself=True)
        if changes & Changes.PICK:
            self._pick()
        if changes & Changes.STATUS:
            self._note_busy()
        if changes & Changes.LEFT:
            self.exit(self.store.screen.left or "")

    async def _learn_commands(self) -> None:
        """Build the registry of the prompt; what it needs takes long to import, so it is made in a thread."""
        from atomic.tui.registry import registry_of

        screen = self.store.screen
        registry = await asyncio.to_thread(registry_of, screen.commands)
        self._prompt.know(registry, screen.agents_by_name)

    def _note_busy(self) -> None:
        """When the last of the person's own runs ends: the queue goes on, or who looks elsewhere is called."""
        was_busy, self._was_busy = self._was_busy, self._is_occupied()
        if self._was_busy or self._is_leaving:
            return
        text = self.store.dequeue()
        if text is not None:
            self._send(text)
            self._mark(Changes.QUEUE)
        elif was_busy:
            self._call("Atomic is done")

    def _call(self, words: str) -> None:
        """Call somebody who looks elsewhere."""
        if not self.app_focus:
            compat.write(self, attention.call(words) + attention.title(f"● {words}"))

    def on_app_focus(self) -> None:
        """The person looks at it again."""
        compat.write(self, attention.title("atomic"))

    # -- sending

    def _is_occupied(self) -> bool:
        """Whether a prompt would have to wait; a workflow runs by itself."""
        return any(run.is_active and run.kind in _FOREGROUND for run in self.store.screen.runs.values())

    def on_prompt_sent(self, message: Prompt.Sent) -> None:
        """A text was sent: to the engine, or to the queue."""
        trouble = self._prompt.sent.add(message.text, time.time())
        if trouble:
            self.say(trouble, severity="warning")
        self._transcript.follow()
        if self._is_occupied() and not _is_at_once(message.text):
            self._mark(self.store.enqueue(message.text))
        else:
            self._send(message.text)

    def _send(self, text: str) -> None:
        """Hand a text to the engine; it is on the screen before anybody answers."""
        self._runs += 1
        run = f"{os.getpid():x}-{int(time.time() * 1000):x}-{self._runs}"
        command = text.lstrip()
        if command.startswith("!"):
            kind, intent = RunKind.SHELL, Shell(run=run, command=command[1:].strip())
        else:
            kind = RunKind.COMMAND if command.startswith("/") else RunKind.TURN
            intent = Submit(run=run, text=text)
        self._mark(self.store.begin(run, kind, text, time.time()))
        self._was_busy = True
        self._link.send(intent)

    def on_prompt_take_back(self, message: Prompt.TakeBack) -> None:
        """↑ on the empty prompt: the last queued text comes back."""
        queue = self.store.screen.queue
        if queue:
            last = queue[-1]
            self._mark(self.store.edit_queue(last.id, ""))
            self._prompt.has_queue = bool(queue)
            self._prompt.put(last.text)

    def on_prompt_files_wanted(self, message: Prompt.FilesWanted) -> None:
        """`@` and letters: the engine knows the files."""
        self._requests += 1
        self._asked_for = (f"files-{self._requests}", message.text)
        self._link.send(FindFiles(request=self._asked_for[0], text=message.text))

    def on_prompt_offered(self, message: Prompt.Offered) -> None:
        """The keys of the list stand in the last line while it is open."""
        self._status.say("", HINTS_OF_POPUP.get(message.kind, IDLE_HINTS))

    def on_resize(self) -> None:
        """Another size: other panels, and the engine's lines are as long as ours."""
        if self._width:
            self._send_size()
        self._mark(EVERYTHING)

    def _send_size(self) -> None:
        if self.size.width != self._width:
            self._width = self.size.width
            self._link.send(ScreenSize(width=self._width))

    # -- dialogs

    @property
    def _has_dialog(self) -> bool:
        return len(self.screen_stack) > 1

    def _ask(self, *, by_itself: bool) -> None:
        """Open the questions that wait; by itself only if nobody is typing."""
        from atomic.tui.screens.question import QuestionScreen

        questions = self.store.screen.questions
        if isinstance(self.screen, QuestionScreen):
            self.screen.sync(self.store.screen, time.time())
            return
        if not questions:
            return
        is_typing = self._monotonic() - self._last_key < QUIET_BEFORE_DIALOG or not self._prompt.is_empty
        if by_itself:
            self._call("Atomic has a question")
        if not self._has_dialog and not (by_itself and is_typing):
            self.push_screen(QuestionScreen(list(questions.values())), self._answered)

    def _answered(self, answered: Answered | None) -> None:
        if answered is not None:
            self._mark(self.store.close_question(answered.question))
            self._link.send(Answer(question=answered.question, answers=answered.answers))

    def _pick(self) -> None:
        """A person is to choose; what was open before is closed."""

    # -- keys

    async def on_event(self, event: events.Event) -> None:
        """Keys that do something are taken before any widget sees them."""
        if isinstance(event, events.Key) and not event.is_forwarded:
            self._last_key = now = self._monotonic()
            self._watchdog.wake()
            self._clock.key(now)
            if self._key(event.key):
                return
        await super().on_event(event)

    def _key(self, key: str) -> bool:
        """Do what a key stands for; False: it is a letter, or the dialog's own."""
        if self._has_dialog:
            action = "interrupt" if key in self._keys.keys("interrupt") else None
        else:
            action = self._keys.action(key, *self._places())
        if action is None:
            return False
        own = cast("Callable[[], object] | None", getattr(self, f"do_{action}", None))
        if own is not None:
            own()
        else:
            self._prompt.do(action)
        return True

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
            self._status.say(f"{self._keys.shown('interrupt')} again leaves")
            asyncio.get_running_loop().call_later(AGAIN, self._status.say)

    def _close_something(self) -> bool:
        """Close what lies above: a dialog, the list, a panel, the reading of the transcript."""
        if self._has_dialog:
            self.post_message(events.Key("escape", "\x1b"))
        elif self._prompt.is_open and not self._is_reading:
            self._prompt.dismiss()
        elif self._overlay and self.size.width < WIDE:
            self._toggle_panel(self._overlay)
        elif self._is_reading:
            self.do_block_leave()
        else:
            return False
        return True

    def _stop(self) -> bool:
        """Stop what the person waits for: at once in the state, then by the engine; again: by force."""
        interrupt: Interrupt | None = self.store.stop_foreground(time.time())
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

    def _toggle_panel(self, name: str) -> None:
        """Show or hide a panel: beside the transcript, or above it where the screen is narrow."""
        panel = next(panel for panel in self._panels() if panel_name(panel) == name)
        if not panel.has_something() and self._overlay != name:
            self.say(f"There is nothing in the panel of {name}s yet")
        elif self.size.width >= WIDE:
            self._hidden ^= {name}
        else:
            self._overlay = "" if self._overlay == name else name
        self._mark(EVERYTHING)

    def do_repaint(self) -> None:
        """Ctrl+L: everything anew, for a terminal that something else has written to."""
        self.refresh(layout=True)
        self.screen.refresh(layout=True)

    def do_suspend(self) -> None:
        """Ctrl+Z: back to the shell."""
        self.action_suspend_process()

    def do_page_up(self) -> None:
        self._transcript.scroll_page_up(animate=False)

    def do_page_down(self) -> None:
        self._transcript.scroll_page_down(animate=False)

    def do_scroll_start(self) -> None:
        self._transcript.scroll_home(animate=False)

    def do_scroll_end(self) -> None:
        self._transcript.follow()

    def do_copy_answer(self) -> None:
        """Ctrl+Y: the last answer."""
        self._copy(self._transcript.last_answer(self.store.screen), "There is no answer yet")

    def _copy(self, text: str, nothing: str) -> None:
        if text:
            self._start(self._copied(text))
        else:
            self.say(nothing)

    async def _copied(self, text: str) -> None:
        from atomic.tui.clipboard import copy

        words: list[str] = []
        way = await asyncio.to_thread(copy, text, words.append)
        compat.write(self, "".join(words))
        self.say(way)

    def do_editor(self) -> None:
        """Ctrl+G: the text in the person's editor, pastes in full."""
        from textual.app import SuspendNotSupported

        from atomic.tui.editor import EditorError, edit, editor_command

        before = self._prompt.full_text
        self._watchdog.pause(True)
        try:
            with self.suspend():
                after = edit(before, editor_command(self._settings.editor))
        except SuspendNotSupported:
            self.say("There is no editor in a browser", severity="warning")
        except EditorError as error:
            self.say(str(error), severity="error")
        else:
            self._prompt.put(after)
        finally:
            self._watchdog.pause(False)

    def do_help(self) -> None:
        self._send("/help")

    def do_model(self) -> None:
        self._send("/model")

    def do_theme(self) -> None:
        self._send("/theme")

    # -- reading the transcript block by block

    def do_transcript(self) -> None:
        """Ctrl+O: the keys move in the transcript."""

    def do_block_leave(self) -> None:
        """Back to the prompt."""
        self._is_reading = False

    def on_transcript_view_toggled(self, message: TranscriptView.Toggled) -> None:
        """A card was unfolded or folded."""
        self._mark(self.store.toggle(message.block_id))


def _is_at_once(text: str) -> bool:
    """Whether a text need not wait for the agent: a command that only shows or leaves."""
    word = text.strip().split(maxsplit=1)[0] if text.strip() else ""
    return word.startswith("/") and word[1:].lower() in _AT_ONCE
