"""No text from outside does anything to a terminal but stand there."""

from __future__ import annotations

import pytest

from atomic.tui.text import harmless, one_line
from tests.tui.hostile import vectors
from tests.tui.terminal_effects import effects

VECTORS = vectors()


def test_there_are_enough_of_them_and_they_do_something_if_they_are_let() -> None:
    assert len(VECTORS) >= 300
    assert sum(bool(effects(text)) for text in VECTORS) > 100


@pytest.mark.parametrize("text", VECTORS, ids=range(len(VECTORS)))
def test_a_hostile_text_has_no_effect(text: str) -> None:
    for shown in (harmless(text), one_line(text)):
        assert effects(shown) == []
        assert "\n" not in one_line(text)
        shown.encode("utf-8")
        assert all(char == "\n" or char.isprintable() for char in shown)


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
def test_what_is_seen_instead(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_harmless_text_stays_as_it_is_when_it_is_made_harmless_again() -> None:
    for text in VECTORS:
        assert harmless(harmless(text)) == harmless(text)
