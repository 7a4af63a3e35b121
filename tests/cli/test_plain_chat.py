"""`atomic chat --plain`: a conversation as plain lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.cli.plain_chat import answers_of, question_lines, split_paragraphs
from atomic.questions import Question
from tests.support.waits import wait_until
from tests.support.window import ROOT, Window, terminal_environment, window

PLAIN = (sys.executable, "-m", "tests.cli.scripted_plain")


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    return terminal_environment(tmp_path)


@pytest.fixture
def plain(env: dict[str, str]) -> Iterator[Window]:
    with window(PLAIN, env=env, cwd=ROOT) as one:
        one.shows("agent: claude opus")
        yield one


def test_a_conversation_is_printed_as_lines(plain: Window) -> None:
    plain.type("hello\n")
    plain.shows("You said: hello")
    plain.type("tool\n")
    plain.shows("tool: Bash pytest -q")
    plain.shows("tool: Bash done")
    plain.shows("All tests pass.")
    plain.type("ask\n")
    plain.shows("worker asks: Which branch?")
    plain.shows("2. develop")
    plain.type("2\n")
    plain.shows("Answered: develop")
    plain.type("\x04")
    assert plain.exit_code() == 0
    plain.shows("Resume with: atomic chat --resume")
    assert b"\x1b" not in plain.log, "nothing moves, nothing is coloured"


def test_a_line_typed_during_a_turn_is_sent_afterwards(plain: Window) -> None:
    plain.type("ask\n")
    plain.shows("2. develop")
    plain.type("main\n")
    plain.shows("Answered: main")
    plain.type("stream 40 100\nnext\n")
    plain.shows("You said: next")
    text = bytes(plain.log).decode()
    assert text.index("STREAM-DONE") < text.index("You said: next")


def test_ctrl_c_stops_the_turn_and_a_second_one_leaves(plain: Window) -> None:
    plain.type("hang\n")
    plain.shows("I work and work.")
    plain.type("\x03")
    plain.shows("interrupted")
    plain.type("deaf\n")
    wait_until(lambda: plain.text.count("I work and work.") == 2, "the second turn")
    plain.type("\x03")
    wait_until(lambda: plain.text.count("Ctrl+C once more leaves") == 2, "the second stop")
    plain.type("\x03")
    assert plain.exit_code() == 128 + signal.SIGINT
    assert plain.terminal_attributes() == plain.before


def test_prompts_can_come_from_a_pipe(env: dict[str, str]) -> None:
    done = subprocess.run(
        PLAIN, env=env, cwd=ROOT, input="one\ntwo\n", capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("You said: one") < done.stdout.index("You said: two")


def test_piped_lines_answer_questions_in_order(env: dict[str, str]) -> None:
    lines = "ask\n2\npick\n2\npick\nnext\nask\n"
    done = subprocess.run(
        PLAIN, env=env, cwd=ROOT, input=lines, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = ("Answered: develop", "Picked: light", "You said: next", "Which branch?", "Resume with:")
    positions = [done.stdout.rindex(words) for words in expected]
    assert positions == sorted(positions), done.stdout


def test_a_dumb_terminal_gets_plain_mode(env: dict[str, str], tmp_path: Path) -> None:
    atomic = (sys.executable, "-m", "atomic")
    with window(atomic, env=env | {"TERM": "dumb"}, cwd=tmp_path) as one:
        one.shows("type a line and press Enter")
        one.type("\x04")
        assert one.exit_code() == 0
        assert b"\x1b" not in one.log


def test_a_plain_screen_has_no_theme(env: dict[str, str]) -> None:
    done = subprocess.run(
        (sys.executable, "-m", "atomic", "chat", "--plain", "--theme", "dark"),
        env=env | {"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "atomic: --plain has no colours: leave --theme out\n")


@given(st.lists(st.sampled_from(["word", "\n", "\n\n", "```\n", "a b", "~~~\n", "  "]), max_size=20))
def test_paragraphs_lose_nothing_but_blank_lines(parts: list[str]) -> None:
    text = "".join(parts)
    whole, rest = split_paragraphs(text)
    assert [line for line in "\n".join([*whole, rest]).split("\n") if line] == [
        line for line in text.split("\n") if line
    ]


def test_a_fence_is_one_paragraph() -> None:
    assert split_paragraphs("a\n\n```\nx\n\ny\n```\n\nb") == (["a", "```\nx\n\ny\n```"], "b")


@pytest.mark.parametrize(
    ("line", "answers"),
    [("1", ("main",)), ("2", ("other",)), ("3", ("3",)), ("mine", ("mine",)), ("", ("main",)), (" 2 ", ("other",))],
)
def test_a_line_answers_a_question(line: str, answers: tuple[str, ...]) -> None:
    assert answers_of(Question("Which?", options=("main", "other"), default="main"), line) == answers


def test_several_numbers_are_several_answers() -> None:
    question = Question("Which?", options=("a", "b", "c"), multi_select=True)
    assert answers_of(question, "3, 1,3") == ("c", "a")
    assert answers_of(question, "") is None
    assert question_lines(question, "")[-1] == "type numbers with commas"
