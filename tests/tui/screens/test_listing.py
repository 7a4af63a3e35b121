"""The pickers, the help, the palette and the list of keys."""

from __future__ import annotations

from typing import Any

import pytest
from textual.app import App
from textual.events import Paste
from textual.screen import Screen

from atomic.chat.protocol import CommandInfo, PickRow
from atomic.tui.screens.lists import HelpScreen, KeysScreen, PaletteScreen, PickScreen, command_rows, matching
from atomic.tui.text import short_hint
from atomic.tui.themes import register, textual_name
from tests.tui.snapshots import samples
from tests.tui.snapshots.frames import frame_of

ACTIONS = [("tasks", "Show the tasks", "Ctrl+T"), ("model", "Choose a model", "F2")]


class _EmptyApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        register(self)  # pyright: ignore[reportArgumentType]
        self.theme = textual_name("dark")


async def test_keys_choose_a_row() -> None:
    cases: list[tuple[Screen[Any], tuple[str, ...], object]] = [
        (PickScreen(samples.models()), ("enter",), "claude/opus"),  # the cursor is on the current row
        (PickScreen(samples.models()), ("down", "enter"), "claude/sonnet"),
        (PickScreen(samples.models()), ("up", "enter"), "opencode/qwen"),  # wraps around
        (PickScreen(samples.models()), ("escape",), None),
        (PickScreen(samples.models()), (*"hai", "enter"), "claude/haiku"),
        (PickScreen(samples.models()), (*"soneet", "enter"), "claude/sonnet"),  # a typing mistake
        (PickScreen(samples.models()), (*"zzz", "enter", "backspace", "ctrl+u", "enter"), "claude/opus"),
        (PickScreen(samples.sessions()), ("pagedown", "pagedown", "pagedown", "pagedown", "enter"), "id59"),
        (PickScreen(samples.servers()), ("down", "enter"), "postgres"),
        (HelpScreen(samples.COMMANDS), (*"compact", "enter"), "compact"),
        (PaletteScreen(samples.COMMANDS, ACTIONS), ("enter",), "tasks"),
        (PaletteScreen(samples.COMMANDS, ACTIONS), (*"ralph", "enter"), "/ralph"),
        (KeysScreen(samples.KEYS), ("down", "pagedown", "enter", "escape"), None),
    ]
    taken: list[object] = []
    app = _EmptyApp()
    async with app.run_test(size=(80, 24)) as pilot:
        for screen, keys, _ in cases:
            await app.push_screen(screen, taken.append)
            await pilot.press(*keys)
            await pilot.pause()
    assert taken == [expected for _, _, expected in cases]


async def test_a_theme_is_previewed_under_the_cursor() -> None:
    app = _EmptyApp()
    taken: list[str | None] = []
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(PickScreen(samples.themes()), taken.append)
        await pilot.press("down")
        assert app.theme == "atomic-light"
        await pilot.press("down", "down")
        assert app.theme == "atomic-contrast"
        await pilot.press("escape")
        assert app.theme == "atomic-dark"
        await app.push_screen(PickScreen(samples.themes()), taken.append)
        await pilot.press("down", "enter")
        await pilot.pause()
        assert app.theme == "atomic-light"
    assert taken == [None, "light"]


async def test_a_paste_filters_and_a_click_chooses() -> None:
    app = _EmptyApp()
    taken: list[str | None] = []
    async with app.run_test(size=(80, 24)) as pilot:
        await app.push_screen(PickScreen(samples.models()), taken.append)
        app.post_message(Paste("qwen\n"))
        await pilot.pause()
        rows = frame_of(app).text.splitlines()
        assert "1 of 6" in "".join(rows)
        await pilot.click(offset=(8, next(at for at, row in enumerate(rows) if "128k" in row)))
    assert taken == ["opencode/qwen"]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("", [0, 1, 2, 3]),
        ("mod", [1, 0]),  # prefixes come first
        ("MODEL pick", [1]),
        ("modle", [0, 1]),
        ("xq", []),
    ],
)
def test_a_filter_finds_rows_best_first(words: str, found: list[int]) -> None:
    assert matching(words, ["/change the model", "/model pick one", "/theme", "/clear"]) == found


def test_commands_are_grouped_and_hidden_ones_left_out() -> None:
    commands = [
        CommandInfo("b", "", "agent"),
        CommandInfo("a", "does a", "builtin", ("x", "y"), "select | refresh | list [provider]"),
        CommandInfo("c", "", "workflow"),
        CommandInfo("d", "", "skill", hidden=True),
        CommandInfo("e", "", "command"),
    ]
    assert command_rows(commands) == [
        PickRow("a", "/a select | refresh | l...", "does a (also /x, /y)", "Slash Commands"),
        PickRow("e", "/e", "", "Slash Commands"),
        PickRow("c", "/c", "", "Workflows"),
        PickRow("b", "/b", "", "Sub-Agents"),
    ]


def test_hints_are_shortened_as_in_the_list_of_the_prompt() -> None:
    assert short_hint("x" * 23) == "x" * 23
    assert short_hint("x" * 24) == "x" * 20 + "..."
