"""The reading half of the screen: news become state, state becomes a picture at most 15 times a second."""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.geometry import Offset
from textual.widgets import TextArea

from atomic.tui import compat
from atomic.tui.clock import FrameClock
from atomic.tui.harmless import harmless
from atomic.tui.history import PromptHistory
from atomic.tui.merging import merged
from atomic.tui.protocol import News
from atomic.tui.state.changes import Changes
from atomic.tui.state.store import Store
from atomic.tui.themes import register, shown_name, textual_name, theme_for
from atomic.tui.transcript.welcome import is_welcome
from atomic.tui.watchdog import Watchdog
from atomic.tui.widgets.graph import GraphStrip
from atomic.tui.widgets.header import Header
from atomic.tui.widgets.panel import Panel
from atomic.tui.widgets.prompt import Prompt
from atomic.tui.widgets.queue import QueueView
from atomic.tui.widgets.side import SidePanels
from atomic.tui.widgets.status import StatusLine
from atomic.tui.widgets.tasks import TaskStrip
from atomic.tui.widgets.transcript import TranscriptView

if TYPE_CHECKING:
    from atomic.config import Settings
    from atomic.tui.link import EngineLink

WIDE = 100  # columns from which the panels stand beside the transcript
SLICE = 0.005  # seconds of news in one go
TICK = 1.0  # seconds between two frames that only show how long something takes

_PANELS = Changes.TASKS | Changes.AGENTS | Changes.GRAPH | Changes.QUESTIONS
_DURATIONS = Changes.TRANSCRIPT | Changes.STATUS | _PANELS
EVERYTHING = _DURATIONS | Changes.QUEUE


class ReadingApp(App[str], inherit_bindings=False):
    """Shows the state that an engine's news add up to. What a person does is the other half's."""

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
        link: EngineLink,
        *,
        settings: Settings,
        theme: str | None = None,
        background: str = "",
        home: Path | None = None,
        project: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`background` is the colour behind the text, as the terminal tells it; `home` is Atomic's own folder."""
        compat.install()
        self._no_color = bool(os.environ.get("NO_COLOR"))
        super().__init__(ansi_color=True if self._no_color else None)  # else Textual would turn colours into greys
        self.store = Store()
        self.animation_level = "none"  # nothing slides or fades
        self._link, self._settings = link, settings
        self._theme, self._background = theme or settings.theme, rgb_of(background)
        self._clock: FrameClock[Changes] = FrameClock(Changes.NONE)
        self._monotonic = clock
        self._timer: asyncio.TimerHandle | None = None
        self._tick: asyncio.TimerHandle | None = None
        self._has_motion = not is_still()
        self._pending: deque[News] = deque()
        self._is_taking = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._overlay = ""  # the panel that covers the transcript of a narrow screen
        self._hidden: set[str] = set()  # panels that were closed on a wide one
        # What the last key showed or hid, and how Esc returns from it before it stops anything.
        self._way_back: tuple[str, Callable[[], object]] | None = None
        self._watchdog = Watchdog(None if home is None else home / "logs" / "screen.log")
        self._transcript, self._header, self._status = TranscriptView(), Header(), StatusLine()
        self._strips: tuple[Panel, ...] = (GraphStrip(), TaskStrip())
        self._side, self._queue = SidePanels(), QueueView()
        file = None if home is None else home / "history.jsonl"
        self._prompt = Prompt(PromptHistory(file, _folder() if project is None else project))

    @property
    def cursor_position(self) -> Offset:
        """Where the terminal's own cursor is, for input methods: at the caret, wherever the layout has moved that."""
        focused = self.focused if self.is_running else None
        return focused.cursor_screen_offset if isinstance(focused, TextArea) else self._cursor

    @cursor_position.setter
    def cursor_position(self, offset: Offset) -> None:
        self._cursor = offset

    def compose(self) -> ComposeResult:
        """All there is; dialogs come and go above it."""
        yield self._header
        with Horizontal(id="body"):
            yield self._transcript
            yield self._side
        yield from self._strips
        yield self._queue
        yield self._prompt
        yield self._status

    def on_mount(self) -> None:
        """Show the empty screen; only then is the rest begun."""
        register(self)  # pyright: ignore[reportArgumentType]  # App is invariant in its result
        self._choose_theme()
        self._show(EVERYTHING)
        self.call_after_refresh(self._begin)

    def _begin(self) -> None:
        """The first picture is there."""
        self._watchdog.start()
        self._start(self._pump())

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; it is kept until it is done."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            compat.fail(self, error)

    def _end(self) -> None:
        """Nothing moves any more."""
        for timer in (self._timer, self._tick):
            if timer is not None:
                timer.cancel()
        self._watchdog.stop()
        for task in tuple(self._tasks):
            task.cancel()

    # -- news: state first, the picture when it is due

    async def _pump(self) -> None:
        async for news in self._link.news():
            self._hear(news)

    def _hear(self, news: News) -> None:
        """Keep news until there is time for them."""
        self._pending.append(news)
        if not self._is_taking:
            self._is_taking = True
            self.call_later(self._take_news)  # behind the keys that wait

    def _take_news(self) -> None:
        """Fold what waits into the state, for a moment; keys come in between."""
        self._watchdog.wake()
        waiting, self._pending = self._pending, deque()
        end = time.perf_counter() + SLICE
        rest = merged(waiting)
        for news in rest:
            self._apply(news)
            if time.perf_counter() > end:
                self._pending.extendleft(reversed(list(rest)))
                break
        self._is_taking = bool(self._pending)
        if self._is_taking:
            self.call_later(self._take_news)  # behind the keys that wait

    def _apply(self, news: News) -> None:
        self._mark(self.store.apply(news, time.time()))

    def _mark(self, changes: Changes) -> None:
        """Something is to be painted."""
        self._clock.mark(changes, self._monotonic())
        self._set_timer()

    def _set_timer(self) -> None:
        due = self._clock.next_frame()
        if due is None or self._timer is not None:
            return
        delay = max(0.0, due - self._monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay, self.call_later, self._frame)

    def _frame(self) -> None:
        self._timer = None
        changes = self._clock.take(self._monotonic())
        if changes:
            self._show(changes)
        self._set_timer()

    def _tick_once(self) -> None:
        self._tick = None
        if self.store.screen.is_busy:
            self._mark(_DURATIONS)

    # -- the picture

    def _show(self, changes: Changes) -> None:
        """Let the widgets read what has changed."""
        screen, now = self.store.screen, time.time()
        if changes & Changes.TRANSCRIPT or (changes & Changes.STATUS and is_welcome(screen)):  # it names the agent
            self._transcript.sync(screen, now)
        if changes & Changes.STATUS:
            self._header.sync(screen, now)
        if changes & _PANELS:
            self._show_panels()
        if changes & Changes.QUEUE:
            self._queue.show([queued.text for queued in screen.queue])
        self._status.sync(screen, now)
        self._follow_up(changes)
        if self._has_motion and self._tick is None and screen.is_busy:
            self._tick = asyncio.get_running_loop().call_later(TICK, self._tick_once)

    @property
    def columns(self) -> int:
        """How wide the screen is; a dialog above it may be narrower."""
        return self.screen_stack[0].size.width or self.size.width

    @property
    def rows(self) -> int:
        """How high the screen is."""
        return self.screen_stack[0].size.height or self.size.height

    def _panels(self) -> list[Panel]:
        return list(self._side.query(Panel))

    def _show_panels(self) -> None:
        """The panels: beside the transcript where there is room, else one line each, and one of them above it."""
        screen, now = self.store.screen, time.time()
        is_wide = self.columns >= WIDE
        any_shown = False
        for panel in self._panels():
            name = panel_name(panel)
            is_closed = (name in self._hidden) if is_wide else (name != self._overlay)
            panel.set_class(is_closed, "-closed")
            panel.sync(screen, now)
            any_shown = any_shown or (panel.has_something() and not is_closed)
        for strip in self._strips:
            strip.set_class(is_wide, "-closed")
            strip.sync(screen, now)
        self._side.set_class(not is_wide, "-overlay")
        self._side.share(self._transcript.size.height if is_wide else 0)
        self._side.display = any_shown
        self._status.is_covered = (any_shown and not is_wide) or self._way_back is not None
        self._transcript.display = is_wide or not any_shown

    def _follow_up(self, changes: Changes) -> None:
        """What a change brings with it besides the picture."""
        if changes & Changes.THEME:
            self._choose_theme(self.store.screen.theme)

    def _choose_theme(self, name: str = "") -> None:
        wanted = "" if self._no_color else name or self._theme
        few_colours = self._no_color or self.console.color_system == "standard"
        chosen = wanted or theme_for(self._background, few_colours=few_colours)
        full = textual_name(chosen)
        if full in self.available_themes:
            self.theme = full
        else:
            self.say(f'There is no theme "{shown_name(chosen)}"', severity="warning")

    def hear_background(self, colour: str) -> None:
        """The terminal has said late which colour is behind the text."""
        self._background = rgb_of(colour)
        if not self._theme and not self.store.screen.theme:
            self._choose_theme()

    def say(self, words: str, *, severity: Any = "information") -> None:
        """Say something beside the picture, for a moment."""
        self.notify(harmless(words), severity=severity, markup=False, timeout=4)


def is_still() -> bool:
    """Whether the person wants nothing to move."""
    return bool(os.environ.get("ATOMIC_REDUCED_MOTION")) or os.environ.get("TEXTUAL_ANIMATIONS") == "none"


def _folder() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""  # it was deleted under us


def panel_name(panel: Panel) -> str:
    """What keys and people call a panel."""
    return type(panel).__name__.removesuffix("Panel").lower()


def rgb_of(colour: str) -> tuple[int, int, int] | None:
    """A colour as a terminal tells it: `rgb:ffff/ffff/ffff`; None if it is none."""
    parts = colour.partition(":")[2].split("/")
    try:
        red, green, blue = (int(part[:2].ljust(2, part[:1] or "x"), 16) for part in parts)
    except ValueError:
        return None
    return red, green, blue
