"""Atomic between other programs: pipes, a reader that leaves, no colour, no terminal."""

from __future__ import annotations

import json

import pytest

from tests.journeys.conftest import Newcomer
from tests.support.user_workflows import call, end, recording, text
from tests.support.window import window

pytestmark = pytest.mark.full


@pytest.fixture
def newcomer(newcomer: Newcomer) -> Newcomer:
    """Return a newcomer with an agent that answers with three lines."""
    lines = ("one\n", "two\n", "three")
    newcomer.env["ATOMIC_AGENT"] = recording(newcomer, call(*map(text, lines), end("".join(lines))))
    newcomer.makes_repository()
    return newcomer


def test_a_prompt_from_a_pipe_and_an_answer_into_one(newcomer: Newcomer) -> None:
    done = newcomer.types("echo hello | atomic -p | tr a-z A-Z")
    assert (done.returncode, done.stdout, done.stderr) == (0, "ONE\nTWO\nTHREE\n", "")
    done = newcomer.types("atomic -p hello --json | tail -n 1")
    assert json.loads(done.stdout)["reason"] == "done"


@pytest.mark.parametrize("line", ["atomic -p hello", "atomic --help", "atomic workflows", "atomic sessions --json"])
def test_a_reader_that_leaves_is_no_error(newcomer: Newcomer, line: str) -> None:
    done = newcomer.types(f'{line} | head -n 1 >&2; echo "${{PIPESTATUS[0]}}"')
    assert done.stdout == "0\n", done.stderr
    assert len(done.stderr.splitlines()) <= 1, done.stderr


def test_no_escape_sequence_without_a_terminal(newcomer: Newcomer) -> None:
    for line in ("atomic doctor", "atomic --help", "atomic workflows", "atomic -p hello", "atomic run"):
        done = newcomer.types(line)
        assert "\x1b" not in done.stdout + done.stderr, line
    # The screen needs a terminal, so one line has the commands that do not.
    refused = newcomer.types("atomic")
    assert refused.returncode == 2
    assert "atomic -p" in refused.stderr


def test_no_color_is_respected_in_a_terminal(newcomer: Newcomer) -> None:
    env = {**newcomer.env, "NO_COLOR": "1"}
    for words in (("doctor",), ("-p", "hello")):
        with window((newcomer.program, *words), env=env, cwd=newcomer.project, columns=120) as screen:
            screen.exit_code()
            assert b"\x1b[3" not in bytes(screen.log), words
            assert b"\x1b[1;3" not in bytes(screen.log), words
