"""A text from outside is only shown and never controls the terminal."""

from __future__ import annotations

import pytest

from atomic.tui.text import harmless, one_line
from tests.tui.hostile import vectors
from tests.tui.terminal_effects import effects

VECTORS = vectors()


def test_hostile_texts_affect_an_unprotected_terminal() -> None:
    assert len(VECTORS) >= 300
    assert sum(bool(effects(text)) for text in VECTORS) > 100


def test_no_hostile_text_has_an_effect() -> None:
    for text in VECTORS:
        for shown in (harmless(text), one_line(text)):
            assert effects(shown) == [], repr(text)
            assert "\n" not in one_line(text), repr(text)
            shown.encode("utf-8")
            assert all(char == "\n" or char.isprintable() for char in shown), repr(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text", "plain text"),
        ("a\x1b[31mb", "a␛[31mb"),
        ("x\x7f\x00", "x␡␀"),
        ("a\r\nb\rc", "a\nb␍c"),
        ("\tx\ta", "    x   a"),
        ("user\u202enimda", "user\ufffdnimda"),
        ("pass\u200bword", "pass\ufffdword"),
        ("日本語 naïve ok", "日本語 naïve ok"),
        ("e" + "\u0301" * 9, "e" + "\u0301" * 3 + "\ufffd"),
        ("\u0301x", "◌\u0301x"),
        ("☑\ufe0f", "☑"),
        ("x\ufe0f", "x\ufffd"),
        ("\ud800", "\ufffd"),
    ],
)
def test_control_characters_are_shown_as_visible_ones(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_cleaning_a_text_twice_changes_nothing() -> None:
    for text in VECTORS:
        assert harmless(harmless(text)) == harmless(text)
