"""The screen in tmux: line breaks, sizes, pastes and the return to the shell."""

from __future__ import annotations

import re

import pytest

from tests.support.tmux import Tmux, in_tmux
from tests.tui.terminal.conftest import ROOT, SCRIPTED

pytestmark = pytest.mark.ci

PROMPT = re.compile(r"─{20,}\n(.*?)\n[^\n]*(?:send|\Z)", re.DOTALL)


def prompt_of(tmux: Tmux) -> list[str]:
    """Return the lines of the prompt."""
    text = tmux.text
    found = PROMPT.search(text)
    assert found is not None, text
    return [line.lstrip(" ›").rstrip() for line in found[1].split("\n")]


def test_keys_that_insert_a_line_break(env: dict[str, str]) -> None:
    with in_tmux(SCRIPTED, env=env, cwd=ROOT) as tmux:
        tmux.shows("opus")
        tmux.type("first")
        for number, key in enumerate(("M-Enter", "C-j", "S-Enter")):
            tmux.keys(key)
            tmux.type(f"line {number}")
            tmux.shows(f"line {number}")
        assert prompt_of(tmux) == ["first", "line 0", "line 1", "line 2"]
        tmux.keys("Enter")
        tmux.shows("You said: first")


def test_a_conversation_in_tmux(env: dict[str, str]) -> None:
    with in_tmux(SCRIPTED, env=env, cwd=ROOT) as tmux:
        tmux.shows("opus")
        tmux.type("stream 100 0")
        tmux.keys("Enter")
        tmux.shows("STREAM-DONE")
        tmux.resize(120, 40)
        tmux.shows("STREAM-DONE")
        tmux.paste("pasted line one\nline two")
        tmux.shows("line two")
        tmux.keys("Enter")
        tmux.shows("You said: pasted line one")
        tmux.keys("C-c", "C-c")
        text = tmux.shows("EXIT CODE 0")
        assert "atomic chat --resume" in text
        tmux.type("the shell is back")
        tmux.shows("the shell is back")
