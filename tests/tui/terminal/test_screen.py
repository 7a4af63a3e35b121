"""The real screen in a real terminal, on a scripted engine."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from time import monotonic

import pytest

from tests.support.processes import is_alive
from tests.support.timing import judge
from tests.support.waits import wait_until
from tests.support.window import Window, cpu_seconds, tree, window
from tests.tui.terminal.conftest import ROOT, SCRIPTED

LAST_MESSAGE = "Resume with: atomic chat --resume 0f5e2c1a-scripted"


def test_a_turn_works_from_the_first_key_to_the_end(screen: Window) -> None:
    screen.type("hello\r")
    screen.shows("You said: hello")
    screen.type("tool\r")
    screen.shows("All tests pass.")
    screen.type("\x03\x03")
    assert screen.exit_code() == 0
    assert screen.modes_left() == set()
    assert screen.lines[0] == LAST_MESSAGE


def test_a_stream_never_clears_the_screen_and_frames_are_whole(screen: Window) -> None:
    screen.type("stream 300 0\r")
    screen.shows("STREAM-DONE")
    assert screen.emulator.clears == 0
    assert screen.emulator.frames > 0
    screen.wait(lambda: _is_between_frames(bytes(screen.log)), "end of the frame that was begun")


def _is_between_frames(log: bytes) -> bool:
    return log.count(b"\x1b[?2026h") == log.count(b"\x1b[?2026l")


def test_resizing_ends_in_a_complete_frame(screen: Window) -> None:
    screen.type("hello\r")
    screen.shows("You said: hello")
    for columns, rows in ((120, 40), (40, 12), (80, 24)):
        screen.resize(columns, rows)
        screen.wait(lambda: screen.emulator.lines[-2].startswith(" ›"), "prompt in its place")
        screen.shows("You said: hello")


@pytest.mark.timed
def test_an_idle_screen_writes_nothing(screen: Window) -> None:
    screen.type("hello\r")
    screen.shows("You said: hello")
    _wait_until_quiet(screen)
    began = len(screen.log)
    used = cpu_seconds(screen.children())
    os.kill(screen.process.pid, 0)
    _wait(3.0)
    assert bytes(screen.log[began:]) == b""
    judge(cpu_seconds(screen.children()) - used, 0.05)


def _wait_until_quiet(one: Window) -> None:
    """Wait until the screen has written nothing for a second."""
    seen = len(one.log)
    since = monotonic()
    while monotonic() - since < 1.0:
        _wait(0.05)
        if len(one.log) != seen:
            seen = len(one.log)
            since = monotonic()


def _wait(seconds: float) -> None:
    """Wait, where the test is about the passing of time."""
    signal.sigtimedwait([], seconds)


def test_a_killed_screen_leaves_no_engine_and_a_usable_terminal(screen: Window) -> None:
    screen.type("hang\r")
    screen.shows("I work and work.")
    child, *below = tree(screen.process.pid)[1:]
    assert below, "there must be an engine"
    os.kill(child, signal.SIGKILL)
    assert screen.exit_code() == 1
    assert screen.modes_left() == set()
    assert screen.lines[1] == "Resume with: atomic chat --resume 0f5e2c1a-scripted"
    wait_until(lambda: not any(map(is_alive, below)), "end of the engine")


def test_a_dead_engine_is_reported_and_the_next_prompt_starts_another(screen: Window) -> None:
    screen.type("die\r")
    screen.shows("SIGKILL")
    screen.type("again\r")
    screen.shows("You said: again")


def test_a_second_escape_abandons_an_engine_that_does_not_stop(screen: Window) -> None:
    screen.type("deaf\r")
    screen.shows("I work and work.")
    screen.type("\x1b")
    screen.wait(lambda: "stopping" in screen.emulator.text.lower(), "word that it stops")
    screen.type("\x1b")
    screen.wait(lambda: "stopping" not in screen.emulator.text.lower(), "end of it")
    screen.type("hello\r")
    screen.shows("You said: hello")


FULL = [pytest.param(moment, marks=pytest.mark.full) for moment in ("", "hang\r", "/", "@")]


@pytest.mark.timed
@pytest.mark.parametrize("moment", ["ask\r", "stream 2000 250\r", *FULL])
def test_ctrl_c_twice_leaves_at_any_moment(screen: Window, moment: str) -> None:
    screen.type(moment)
    if moment:
        screen.wait(lambda: screen.emulator.has(moment.strip()), "what was typed")
    below = tree(screen.process.pid)[1:]
    began = monotonic()
    screen.type("\x03\x03")
    assert screen.exit_code() in (0, 130)
    judge(monotonic() - began, 5)
    assert screen.modes_left() == set()
    wait_until(lambda: not any(map(is_alive, below)), "end of all processes")


def test_clearing_the_prompt_twice_with_letters_between_does_not_leave(screen: Window) -> None:
    screen.type("abc\x03def\x03")
    screen.type("hello\r")
    screen.shows("You said: hello")


@pytest.mark.parametrize(
    ("editor", "words"), [("false", "ended with 1"), pytest.param("/nowhere", "cannot be used", marks=pytest.mark.full)]
)
def test_the_screen_returns_after_an_editor_fails(env: dict[str, str], editor: str, words: str) -> None:
    with window(SCRIPTED, env=env | {"VISUAL": editor}, cwd=ROOT) as one:
        one.shows("opus")
        one.type("kept\x07")
        one.shows(words)
        one.type(" and sent\r")
        one.shows("You said: kept and sent")


def test_a_closed_window_leaves_no_process(screen: Window) -> None:
    screen.type("hang\r")
    screen.shows("I work and work.")
    below = tree(screen.process.pid)[1:]
    screen.hang_up()
    assert screen.process.wait(20) == 129
    wait_until(lambda: not any(map(is_alive, below)), "end of all processes")


def test_a_mistake_in_the_configuration_is_one_line(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / ".atomic").mkdir()
    (tmp_path / ".atomic" / "config.toml").write_text("agent = [\n")
    with window(SCRIPTED, env=env, cwd=ROOT) as one:
        assert one.exit_code() == 2
        assert "config.toml" in "".join(one.lines[:3])
        assert one.modes_left() == set()


def test_keys_sent_together_stay_in_order(screen: Window) -> None:
    screen.type("abc\x7f\x7fxyz\x1b[D\x1b[D--\r")
    screen.shows("You said: ax--yz")


def test_a_paste_and_the_keys_around_it_stay_in_order(screen: Window) -> None:
    screen.type("one \x1b[200~two\nthree\x1b[201~ four\r")
    screen.shows("You said: one two")
    screen.shows("three four")
