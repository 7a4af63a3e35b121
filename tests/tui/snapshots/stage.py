"""Plays states on the screen, one app for each size and theme, and takes what it shows. No clock, nothing moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.pilot import Pilot
from textual.screen import Screen as TextualScreen
from textual.widgets import Static

from atomic.tui.state.model import Screen
from atomic.tui.themes import register, textual_name
from atomic.tui.widgets.graph import GraphStrip
from atomic.tui.widgets.header import Header
from atomic.tui.widgets.side import SidePanels
from atomic.tui.widgets.status import StatusLine
from atomic.tui.widgets.tasks import TaskStrip
from tests.tui.snapshots.frames import Frame, frame_of

SMALL, NORMAL, LARGE = "40x12", "80x24", "120x40"
SIZES = (SMALL, NORMAL, LARGE)
NOW = 10_000.0


@dataclass(frozen=True)
class State:
    """A moment: what the screen knows, what is open above it, and the keys that were pressed then."""

    name: str
    screen: Callable[[], Screen]
    dialog: Callable[[], TextualScreen[Any]] | None = None
    keys: tuple[str, ...] = ()
    sizes: tuple[str, ...] = (NORMAL, LARGE)
    themes: tuple[str, ...] = ("dark", "light")


class Stage(App[object]):
    """The panels as the app arranges them."""

    CSS = """
    #transcript { width: 1fr; color: $text-muted; padding: 1; }
    .-slim SidePanels { display: none; }
    .-broad GraphStrip, .-broad TaskStrip { display: none; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-slim"), (100, "-broad")]
    ENABLE_COMMAND_PALETTE = False

    def compose(self) -> ComposeResult:
        yield Header()
        with Horizontal():
            yield Static("transcript", id="transcript", markup=False)
            yield SidePanels()
        yield GraphStrip()
        yield TaskStrip()
        yield StatusLine()

    def play(self, screen: Screen) -> None:
        for reader in (Header, SidePanels, GraphStrip, TaskStrip, StatusLine):
            self.screen_stack[0].query_one(reader).sync(screen, NOW)


async def frames_of(states: Sequence[State], size: str) -> AsyncIterator[tuple[State, dict[str, Frame]]]:
    """Each state in its themes, in this size."""
    taken: dict[str, dict[str, Frame]] = {state.name: {} for state in states}
    for theme in dict.fromkeys(theme for state in states for theme in state.themes):
        app = Stage(ansi_color=True if theme == "ansi" else None)
        register(app)
        app.theme = textual_name(theme)
        columns, rows = map(int, size.split("x"))
        async with app.run_test(size=(columns, rows)) as pilot:
            for state in states:
                if theme in state.themes:
                    taken[state.name][theme] = await _frame(app, pilot, state)
    for state in states:
        yield state, taken[state.name]


async def _frame(app: Stage, pilot: Pilot[object], state: State) -> Frame:
    app.play(state.screen())
    await pilot.pause()
    if state.dialog is not None:
        await app.push_screen(state.dialog())
        await pilot.pause()
    await pilot.press(*state.keys)
    await pilot.pause()
    frame = frame_of(app)
    while len(app.screen_stack) > 1:
        await app.pop_screen()
    return frame
