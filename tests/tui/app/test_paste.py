"""Pastes: a small one is text, a large one is a placeholder for its bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atomic.tui.widgets.prompt import Pastes, as_typed, is_big


def test_a_large_paste_becomes_one_placeholder() -> None:
    pastes = Pastes()
    word = pastes.add("line\n" * 214)

    assert word == "[Pasted 214 lines]"
    assert pastes.fill(f"look at {word}!") == "look at " + "line\n" * 214 + "!"


def test_pastes_of_the_same_size_have_different_placeholders() -> None:
    pastes = Pastes()
    one = pastes.add("a\n" * 20)
    two = pastes.add("b\n" * 20)

    assert (one, two) == ("[Pasted 20 lines]", "[Pasted 20 lines #2]")
    assert pastes.add("a\n" * 20) == one
    assert pastes.fill(two + one) == "b\n" * 20 + "a\n" * 20


def test_a_typed_placeholder_stays_text() -> None:
    pastes = Pastes()
    pastes.add("x" * 2000)

    assert pastes.fill("[Pasted 214 lines]") == "[Pasted 214 lines]"


def test_control_characters_never_reach_the_prompt() -> None:
    assert is_big("\x1b]0;title\x07")
    assert is_big("evil \u202e txt")
    assert not is_big("two\nlines\tand a tab")


def test_line_ends_are_as_they_were_copied() -> None:
    assert as_typed("a\rb\r") == "a\nb\n"  # as terminals send it
    assert as_typed("a\r\nb") == "a\r\nb"  # as in a file with such line ends


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.text())
def test_every_pasted_byte_is_sent(texts: list[str], around: str) -> None:
    pastes = Pastes()
    around = around.replace("[", "(")
    words = [pastes.add(text) for text in texts]

    assert pastes.fill(around.join(words)) == around.join(texts)


def test_a_placeholder_is_found_from_any_cursor_in_it_or_at_its_end() -> None:
    pastes = Pastes()
    word = pastes.add("x\n" * 30)
    line = f"a {word} b"

    assert pastes.span(line, 2 + len(word)) == (2, 2 + len(word))
    assert pastes.span(line, 5) == (2, 2 + len(word))
    assert pastes.span(line, 2) is None
    assert pastes.span(line, 3 + len(word)) is None


def test_a_text_from_the_editor_gets_its_placeholders_back() -> None:
    pastes = Pastes()
    word = pastes.add("x\n" * 30)

    assert pastes.shorten("before " + "x\n" * 30 + "after") == f"before {word}after"
    assert pastes.shorten("y" * 3000) == "[Pasted 3,000 characters]"
