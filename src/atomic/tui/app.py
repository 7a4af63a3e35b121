"""The app: shows the state that the engine's events add up to, and sends what the user
does.

Keys come first: `on_event` looks every key up in the key table before a widget sees it
and runs `action_NAME` of the app or of the prompt. Events of the engine change the
state (`Store`), and the state is painted when a frame is due (`FrameLoop`).
"""

from __future__ import annotations

import asyncio
import os
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
from atomic.chat.protocol import ChatEvent, FilesFound, FindFiles, Leave, ScreenSize
from atomic.tui import compat
from atomic.tui.desktop import Desktop
from atomic.tui.dialogs import Dialogs
from atomic.tui.engine_reader import EngineReader
from atomic.tui.frame_loop import FrameLoop
from atomic.tui.key_bindings import keymap
from atomic.tui.key_input import KeyInput
from atomic.tui.panel_layout import WIDE, PanelLayout
from atomic.tui.sender import PromptSender
from atomic.tui.state.model import EVERYTHING, PANELS, Changes
from atomic.tui.state.store import Store
from atomic.tui.text import harmless
from atomic.tui.themes import parse_colour, register, shown_name, textual_name, theme_for
from atomic.tui.transcript.welcome import is_welcome
from atomic.tui.watchdog import Watchdog
from atomic.tui.widgets.header import Header
from atomic.tui.widgets.popup import QueueView
from atomic.tui.widgets.prompt import HINTS_OF_POPUP, Prompt
from atomic.tui.widgets.status import IDLE_HINTS, StatusLine
from atomic.tui.widgets.transcript import TranscriptView

if TYPE_CHECKING:
    from atomic.chat.client import ChatClient
    from atomic.config import Settings

TWICE = 1.0  # seconds between two presses of Ctrl+C that leave at once
AGAIN = 2.0  # seconds to confirm leaving with a second Ctrl+C
GOODBYE = 5.0  # seconds to wait for the engine's final message

_READING_HINTS = (("j/k", "move"), ("⏎", "unfold"), ("y", "copy"), ("g/G", "ends"), ("q", "back"))
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
        client: ChatClient,
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

        `prompt` is sent then. `background` is the terminal's background colour as it
        reports it. `home` is Atomic's folder.
        """
        compat.install()
        self._no_color = bool(os.environ.get("NO_COLOR"))
        # Without ANSI colours Textual would turn all colours into greys.
        super().__init__(ansi_color=True if self._no_color else None)
        self.animation_level = "none"
        self.store = Store()
        self.client = client
        self._settings = settings
        self._theme = theme or settings.theme
        self._background = parse_colour(background)
        self.monotonic = clock
        self._has_motion = not is_still()
        self._watchdog = Watchdog(None if home is None else home / "logs" / "screen.log")
        self._reader = EngineReader(client, self._apply, self.call_later, self._watchdog)
        self.frames = FrameLoop(self.show, self.call_later, clock)
        self._tasks: set[asyncio.Task[None]] = set()

        self.header = Header()
        self.transcript = TranscriptView()
        self.panels = PanelLayout(self.transcript)
        self.queue_view = QueueView()
        self.prompt = Prompt(PromptHistory.of_home(home, project))
        self.status = StatusLine()
        self.keys, self._key_warnings = keymap(settings.keys)
        self.transcript.end_key = self.keys.shown("scroll_end")
        for panel in (self.status, *self.panels.strips, *self.panels.side.panels):
            panel.keys = {action: self.keys.shown(action) for action in panel.keys}

        self.desktop = Desktop(self)
        self.sender = PromptSender(
            self.store,
            client,
            self.frames.mark,
            warn=partial(self.say, severity="warning"),
            notify=self.desktop.notify_away,
        )
        self.dialogs = Dialogs(self)
        self._input = KeyInput(self)
        self.is_reading = False  # keys move in the transcript, block by block
        self.last_key = float("-inf")

        self._first_prompt = prompt
        self._files_request = ("", "")  # its id, and the letters after `@`
        self._request_count = 0
        self._sent_width = 0  # 0: the engine has not started
        self._is_leaving = False
        self._last_ctrl_c = float("-inf")
        self._may_leave_until = float("-inf")
        # What the last key showed or hid, and how Esc reverts it before it stops
        # anything.
        self._undo: tuple[str, Callable[[], object]] | None = None

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
        """Return the position of the text cursor, where input methods show their
        window.
        """
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
        self.run_in_background(self._reader.run())
        if compat.can_ask_for_shift():
            compat.write(self, compat.ASK_FOR_SHIFT)
        self.prompt.fit(self.rows)
        self._send_size()  # the first intent starts the engine
        if self._first_prompt:
            self.sender.send(self._first_prompt)
        for warning in (*self._settings.warnings, *self._key_warnings):
            self.say(warning, severity="warning")

    def run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the background."""

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None:
                compat.fail(self, error)

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)

    async def on_unmount(self) -> None:
        """Notify the engine and wait until it has ended, however the screen ended.

        A signal or a closed terminal pauses workflows, as `/exit` does. A screen that
        failed leaves them running.
        """
        if compat.can_ask_for_shift():
            compat.write(self, compat.END_ASKING)
        if not self._is_leaving:
            self._is_leaving = True
            is_signal = (self.return_code or 0) > ExitCode.SIGNALLED
            self.client.send(Leave(pause=is_signal))
            if is_signal:
                with suppress(TimeoutError):
                    async with asyncio.timeout(GOODBYE):
                        await self._reader.has_left.wait()
        await self.client.close()
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
        self.client.send(Leave(pause=pause))
        asyncio.get_running_loop().call_later(GOODBYE, self.exit, "")

    def leave_at_once(self) -> None:
        """Leave without waiting for the engine. Workflows keep running."""
        if not self._is_leaving:
            self._is_leaving = True
            self.client.send(Leave())
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
            self.run_in_background(self.learn_commands())
        if changes & Changes.QUESTIONS:
            self.dialogs.ask(by_itself=True)
        if changes & Changes.PICK:
            self.dialogs.pick()
        if changes & Changes.STATUS:
            self.sender.note_ended_runs(is_leaving=self._is_leaving)
        if changes & Changes.LEFT:
            self.exit(screen.left or "")

    async def learn_commands(self) -> None:
        """Pass the commands to the prompt.

        In a thread, because their imports take long.
        """
        from atomic.tui.suggestions import registry_of

        screen = self.store.screen
        registry = await asyncio.to_thread(registry_of, screen.commands)
        self.prompt.know(registry, screen.agents_by_name)

    def on_resize(self) -> None:
        """Adapt panels and prompt to another size."""

        def adapt() -> None:
            self.prompt.fit(self.rows)
            self.frames.mark(EVERYTHING)

        self.call_after_refresh(adapt)  # the main screen is resized a moment later

    def on_transcript_view_resized(self, message: TranscriptView.Resized) -> None:
        """Send the engine another line length, after a resize or when a panel opens."""
        if self._sent_width:
            self._send_size()

    def _send_size(self) -> None:
        """Send the engine the length of a line in the transcript."""
        width = min(self.transcript.room, self.columns) or self.columns
        if width != self._sent_width:
            self._sent_width = width
            self.client.send(ScreenSize(width=width))

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
        self._background = parse_colour(colour)
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

    def on_prompt_sent(self, message: Prompt.Sent) -> None:
        """Send a text, or queue it while the agent is busy."""
        problem = self.prompt.sent.add(message.text, time.time())
        if problem:
            self.say(problem, severity="warning")
        self.transcript.follow()
        self.sender.send_or_queue(message.text)

    def on_prompt_take_back(self, message: Prompt.TakeBack) -> None:
        """Put the last queued text back into the prompt."""
        text = self.sender.take_back()
        if text is not None:
            self.prompt.has_queue = bool(self.store.screen.queue)
            self.prompt.put(text)

    def on_prompt_files_wanted(self, message: Prompt.FilesWanted) -> None:
        """Request the files that match the letters after `@`."""
        self._request_count += 1
        request = f"files-{self._request_count}"
        self._files_request = request, message.text
        self.client.send(FindFiles(request=request, text=message.text))

    def on_prompt_offered(self, message: Prompt.Offered) -> None:
        """Show the keys of the open list in the status line."""
        self._hint(HINTS_OF_POPUP.get(message.kind, IDLE_HINTS))

    def on_app_focus(self) -> None:
        """Reset the terminal's title when the user looks at the screen again."""
        self.desktop.reset_title()

    # -- transcript and clipboard

    def on_transcript_view_toggled(self, message: TranscriptView.Toggled) -> None:
        """Fold or unfold a card."""
        self.frames.mark(self.store.toggle(message.block_id))

    def on_transcript_view_link_opened(self, message: TranscriptView.LinkOpened) -> None:
        """Open a link that was clicked."""
        self.desktop.open_link(message.url)

    # -- keys

    async def on_event(self, event: events.Event) -> None:
        """Handle keys before any widget sees them.

        They are handled at once: `abc` and Enter that arrive together keep their order.
        """
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            self.last_key = self.monotonic()
            self._watchdog.wake()
            self.frames.key(self.last_key)
            if await self._input.handle(event):
                return
        await super().on_event(event)

    async def run_named(self, action: str) -> None:
        """Run `action_NAME` of the app, the transcript, the prompt or its text."""
        for target in (self, self.transcript, self.prompt, self.prompt.area):
            if await self.run_action(action, target):
                return

    # -- actions: stop and leave

    def action_stop(self) -> None:
        """Close what is open, or else stop the foreground run (Esc)."""
        if not self._close_something():
            self._stop()

    def action_interrupt(self) -> None:
        """Close, stop, clear the input, or leave: the first that applies (Ctrl+C).

        Twice within a second leaves at once.
        """
        now = self.monotonic()
        before = self._last_ctrl_c
        self._last_ctrl_c = now
        if now - before < TWICE or now < self._may_leave_until:
            self.leave_at_once()
        elif self._close_something() or self._stop():
            return
        elif not self.prompt.is_empty:
            self.prompt.sent.add(self.prompt.clear(), time.time())
        else:
            self._may_leave_until = now + AGAIN
            self._remind(f"{self.keys.shown('interrupt')} again leaves")
            asyncio.get_running_loop().call_later(AGAIN, self._remind, "")

    def cancel_leaving(self) -> None:
        """End the pair of Ctrl+C after another key."""
        self._last_ctrl_c = float("-inf")
        if self._may_leave_until > self.monotonic():
            self._may_leave_until = float("-inf")
            self._remind("")

    def _close_something(self) -> bool:
        """Close a dialog, the list, a panel or the reading mode.

        Return whether one was open.
        """
        if self.dialogs.has_one:
            self._input.send_to_dialog("escape")
        elif self.prompt.is_open and not self.is_reading:
            self.prompt.dismiss()
        elif self.panels.overlay and self.columns < WIDE:
            self._toggle_panel(self.panels.overlay)
        elif self.is_reading:
            self.action_block_leave()
        elif self._undo is not None:
            _, undo = self._undo
            self.forget_undo()
            undo()
        else:
            return False
        return True

    def forget_undo(self) -> None:
        """Forget how to revert the last key, after another key."""
        if self._undo is not None:
            self._undo = None
            self.frames.mark(EVERYTHING)

    def _stop(self) -> bool:
        """Stop the foreground run, by force the second time.

        Return whether there is one.
        """
        interrupt = self.store.stop_foreground(time.time())
        if interrupt is None:
            return False
        self.client.send(interrupt)
        self.frames.mark(Changes.STATUS | Changes.TRANSCRIPT)
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
            self.dialogs.ask(by_itself=False)
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
        self.dialogs.show_help()

    def action_keys(self) -> None:
        """List all keys."""
        self.dialogs.show_keys()

    def action_palette(self) -> None:
        """List all commands and actions."""
        self.dialogs.show_palette()

    def action_model(self) -> None:
        """Choose a model."""
        self.sender.send_or_queue("/model")

    def action_theme(self) -> None:
        """Choose a theme."""
        self.sender.send_or_queue("/theme")

    def action_editor(self) -> None:
        """Edit the text, with pastes in full, in the user's editor."""
        self._watchdog.pause(True)
        try:
            text = self.desktop.edit(self.prompt.full_text, self._settings.editor)
        finally:
            self._watchdog.pause(False)
        if text is not None:
            self.prompt.put(text)

    # -- actions: transcript

    def action_copy_answer(self) -> None:
        """Copy the selection, or else the last answer."""
        text = self.transcript.selected_text() or self.transcript.last_answer(self.store.screen)
        self.desktop.copy(text, "There is no answer yet")

    def action_transcript(self) -> None:
        """Read the transcript block by block, or return to the prompt."""
        if self.is_reading:
            self.action_block_leave()
            return
        self.is_reading = True
        self.transcript.focus()
        self.transcript.action_block_previous()
        self._hint(_READING_HINTS)

    def action_block_leave(self) -> None:
        """Return to the prompt."""
        self.is_reading = False
        self.transcript.clear_cursor()
        self._hint(IDLE_HINTS)
        self.prompt.area.focus()

    def action_block_copy(self) -> None:
        """Copy the selection, or else the block."""
        text = self.transcript.selected_text() or self.transcript.current_text()
        self.desktop.copy(text, "Nothing to copy")


def is_still() -> bool:
    """Return whether the user wants no animation."""
    return bool(os.environ.get("ATOMIC_REDUCED_MOTION")) or os.environ.get("TEXTUAL_ANIMATIONS") == "none"
