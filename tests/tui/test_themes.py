"""The four themes are readable, and one is chosen to fit the terminal."""

from __future__ import annotations

from itertools import product

import pytest
from textual.app import App
from textual.color import Color

from atomic.questions import Question
from atomic.tui.screens.question import QuestionScreen
from atomic.tui.state.model import QuestionEntry
from atomic.tui.themes import (
    NAMES,
    THEMES,
    WRITTEN_ON,
    WRITTEN_WITH,
    contrast,
    register,
    shown_name,
    textual_name,
    theme_for,
)
from tests.tui.snapshots.frames import frame_of


def _colour(name: str, variable: str) -> tuple[int, int, int]:
    return Color.parse(THEMES[name].to_color_system().generate()[variable]).rgb


@pytest.mark.parametrize(("name", "least"), [("dark", 4.5), ("light", 4.5), ("contrast", 7.0)])
def test_every_text_colour_is_readable_on_every_background(name: str, least: float) -> None:
    pairs = {
        (ink, paper): contrast(_colour(name, ink), _colour(name, paper))
        for ink, paper in product(WRITTEN_WITH, WRITTEN_ON)
    }
    pairs["text", "input-selection-background"] = contrast(
        _colour(name, "input-selection-foreground"), _colour(name, "input-selection-background")
    )
    pairs["cursor"] = contrast(_colour(name, "input-cursor-foreground"), _colour(name, "input-cursor-background"))  # type: ignore[index]
    assert {pair: round(value, 2) for pair, value in pairs.items() if value < least} == {}


def test_contrast_follows_the_wcag_formula() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21.0)
    assert contrast((119, 119, 119), (255, 255, 255)) == pytest.approx(4.48, abs=0.01)


def test_ansi_leaves_all_colours_to_the_terminal() -> None:
    colours = THEMES["ansi"].to_color_system().generate()
    used = {name: colours[name] for name in (*WRITTEN_WITH, *WRITTEN_ON, "block-cursor-foreground", "border")}
    assert {name: value for name, value in used.items() if not value.startswith(("ansi_", "transparent"))} == {}
    assert {colours[name] for name in WRITTEN_ON} == {"ansi_default", "transparent"}
    assert colours["block-cursor-text-style"] == "reverse"


@pytest.mark.parametrize(
    ("background", "few_colours", "name"),
    [
        (None, False, "dark"),
        ((0, 0, 0), False, "dark"),
        ((40, 44, 52), False, "dark"),
        ((0, 43, 54), False, "dark"),  # Solarized dark
        ((253, 246, 227), False, "light"),  # Solarized light
        ((255, 255, 255), False, "light"),
        ((255, 255, 255), True, "ansi"),
        (None, True, "ansi"),
    ],
)
def test_the_theme_follows_the_terminal(background: tuple[int, int, int] | None, few_colours: bool, name: str) -> None:
    assert theme_for(background, few_colours=few_colours) == name


def test_theme_names_are_translated_for_textual() -> None:
    assert tuple(THEMES) == NAMES
    assert [shown_name(textual_name(name)) for name in NAMES] == list(NAMES)
    assert textual_name("atomic-light") == "atomic-light"


async def test_without_colours_the_chosen_row_is_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    app = App[object](ansi_color=True)
    register(app)
    app.theme = textual_name(theme_for(None, few_colours=True))
    async with app.run_test(size=(60, 12)) as pilot:
        question = Question("Which?", options=("one", "two"), default="two")
        await app.push_screen(QuestionScreen([QuestionEntry("q", "r", question)]))
        await pilot.pause()
        frame = frame_of(app)
    rows = {text: at for at, row in enumerate(frame.letters) for text in ("one", "two") if text in "".join(row)}
    looks = {text: {look.signs for look in frame.looks[at][2:-2]} for text, at in rows.items()}
    assert looks["two"] == {"reverse"}
    assert "reverse" not in looks["one"]
    assert {(look.foreground, look.background) for row in frame.looks for look in row} == {("default", "default")}
