"""Keys and pastes as terminals send them, parsed by the patched Textual."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events
from textual._xterm_parser import XTermParser

from atomic.tui import compat

compat.install()


def parsed(*pieces: str) -> list[str | tuple[str]]:
    """Parse input and return keys by name and pastes as tuples with their text."""
    parser = XTermParser()
    messages = [message for piece in (*pieces, "") for message in parser.feed(piece)]
    return [
        message.key if isinstance(message, events.Key) else (message.text,)
        for message in messages
        if isinstance(message, events.Key | events.Paste)
    ]


@pytest.mark.parametrize(
    ("sent", "key"),
    [
        ("\x1b\r", "alt+enter"),
        ("\x1b\n", "alt+enter"),
        ("\n", "ctrl+j"),
        ("\r", "enter"),
        ("\x1b[13;2u", "shift+enter"),  # kitty
        ("\x1b[27;2;13~", "shift+enter"),  # xterm and tmux
        ("\x1b[27;3;13~", "alt+enter"),
        ("\x1b[27;5;106~", "ctrl+j"),
        ("\x1b[99;133u", "ctrl+c"),  # with Num Lock
        ("\x1bb", "ctrl+left"),  # Alt+B as terminals send it
        ("\x1f", "ctrl+underscore"),
    ],
)
def test_every_encoding_of_a_key_is_known(sent: str, key: str) -> None:
    assert parsed(sent) == [key]


def test_lock_keys_type_nothing() -> None:
    assert parsed("a\x1b[57358u\x1b[57360;129ub") == ["a", "b"]


def test_a_paste_keeps_its_escape_characters() -> None:
    assert parsed("x\x1b[200~a\x1b[31m\x1b]0;t\x07\x00\r\nb\x1b[201~y") == [
        "x",
        ("a\x1b[31m\x1b]0;t\x07\x00\r\nb",),
        "y",
    ]


@given(st.text(max_size=40).filter(lambda text: "\x1b" not in text), st.lists(st.integers(1, 60), max_size=6))
def test_a_paste_may_arrive_in_any_pieces(text: str, cuts: list[int]) -> None:
    whole = f"a\x1b[200~{text}\x1b[201~b"
    borders = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[start:end] for start, end in itertools.pairwise(borders)]

    assert parsed(*pieces) == ["a", (text,), "b"]


def test_two_pastes_stay_separate() -> None:
    assert parsed("\x1b[200~one\x1b[201~\x1b[200~two\x1b[201~") == [("one",), ("two",)]


def test_an_unsupported_version_of_textual_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "BELOW", compat.OLDEST)
    compat.install.cache_clear()
    with pytest.raises(compat.TextualVersionError, match=r"not work with textual 8\..*'textual>=8\.2\.5,<8\.2\.5'"):
        compat.install()
    monkeypatch.undo()
    compat.install()


def test_the_supported_range_matches_the_package_metadata() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    oldest, below = (".".join(map(str, numbers)) for numbers in (compat.OLDEST, compat.BELOW))
    assert f"textual>={oldest},<{below}" in project["project"]["dependencies"]
