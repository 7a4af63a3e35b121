"""However the screen ends, the terminal is restored and prints how to resume."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from time import monotonic

import pytest

from tests.support.processes import is_alive
from tests.support.timing import judge
from tests.support.waits import wait_until
from tests.support.window import ROOT, Window, tree, window

SMALL = (sys.executable, "-m", "tests.tui.terminal.small_screen")


@pytest.fixture
def small(env: dict[str, str]) -> Iterator[Window]:
    """Start the small screen and wait until it is ready."""
    with window(SMALL, env=env, cwd=ROOT) as one:
        one.shows("READY")
        yield one


def assert_restored(one: Window) -> None:
    assert one.modes_left() == set()
    assert one.emulator.keyboard == []
    assert one.emulator.other_keys == 0
    assert one.emulator.attributes_are_plain
    assert one.terminal_attributes() == one.before
    assert one.unread() == 0


def screen_pid(one: Window) -> int:
    (screen,) = tree(one.process.pid)[1:]
    return screen


def test_a_normal_exit_prints_the_last_message(small: Window) -> None:
    small.type("exit\r")
    assert small.exit_code() == 0
    assert_restored(small)
    assert small.lines[:2] == ["Closed normally.", "Resume with: atomic chat --resume xyz"]


@pytest.mark.full
def test_the_exit_code_comes_from_the_screen(small: Window) -> None:
    small.type("code\r")
    assert small.exit_code() == 5
    assert_restored(small)


def test_a_crash_prints_one_line_and_how_to_resume(small: Window) -> None:
    small.type("exception\r")
    assert small.exit_code() == 1
    assert_restored(small)
    assert small.lines[0] == "atomic: the screen failed: RuntimeError: boom (ATOMIC_DEBUG=1 shows where)"
    assert small.lines[1] == "Resume with: atomic chat --resume abc"


@pytest.mark.full
def test_a_full_traceback_is_printed_on_request(env: dict[str, str]) -> None:
    with window(SMALL, env=env | {"ATOMIC_DEBUG": "1"}, cwd=ROOT, rows=60) as one:
        one.shows("READY")
        one.type("exception\r")
        assert one.exit_code() == 1
        assert "small_app.py" in one.text


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGSEGV, marks=pytest.mark.full)])
def test_a_killed_screen_leaves_the_terminal_clean(small: Window, number: signal.Signals) -> None:
    assert {1000, 1003, 1006, 2004, 1049} <= small.emulator.modes, "the modes must have been on"
    os.kill(screen_pid(small), number)
    # The terminal reports mouse moves until mouse mode is off.
    small.type("\x1b[<35;10;10M\x1b[<35;11;10M")
    assert small.exit_code() == 1
    assert_restored(small)
    assert small.lines[:2] == [
        f"atomic: the screen was ended by {number.name}",
        "Resume with: atomic chat --resume abc",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_to_the_supervisor_ends_the_screen_normally(small: Window, number: signal.Signals) -> None:
    screen = screen_pid(small)
    small.process.send_signal(number)
    assert small.exit_code() == 128 + number
    assert_restored(small)
    assert not is_alive(screen)
    assert small.lines[0] == "Resume with: atomic chat --resume abc"


@pytest.mark.full
def test_a_signal_to_the_screen_ends_it(small: Window) -> None:
    os.kill(screen_pid(small), signal.SIGTERM)
    assert small.exit_code() == 143
    assert_restored(small)


def test_closing_the_window_ends_all_processes(small: Window) -> None:
    screen = screen_pid(small)
    small.hang_up()
    assert small.process.wait(20) == 129
    assert not is_alive(screen)


def test_the_screen_restores_the_terminal_if_the_supervisor_is_killed(env: dict[str, str]) -> None:
    shell = ("sh", "-c", f"{' '.join(SMALL)}; exec sed -u 's/^/the shell got: /'")
    with window(shell, env=env, cwd=ROOT) as one:
        one.shows("READY")
        supervisor, screen = tree(one.process.pid)[1:]
        os.kill(supervisor, signal.SIGKILL)
        one.shows("atomic chat --resume abc")
        wait_until(lambda: not is_alive(screen), "end of the screen")
        assert_restored(one)
        one.type("hello\r")
        one.shows("the shell got: hello")


@pytest.mark.timed
def test_ctrl_c_twice_leaves_even_if_the_event_loop_is_blocked(small: Window) -> None:
    small.type("stuck\r")
    small.shows("STUCK")
    screen = screen_pid(small)
    wait_until(lambda: _is_sleeping(screen), "sleep")
    began = monotonic()
    small.type("\x03\x03")
    assert small.exit_code() == 130
    judge(monotonic() - began, 3)
    assert_restored(small)
    assert small.lines[0] == "atomic: the screen did not answer and was ended"


def _is_sleeping(pid: int) -> bool:
    """Return whether the event loop is in `time.sleep`, its only use of nanosleep."""
    return "nanosleep" in Path(f"/proc/{pid}/wchan").read_text()


@pytest.mark.full
def test_a_signal_ends_a_blocked_event_loop(small: Window) -> None:
    small.type("stuck\r")
    small.shows("STUCK")
    small.process.terminate()
    assert small.exit_code() == 143
    assert_restored(small)


def test_suspending_returns_the_terminal_to_the_shell(env: dict[str, str]) -> None:
    with window(("bash", "--norc", "-i"), env=env | {"PS1": "bash> "}, cwd=ROOT) as one:
        one.shows("bash> ")
        one.type(f"{' '.join(SMALL)}\r")
        one.shows("READY")
        one.type("suspend\r")
        one.shows("Stopped")
        assert 1049 not in one.emulator.modes
        one.type("fg\r")
        one.shows("READY")
        one.type(" and on\r")
        one.shows("GOT suspend and on")
        one.type("\x03\x03")
        one.shows("did not answer")  # the small app ignores Ctrl+C
        one.wait(lambda: one.modes_left() <= {2004}, "modes but the shell's own")
