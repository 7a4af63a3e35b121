"""Show states on the real screen and capture its frames, with a frozen clock.

One app per size and theme shows all states.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from textual.events import Paste
from textual.pilot import Pilot
from textual.screen import Screen as TextualScreen

from atomic.tui import app as app_module
from atomic.tui.app import AtomicApp
from atomic.tui.state.model import EVERYTHING, Screen
from atomic.tui.state.store import Store
from tests.tui.app.scripted_client import ScriptedClient, app_with
from tests.tui.snapshots.frames import Frame, frame_of

SMALL = "40x12"
NORMAL = "80x24"
LARGE = "120x40"
SIZES = (SMALL, NORMAL, LARGE)
NOW = 10_000.0


@dataclass(frozen=True)
class State:
    """A screen state, the dialog above it, and the keys pressed then."""

    name: str
    screen: Callable[[], Screen]
    dialog: Callable[[], TextualScreen[Any]] | None = None
    keys: tuple[str, ...] = ()
    paste: str = ""
    # The panel that covers a narrow screen.
    overlay: str = ""
    # Changes the store after dialog, keys and paste.
    later: Callable[[Store], None] | None = None
    sizes: tuple[str, ...] = (NORMAL, LARGE)
    themes: tuple[str, ...] = ("dark", "light")

    def themes_in(self, size: str) -> tuple[str, ...]:
        """Return the themes to capture: all at the normal size, fewer at the others."""
        wanted = {SMALL: ("dark",), NORMAL: self.themes, LARGE: ("dark", "light")}[size]
        return tuple(theme for theme in wanted if theme in self.themes)


_block_ids = count(1)


async def frames_of(states: Sequence[State], size: str) -> AsyncIterator[tuple[State, dict[str, Frame]]]:
    """Yield each state with its frames, one per theme, at this size."""
    taken: dict[str, dict[str, Frame]] = {state.name: {} for state in states}
    columns, rows = map(int, size.split("x"))
    for theme in dict.fromkeys(theme for state in states for theme in state.themes_in(size)):
        with _frozen_clock():
            app = app_with(ScriptedClient(), theme=theme)
            async with app.run_test(size=(columns, rows)) as pilot:
                for state in states:
                    if theme in state.themes_in(size):
                        taken[state.name][theme] = await _capture(app, pilot, state)
    for state in states:
        yield state, taken[state.name]


@contextmanager
def _frozen_clock() -> Generator[None]:
    """Freeze the clock of the screen, but not the clock of asyncio."""
    frozen = SimpleNamespace(time=lambda: NOW, monotonic=lambda: NOW, perf_counter=lambda: NOW)
    with patch.object(app_module, "time", frozen), _NO_PAINTING:
        yield


def _discard_dirty_regions(screen: TextualScreen[Any]) -> None:
    screen._compositor._dirty_regions.clear()  # pyright: ignore[reportPrivateUsage]


# Frames between the states are not needed, so painting happens only on capture.
_NO_PAINTING = patch.object(TextualScreen, "_compositor_refresh", _discard_dirty_regions)


async def _capture(app: AtomicApp, pilot: Pilot[Any], state: State) -> Frame:
    await _clear(app, pilot)
    screen = state.screen()
    for block in screen.blocks:
        # Painted blocks are cached by id, so each state needs new ids.
        block.id = next(_block_ids)
    app.store = Store(screen)
    app.panels.overlay = state.overlay
    if state.keys[:1] == ("/",):
        await app.learn_commands()
    await _show(app, pilot)
    if state.dialog or state.keys or state.paste:
        await _act(app, pilot, state)
        await _show(app, pilot)
    if state.later:
        state.later(app.store)
        await _show(app, pilot)
    return frame_of(app)


async def _settle(pilot: Pilot[Any]) -> None:
    """Wait until all widgets have handled their messages, without a timer."""
    for _ in range(3):
        await pilot._wait_for_screen(timeout=30)  # pyright: ignore[reportPrivateUsage]
        pilot.app.screen._on_timer_update()  # pyright: ignore[reportPrivateUsage]
    await pilot._wait_for_screen(timeout=30)  # pyright: ignore[reportPrivateUsage]


async def _show(app: AtomicApp, pilot: Pilot[Any]) -> None:
    # No dialog opens by itself while the user types.
    app.last_key = float("inf")
    app.show(EVERYTHING)
    await _settle(pilot)


async def _act(app: AtomicApp, pilot: Pilot[Any], state: State) -> None:
    if state.dialog is not None:
        await app.push_screen(state.dialog())
        await _settle(pilot)
    if state.paste:
        app.post_message(Paste(state.paste))
        await _settle(pilot)
    if state.keys:
        await pilot.press(*state.keys)


async def _clear(app: AtomicApp, pilot: Pilot[Any]) -> None:
    while len(app.screen_stack) > 1:
        await app.pop_screen()
    app.store = Store(Screen())
    app.prompt.clear()
    app.status.say()
    app.clear_notifications()
    app.panels.overlay = ""
    app.show(EVERYTHING)
    # Each state starts from the same empty screen.
    await _settle(pilot)
