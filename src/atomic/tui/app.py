"""The app: shows the state that the engine's events add up to, and sends what the user does.

Keys come first: `on_event` looks every key up in the key table before a widget sees it and
runs `action_NAME` of the app or of the prompt. Events of the engine change the state
(`Store`), and the state is painted when a frame is due (`FrameLoop`).
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual import events
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.geometry import Offset
from textual.widgets import TextArea

from atomic.base.errors import ExitCode
from atomic.chat.prompt_history import PromptHistory
from atomic.chat.protocol import (
    Answer,
    ChatEvent,
    FilesFound,
    FindFiles,
    Leave,
    Picked,
    RunKind,
    ScreenSize,
    Shell,
    Submit,
)
from atomic.tui import attention, compat
from atomic.tui.engine_reader import EngineReader
from atomic.tui.frame_loop import FrameLoop
from atomic.tui.key_bindings import TABLE, Where, keymap
from atomic.tui.panel_layout import WIDE, PanelLayout
from atomic.tui.state.model import DURATIONS, EVERYTHING, PANELS, Changes, Run
from atomic.tui.state.store import Store
from atomic.tui.suggestions import needs_argument
from atomic.tui.text import harmless, one_line
from atomic.tui.themes import register, shown_name, textual_name, theme_for
from atomic.tui.transcript.welcome import is_welcome
from atomic.tui.watchdog import Watchdog
from atomic.tui.widgets.header import Header
from atomic.tui.widgets.prompt import HINTS_OF_POPUP, Prompt
from atomic.tui.widgets.queue import QueueView
from atomic.tui.widgets.status import IDLE_HINTS, StatusLine
from atomic.tui.widgets.transcript import TranscriptView

if TYPE_CHECKING:
    from atomic.chat.client import ChatClient
    from atomic.config import Settings
    from atomic.tui.screens.question import Answered

TWICE = 1.0  # seconds between two presses of Ctrl+C that leave at once
AGAIN = 2.0  # seconds to confirm leaving with a second Ctrl+C
GOODBYE = 5.0  # seconds to wait for the engine's final message
QUIET_BEFORE_DIALOG = 1.0  # seconds without a key: typed letters must not answer a question

_FOREGROUND = (RunKind.TURN, RunKind.AGENTS, RunKind.SHELL, RunKind.COMMAND)
# Commands that only show something or leave, so they need not wait for the agent.
_IMMEDIATE = frozenset(("help", "h", "?", "theme", "exit", "quit", "q", "mcp", "sessions", "model", "m"))
_PLACES = {
    Where.ANYWHERE: "Anywhere",
    Where.EMPTY: "Empty prompt",
    Where.PROMPT: "Prompt",
    Where.POPUP: "List of the prompt",
    Where.TRANSCRIPT: "Transcript",
}
_DIALOG_KEYS = (("stop", "escape"), ("questions", "f6"))  # keys that dialogs bind themselves
_READING_HINTS = (("j/k", "move"), ("⏎", "unfold"), ("y", "copy"), ("g/G", "ends"), ("q", "back"))
_KEEP_UNDO = ("stop", "interrupt", "tasks", "agents", "graph", "questions")
_EMPTY_PANELS = {"task": "No tasks yet", "agent": "No agent is running", "graph": "No workflow has started"}


class AtomicApp(App[str], inherit_bindings=False):
    """The screen of a conversation. It returns the engine's final message."""

    TITLE = "atomic"
    ENABLE_COMMAND_PALETTE = False
    PAUSE_GC_ON_SCROLL = True
    AUTO_FOCUS = "#prompt"
    CSS = """
    #body { height: 1fr; }
    TranscriptView { width: 1fr; height: 1fr; }
    SidePanels { display: none; height: 1fr; border-left: solid $primary 30%; }
    SidePanels.-overlay { border-left: none; }
    Panel.-closed { display: none; }
    ToastRack { dock: top; align: right top; margin: 1 1 0 0; }
    Toast { width: auto; max-width: 60; padding: 0 1; margin: 0; }
    """

    def __init__(
        self,
        link: ChatClient,
        *,
        settings: Settings,
        prompt: str = "",
        theme: str | None = None,
        background: str = "",
        home: Path | None = None,
        project: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the app; the engine starts after the first frame.

        `prompt` is sent then. `background` is the terminal's background colour as it reports
        it. `home` is Atomic's folder.
        """
        compat.install()
        self._no_color = bool(os.environ.get("NO_COLOR"))
        # Without ANSI colours Textual would turn all colours into greys.
        super().__init__(ansi_color=True if self._no_color else None)
        self.animation_level = "none"
        self.store = Store()
        self._link = link
        self._settings = settings
        self._theme = theme or settings.theme
        self._background = rgb_of(background)
        self._monotonic = clock
        self._has_motion = not is_still()
        self._watchdog = Watchdog(None if home is None else home / "logs" / "screen.log")
        self._reader = EngineReader(link, self._apply, self.call_later, self._watchdog)
        self.frames = FrameLoop(self.show, self._tick, self.call_later, clock)
        self._tasks: set[asyncio.Task[None]] = set()

        self.header = Header()
        self.transcript = TranscriptView()
        self.panels = PanelLayout(self.transcript)
        self.queue_view = QueueView()
        self.prompt = Prompt(_prompt_history(home, project))
        self.status = StatusLine()
        self._keys, self._key_warnings = keymap(settings.keys)
        self.transcript.end_key = self._keys.shown("scroll_end")
        for panel in (self.status, *self.panels.strips, *self.panels.side.panels):
            panel.keys = {action: self._keys.shown(action) for action in panel.keys}

        self._first_prompt = prompt
        self._run_count = 0
        self._was_busy = False
        self._active_runs: set[str] = set()  # at the last status change
        self._files_request = ("", "")  # its id, and the letters after `@`
        self._request_count = 0
        self._sent_width = 0  # 0: the engine has not started
        self._is_leaving = False

        self._last_key = float("-inf")
        self._last_ctrl_c = float("-inf")
        self._may_leave_until = float("-inf")
        self._own_key: events.Key | None = None  # the last key that the app sent to a dialog
        self._is_reading = False  # keys move in the transcript, block by block
        # What the last key showed or hid, and how Esc reverts it before it stops anything.
        self._undo: tuple[str, Callable[[], object]] | None = None
        self._known_questions: set[str] = set()
        self._unseen_questions: set[str] = set()  # not yet shown in a dialog

    def compose(self) -> ComposeResult:
        """Yield the widgets of the main screen."""
        yield self.header
        with Horizontal(id="body"):
            yield self.transcript
            yield self.panels.side
        yield from self.panels.strips
        yield self.queue_view
        yield self.prompt
        yield self.status

    @property
    def columns(self) -> int:
        """Return the width of the main screen; a dialog above it may be narrower."""
        return self.screen_stack[0].size.width or self.size.width

    @property
    def rows(self) -> int:
        """Return the height of the main screen."""
        return self.screen_stack[0].size.height or self.size.height

    @property
    def cursor_position(self) -> Offset:
        """Return the position of the text cursor, where input methods show their window."""
        focused = self.focused if self.is_running else None
        return focused.cursor_screen_offset if isinstance(focused, TextArea) else self._cursor

    @cursor_position.setter
    def cursor_position(self, offset: Offset) -> None:
        self._cursor = offset

    # -- start and end

    def on_mount(self) -> None:
        """Show the empty screen; everything else starts after the first frame."""
        register(self)  # pyright: ignore[reportArgumentType]  # App is invariant in its result
        self._choose_theme()
        self.show(EVERYTHING)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        self._watchdog.start()
        self._start(self._reader.run())
        if compat.can_ask_for_shift():
            compat.write(self, compat.ASK_FOR_SHIFT)
        self.prompt.fit(self.rows)
        self._send_size()  # the first intent starts the engine
        if self._first_prompt:
            self._send(self._first_prompt)
        for warning in (*self._settings.warnings, *self._key_warnings):
            self.say(warning, severity="warning")

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            compat.fail(self, error)

    async def on_unmount(self) -> None:
        """Notify the engine and wait until it has ended, however the screen ended.

        A signal or a closed terminal pauses workflows, as `/exit` does. A screen that failed
        leaves them running.
        """
        if compat.can_ask_for_shift():
            compat.write(self, compat.END_ASKING)
        if not self._is_leaving:
            self._is_leaving = True
            is_signal = (self.return_code or 0) > ExitCode.SIGNALLED
            self._link.send(Leave(pause=is_signal))
            if is_signal:
                with suppress(TimeoutError):
                    async with asyncio.timeout(GOODBYE):
                        await self._reader.has_left.wait()
        await self._link.close()
        self.frames.stop()
        self._watchdog.stop()
        for task in tuple(self._tasks):
            task.cancel()

    def leave(self, *, pause: bool = True) -> None:
        """Leave after the engine's final message, or at once if called again."""
        if self._is_leaving:
            self.leave_at_once()
            return
        self._is_leaving = True
        self._remind("leaving …")
        self._link.send(Leave(pause=pause))
        asyncio.get_running_loop().call_later(GOODBYE, self.exit, "")

    def leave_at_once(self) -> None:
        """Leave without waiting for the engine. Workflows keep running."""
        if not self._is_leaving:
            self._is_leaving = True
            self._link.send(Leave())
        self.exit(self.store.screen.left or "")

    # -- painting

    def _apply(self, event: ChatEvent) -> None:
        """Apply an event of the engine to the state."""
        if isinstance(event, FilesFound):
            request, letters = self._files_request
            if event.request == request:
                self.prompt.found_files(letters, event.paths)
            return
        self.frames.mark(self.store.apply(event, time.time()))

    def show(self, changes: Changes) -> None:
        """Update the widgets, and react to changes that need more than painting."""
        screen = self.store.screen
        now = time.time()
        is_named = bool(changes & Changes.STATUS) and is_welcome(screen)  # the welcome text names the agent
        if changes & Changes.TRANSCRIPT or is_named:
            self.transcript.sync(screen, now)
        if changes & Changes.STATUS:
            self.header.sync(screen, now)
        if changes & PANELS:
            is_covered = self.panels.show(screen, now, self.columns)
            self.status.is_covered = is_covered or self._undo is not None
        if changes & Changes.QUEUE:
            self.queue_view.show([queued.text for queued in screen.queue])
        self.status.sync(screen, now)
        self._react(changes)
        if self._has_motion and screen.is_busy:
            self.frames.tick_later()

    def _react(self, changes: Changes) -> None:
        screen = self.store.screen
        if changes & Changes.THEME:
            self._choose_theme(screen.theme)
        if changes & Changes.QUEUE:
            self.prompt.has_queue = bool(screen.queue)
        if changes & Changes.COMMANDS:
            self._start(self.learn_commands())
        if changes & Changes.QUESTIONS:
            self._ask(by_itself=True)
        if changes & Changes.PICK:
            self._pick()
        if changes & Changes.STATUS:
            self._note_ended_runs()
        if changes & Changes.LEFT:
            self.exit(screen.left or "")

    def _tick(self) -> None:
        if self.store.screen.is_busy:
            self.frames.mark(DURATIONS)

    async def learn_commands(self) -> None:
        """Pass the commands to the prompt. In a thread, because their imports take long."""
        from atomic.tui.command_list import registry_of

        screen = self.store.screen
        registry = await asyncio.to_thread(registry_of, screen.commands)
        self.prompt.know(registry, screen.agents_by_name)

    def on_resize(self) -> None:
        """Adapt panels and prompt to another size."""
        self.call_after_refresh(self._resized)  # the main screen is resized a moment later

    def _resized(self) -> None:
        self.prompt.fit(self.rows)
        self.frames.mark(EVERYTHING)

    def on_transcript_view_resized(self, message: TranscriptView.Resized) -> None:
        """Send the engine another line length, after a resize or when a panel opens."""
        if self._sent_width:
            self._send_size()

    def _send_size(self) -> None:
        """Send the engine the length of a line in the transcript."""
        width = min(self.transcript.room, self.columns) or self.columns
        if width != self._sent_width:
            self._sent_width = width
            self._link.send(ScreenSize(width=width))

    def _choose_theme(self, name: str = "") -> None:
        wanted = "" if self._no_color else name or self._theme
        few_colours = self._no_color or self.console.color_system == "standard"
        chosen = wanted or theme_for(self._background, few_colours=few_colours)
        full = textual_name(chosen)
        if full in self.available_themes:
            self.theme = full
        else:
            self.say(f'There is no theme "{shown_name(chosen)}"', severity="warning")

    def set_background(self, colour: str) -> None:
        """Take the terminal's background colour, if it was reported after the start."""
        self._background = rgb_of(colour)
        if not self._theme and not self.store.screen.theme:
            self._choose_theme()

    def say(self, words: str, *, severity: Any = "information") -> None:
        """Show a notification for a few seconds."""
        self.notify(harmless(words), severity=severity, markup=False, timeout=4)

    def _hint(self, hints: Sequence[tuple[str, str]]) -> None:
        """Show key hints in the status line while nothing is running."""
        self.status.say(self.status.words, hints)

    def _remind(self, words: str) -> None:
        """Show a message in the status line, or remove it."""
        self.status.say(words, self.status.hints)

    # -- sending

    def _is_occupied(self) -> bool:
        """Return whether a prompt must wait. Workflows run in the background."""
        return any(run.is_active and run.kind in _FOREGROUND for run in self.store.screen.runs.values())

    def on_prompt_sent(self, message: Prompt.Sent) -> None:
        """Send a text, or queue it while the agent is busy."""
        problem = self.prompt.sent.add(message.text, time.time())
        if problem:
            self.say(problem, severity="warning")
        self.transcript.follow()
        self._send_or_queue(message.text)

    def _send_or_queue(self, text: str) -> None:
        word = text.split(maxsplit=1)[0] if text.strip() else ""
        is_immediate = word.startswith("/") and word[1:].lower() in _IMMEDIATE
        if self._is_occupied() and not is_immediate:
            self.frames.mark(self.store.enqueue(text))
        else:
            self._send(text)

    def _send(self, text: str) -> None:
        """Send a text to the engine and show it before the engine confirms it."""
        self._run_count += 1
        run = f"{os.getpid():x}-{int(time.time() * 1000):x}-{self._run_count}"
        command = text.lstrip()
        if command.startswith("!"):
            kind = RunKind.SHELL
            intent = Shell(run=run, command=command[1:].strip())
        else:
            kind = RunKind.COMMAND if command.startswith("/") else RunKind.TURN
            intent = Submit(run=run, text=text)
        self.frames.mark(self.store.begin(run, kind, text, time.time()))
        self._was_busy = True
        self._active_runs.add(run)
        self._link.send(intent)

    def on_prompt_take_back(self, message: Prompt.TakeBack) -> None:
        """Put the last queued text back into the prompt."""
        queue = self.store.screen.queue
        if queue:
            last = queue[-1]
            text = last.text
            self.frames.mark(self.store.edit_queue(last.id, ""))
            self.prompt.has_queue = bool(queue)
            self.prompt.put(text)

    def on_prompt_files_wanted(self, message: Prompt.FilesWanted) -> None:
        """Request the files that match the letters after `@`."""
        self._request_count += 1
        request = f"files-{self._request_count}"
        self._files_request = request, message.text
        self._link.send(FindFiles(request=request, text=message.text))

    def on_prompt_offered(self, message: Prompt.Offered) -> None:
        """Show the keys of the open list in the status line."""
        self._hint(HINTS_OF_POPUP.get(message.kind, IDLE_HINTS))

    def _note_ended_runs(self) -> None:
        """After the user's last run: send the next queued text, or notify the user."""
        runs = self.store.screen.runs
        active = {id for id, run in runs.items() if run.is_active}
        ended = [runs[id] for id in self._active_runs - active if id in runs]
        self._active_runs = active
        was_busy = self._was_busy
        self._was_busy = self._is_occupied()
        if self._is_leaving:
            return
        for run in ended:
            if run.kind is RunKind.WORKFLOW:
                self._notify_away(f"Atomic: {run.title or 'the workflow'} {run.status}")
        if was_busy and not self._was_busy and not self._send_queued() and ended:
            self._notify_away("Atomic is done")

    def _send_queued(self) -> bool:
        """Send the oldest queued text, unless the last run failed: it would probably fail too."""
        if not self.store.screen.queue:
            return False
        if self._has_failed():
            self.say("The run failed, so the queue waits: send something, or edit it with ↑", severity="warning")
            return False
        text = self.store.dequeue()
        assert text is not None
        self._send(text)
        self.frames.mark(Changes.QUEUE)
        return True

    def _has_failed(self) -> bool:
        """Return whether the last of the user's runs failed."""
        runs = self.store.screen.runs.values()
        ended = [run for run in runs if not run.is_active and run.kind in _FOREGROUND]
        return bool(ended) and max(ended, key=_end_time).status in ("failed", "limit")

    def _notify_away(self, words: str) -> None:
        """Notify a user who looks at another window."""
        if not self.app_focus:
            compat.write(self, attention.call(words) + attention.title(f"● {words}"))

    def on_app_focus(self) -> None:
        """Reset the terminal's title when the user looks at the screen again."""
        compat.write(self, attention.title("atomic"))

    # -- dialogs that the engine opens

    @property
    def _has_dialog(self) -> bool:
        return len(self.screen_stack) > 1

    def _ask(self, *, by_itself: bool) -> None:
        """Open the dialog for open questions.

        `by_itself`: not requested by a key. Then it opens only for new questions, and only
        while the user is not typing.
        """
        questions = self.store.screen.questions
        if not questions and not self._has_dialog:
            self._known_questions.clear()
            return
        from atomic.tui.screens.question import QuestionScreen

        if isinstance(self.screen, QuestionScreen):
            self.screen.sync(self.store.screen, time.time())
        new = questions.keys() - self._known_questions
        self._known_questions = set(questions)
        self._unseen_questions = (self._unseen_questions | new) & questions.keys()
        if by_itself and new:
            self._notify_away("Atomic has a question")
        if questions and not self._has_dialog and (not by_itself or self._may_interrupt()):
            self._unseen_questions.clear()
            later = self._keys.shown("questions")
            self.push_screen(QuestionScreen(list(questions.values()), later=later), self._answered)

    def _may_interrupt(self) -> bool:
        """Return whether a dialog may open now. If it is only too early, try again later."""
        if not self._unseen_questions or not self.prompt.is_empty:
            return False
        patience = self._last_key + QUIET_BEFORE_DIALOG - self._monotonic()
        if patience > 0:
            asyncio.get_running_loop().call_later(patience, self.frames.mark, Changes.QUESTIONS)
        return patience <= 0

    def _answered(self, answered: Answered | None) -> None:
        """Send the answer to a question. None postpones it."""
        if answered is None:
            return
        self.frames.mark(self.store.close_question(answered.question))
        self._link.send(Answer(question=answered.question, answers=answered.answers))
        if self.store.screen.questions:
            self.call_later(self._ask, by_itself=False)

    def _pick(self) -> None:
        """Open the picker that the engine requested."""
        from atomic.tui.screens.lists import PickScreen

        pick = self.store.screen.pick
        if pick is None:
            return

        def picked(value: str | None) -> None:
            self.frames.mark(self.store.close_pick())
            self._link.send(Picked(request=pick.request, value=value))

        self.push_screen(PickScreen(pick), picked)

    # -- transcript and clipboard

    def on_transcript_view_toggled(self, message: TranscriptView.Toggled) -> None:
        """Fold or unfold a card."""
        self.frames.mark(self.store.toggle(message.block_id))

    def on_transcript_view_link_opened(self, message: TranscriptView.LinkOpened) -> None:
        """Open a web address in a browser, or copy it where a browser cannot open a window.

        Other addresses are only shown.
        """
        if not message.url.startswith(("http://", "https://")):
            self.say(one_line(message.url))
        elif self.is_web or _has_windows():
            self.open_url(message.url)
        else:
            self.copy(message.url, "")

    def copy(self, text: str, if_empty: str) -> None:
        """Copy a text and report how, or show `if_empty`."""
        if text:
            self._start(self._copy(text))
        else:
            self.say(if_empty)

    async def _copy(self, text: str) -> None:
        from atomic.tui.clipboard import copy

        written: list[str] = []
        report = await asyncio.to_thread(copy, text, written.append)
        compat.write(self, "".join(written))
        self.say(report)

    # -- keys

    async def on_event(self, event: events.Event) -> None:
        """Handle keys before any widget sees them.

        They are handled at once: `abc` and Enter that arrive together keep their order.
        """
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            now = self._monotonic()
            self._last_key = now
            if not self._is_interrupt(event) and event is not self._own_key:
                self._cancel_leaving()
            self._watchdog.wake()
            self.frames.key(now)
            if await self._handle_input(event):
                return
        await super().on_event(event)

    def _is_interrupt(self, event: events.Key | events.Paste) -> bool:
        return isinstance(event, events.Key) and event.key in self._keys.keys("interrupt")

    async def _handle_input(self, event: events.Key | events.Paste) -> bool:
        """Return whether the app handled a key or a paste; the rest is for a dialog."""
        if self._is_too_early(event):
            return True
        if isinstance(event, events.Key):
            return await self._handle_key(event.key) or (self._is_typing() and self.prompt.type(event))
        if self._is_typing():
            self.prompt.paste(event.text)
            return True
        return self._is_reading and not self._has_dialog

    def _is_too_early(self, event: events.Key | events.Paste) -> bool:
        """Return whether it was typed before the open question was painted: it is no answer."""
        if self._is_interrupt(event) or not self._has_dialog:
            return False
        from atomic.tui.screens.dialog import Dialog

        return isinstance(self.screen, Dialog) and not self.screen.is_for(event)

    def _is_typing(self) -> bool:
        """Return whether letters go to the prompt. It gets the focus back after a click elsewhere."""
        if self._has_dialog or self._is_reading:
            return False
        self.prompt.focus_text()
        return True

    async def _handle_key(self, key: str) -> bool:
        """Run the action of a key. Return False for a letter or a key of the dialog."""
        self.prompt.settle()
        if self._has_dialog:
            dialog_key = next((own for action, own in _DIALOG_KEYS if key in self._keys.keys(action)), key)
            if dialog_key != key:
                self._send_key(dialog_key)
                return True
            action = "interrupt" if key in self._keys.keys("interrupt") else None
        else:
            action = self._keys.action(key, *self._places())
        if action not in _KEEP_UNDO:
            self._forget_undo()
        if action is None:
            return self._is_reading and not self._has_dialog  # letters must not reach the hidden prompt
        await self._run(action)
        return True

    async def _run(self, action: str) -> None:
        """Run `action_NAME` of the app or of the prompt."""
        if not await self.run_action(action):
            await self.run_action(action, self.prompt)

    def _send_key(self, key: str) -> None:
        """Press a key in the open dialog."""
        self._own_key = events.Key(key, None)
        self.post_message(self._own_key)

    def _places(self) -> Sequence[Where]:
        """Return the places in which a key is looked up now, in this order."""
        if self._is_reading:
            return Where.TRANSCRIPT, Where.ANYWHERE
        popup = (Where.POPUP,) if self.prompt.has_list else ()
        empty = (Where.EMPTY,) if self.prompt.is_empty else ()
        return *popup, *empty, Where.PROMPT, Where.ANYWHERE

    # -- actions: stop and leave

    def action_stop(self) -> None:
        """Close what is open, or else stop the foreground run (Esc)."""
        if not self._close_something():
            self._stop()

    def action_interrupt(self) -> None:
        """Close, stop, clear the input, or leave: the first that applies (Ctrl+C).

        Twice within a second leaves at once.
        """
        now = self._monotonic()
        before = self._last_ctrl_c
        self._last_ctrl_c = now
        if now - before < TWICE or now < self._may_leave_until:
            self.leave_at_once()
        elif not (self._close_something() or self._stop() or self._clear_input()):
            self._may_leave_until = now + AGAIN
            self._remind(f"{self._keys.shown('interrupt')} again leaves")
            asyncio.get_running_loop().call_later(AGAIN, self._remind, "")

    def _cancel_leaving(self) -> None:
        """End the pair of Ctrl+C after another key."""
        self._last_ctrl_c = float("-inf")
        if self._may_leave_until > self._monotonic():
            self._may_leave_until = float("-inf")
            self._remind("")

    def _close_something(self) -> bool:
        """Close a dialog, the list, a panel or the reading mode. Return whether one was open."""
        if self._has_dialog:
            self._send_key("escape")
        elif self.prompt.is_open and not self._is_reading:
            self.prompt.dismiss()
        elif self.panels.overlay and self.columns < WIDE:
            self._toggle_panel(self.panels.overlay)
        elif self._is_reading:
            self.action_block_leave()
        elif self._undo is not None:
            _, undo = self._undo
            self._forget_undo()
            undo()
        else:
            return False
        return True

    def _forget_undo(self) -> None:
        """Forget how to revert the last key, after another key."""
        if self._undo is not None:
            self._undo = None
            self.frames.mark(EVERYTHING)

    def _stop(self) -> bool:
        """Stop the foreground run, by force the second time. Return whether there is one."""
        interrupt = self.store.stop_foreground(time.time())
        if interrupt is None:
            return False
        self._link.send(interrupt)
        self.frames.mark(Changes.STATUS | Changes.TRANSCRIPT)
        return True

    def _clear_input(self) -> bool:
        if self.prompt.is_empty:
            return False
        self.prompt.sent.add(self.prompt.clear(), time.time())
        return True

    def action_leave(self) -> None:
        """Leave (Ctrl+D on the empty prompt)."""
        self.leave()

    # -- actions: panels and display

    def action_tasks(self) -> None:
        """Show or hide the tasks."""
        self._toggle_panel("task")

    def action_agents(self) -> None:
        """Show or hide the agents."""
        self._toggle_panel("agent")

    def action_graph(self) -> None:
        """Show or hide the graph."""
        self._toggle_panel("graph")

    def action_questions(self) -> None:
        """Open the questions."""
        if self.store.screen.questions:
            self._ask(by_itself=False)
        else:
            self.say("No question waits")
            self._undo = "questions", self.clear_notifications
            self.frames.mark(EVERYTHING)

    def _toggle_panel(self, name: str) -> None:
        is_second = self._undo is not None and self._undo[0] == name
        if self.panels.is_empty(name) and self.panels.overlay != name:
            self.say(_EMPTY_PANELS[name])
            self._undo = name, self.clear_notifications
        elif self.columns >= WIDE:
            self._switch_panel(name)
            self._undo = None if is_second else (name, partial(self._switch_panel, name))
        else:
            self.panels.toggle_overlay(name)
            self._undo = None
        self.frames.mark(EVERYTHING)

    def _switch_panel(self, name: str) -> None:
        self.panels.toggle(name)
        self.frames.mark(EVERYTHING)

    def action_repaint(self) -> None:
        """Repaint everything, after another program has written to the terminal."""
        self.refresh(layout=True)
        self.screen.refresh(layout=True)

    def action_suspend(self) -> None:
        """Return to the shell until `fg`."""
        self.action_suspend_process()

    # -- actions: dialogs

    def action_help(self) -> None:
        """List all commands."""
        from atomic.tui.screens.lists import HelpScreen

        def chosen(name: str | None) -> None:
            if name is not None:
                self.prompt.put(f"/{name} ")

        self.push_screen(HelpScreen(self.store.screen.commands), chosen)

    def action_keys(self) -> None:
        """List all keys."""
        from atomic.tui.screens.lists import KeysScreen

        self.push_screen(KeysScreen([(keys, does, _PLACES[where]) for where, keys, does in self._keys.rows()]))

    def action_palette(self) -> None:
        """List all commands and actions."""
        from atomic.tui.screens.lists import Action, PaletteScreen

        actions = [
            Action(action.name, action.description, self._keys.shown(action.name))
            for action in TABLE
            if action.where in (Where.ANYWHERE, Where.EMPTY) and action.name not in ("stop", "interrupt", "palette")
        ]
        self.push_screen(PaletteScreen(self.store.screen.commands, actions), self._run_chosen)

    async def _run_chosen(self, value: str | None) -> None:
        """Run what was chosen in the palette: an action, or a command such as `/model`."""
        if value is None:
            return
        if not value.startswith("/"):
            await self._run(value)
            return
        hint = next((one.argument_hint for one in self.store.screen.commands if f"/{one.name}" == value), "")
        if needs_argument(hint):
            self.prompt.put(f"{value} ")
        else:
            self._send_or_queue(value)

    def action_model(self) -> None:
        """Choose a model."""
        self._send_or_queue("/model")

    def action_theme(self) -> None:
        """Choose a theme."""
        self._send_or_queue("/theme")

    def action_editor(self) -> None:
        """Edit the text, with pastes in full, in the user's editor."""
        from textual.app import SuspendNotSupported

        from atomic.tui.editor import EditorError, edit, editor_command

        text = self.prompt.full_text
        problem = ""
        self._watchdog.pause(True)
        try:
            with self.suspend():
                # Caught inside, because Textual resumes only if nothing is raised.
                try:
                    text = edit(text, editor_command(self._settings.editor))
                except EditorError as error:
                    problem = str(error)
        except SuspendNotSupported:
            self.say("There is no editor in a browser", severity="warning")
            return
        finally:
            self._watchdog.pause(False)
        if problem:
            self.say(problem, severity="error")
        else:
            self.prompt.put(text)

    # -- actions: transcript

    def action_page_up(self) -> None:
        """Scroll the transcript up."""
        self.transcript.action_page_up()

    def action_page_down(self) -> None:
        """Scroll the transcript down."""
        self.transcript.action_page_down()

    def action_scroll_start(self) -> None:
        """Scroll the transcript to its beginning."""
        self.transcript.action_scroll_home()

    def action_scroll_end(self) -> None:
        """Scroll the transcript to its end and follow it."""
        self.transcript.follow()

    def action_copy_answer(self) -> None:
        """Copy the selection, or else the last answer."""
        text = self.transcript.selected_text() or self.transcript.last_answer(self.store.screen)
        self.copy(text, "There is no answer yet")

    def action_transcript(self) -> None:
        """Read the transcript block by block, or return to the prompt."""
        if self._is_reading:
            self.action_block_leave()
            return
        self._is_reading = True
        self.transcript.focus()
        self.transcript.previous_block()
        self._hint(_READING_HINTS)

    def action_block_leave(self) -> None:
        """Return to the prompt."""
        self._is_reading = False
        self.transcript.clear_cursor()
        self._hint(IDLE_HINTS)
        self.prompt.focus_text()

    def action_block_next(self) -> None:
        """Move to the next block."""
        self.transcript.next_block()

    def action_block_previous(self) -> None:
        """Move to the previous block."""
        self.transcript.previous_block()

    def action_block_unfold(self) -> None:
        """Fold or unfold the block."""
        self.transcript.toggle_current()

    def action_block_copy(self) -> None:
        """Copy the selection, or else the block."""
        text = self.transcript.selected_text() or self.transcript.current_text()
        self.copy(text, "Nothing to copy")

    def action_block_first(self) -> None:
        """Move to the first block."""
        self.transcript.action_scroll_home()
        self.transcript.clear_cursor()
        self.transcript.next_block()

    def action_block_last(self) -> None:
        """Move to the last block."""
        self.transcript.follow()
        self.transcript.clear_cursor()
        self.transcript.previous_block()


def is_still() -> bool:
    """Return whether the user wants no animation."""
    return bool(os.environ.get("ATOMIC_REDUCED_MOTION")) or os.environ.get("TEXTUAL_ANIMATIONS") == "none"


def _prompt_history(home: Path | None, project: str | None) -> PromptHistory:
    if project is None:
        try:
            project = os.getcwd()
        except OSError:
            project = ""  # the folder was deleted
    return PromptHistory(None if home is None else home / "history.jsonl", project)


def _end_time(run: Run) -> float:
    return run.ended or 0.0


def _has_windows() -> bool:
    """Return whether a browser would open in a window, not in our terminal."""
    return sys.platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def rgb_of(colour: str) -> tuple[int, int, int] | None:
    """Parse a colour as a terminal reports it, such as `rgb:ffff/ffff/ffff`."""
    parts = colour.partition(":")[2].split("/")
    try:
        red, green, blue = (int(part[:2].ljust(2, part[:1] or "x"), 16) for part in parts)
    except ValueError:
        return None
    return red, green, blue
