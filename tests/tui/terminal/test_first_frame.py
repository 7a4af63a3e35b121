"""The first frame appears at once and fits, and early keys are kept."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.tui.driver import BackgroundFilter
from atomic.tui.main import HINT, first_frame
from tests.support.emulator import Emulator
from tests.support.window import ROOT, window
from tests.tui.terminal.test_supervisor import SMALL


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (120, 40), (40, 12), (200, 60), (12, 4), (3, 2), (1, 1)])
def test_the_first_frame_fits_the_terminal(columns: int, rows: int) -> None:
    emulator = Emulator(columns, rows)
    emulator.modes.discard(7)  # without line wrapping
    emulator.feed(first_frame(columns, rows, colours=True).encode())
    assert emulator.clears == 0
    assert len(emulator.lines) == rows
    if columns >= 80:
        assert emulator.lines[0] == " atomic"
        assert emulator.lines[-2] == " ›"
        assert emulator.lines[-1] == f" {HINT}"


def test_no_color_removes_all_colours() -> None:
    assert "\x1b[2m" in first_frame(80, 24, colours=True)
    assert "\x1b[2m" not in first_frame(80, 24, colours=False)


def test_early_keys_are_kept(env: dict[str, str]) -> None:
    with window(SMALL, env=env, cwd=ROOT, ahead=b"before ") as one:
        one.shows(" ›")
        one.type("and while it starts")
        one.shows("before and while it starts")
        assert one.emulator.clears == 0


@pytest.mark.parametrize("background", ["1e1e/1e1e/1e1e", "ffff/ffff/ffff"])
def test_the_background_is_detected_and_not_typed_into_the_prompt(env: dict[str, str], background: str) -> None:
    with window(SMALL, env=env, cwd=ROOT, background=background) as one:
        one.shows(f"READY on rgb:{background}")
        one.type("x")
        one.shows("  x  ")


def test_a_terminal_that_does_not_answer_causes_no_delay(env: dict[str, str]) -> None:
    with window(SMALL, env=env, cwd=ROOT, answers=False) as one:
        one.shows("READY on unknown")
        one.type("exit\r")
        assert one.exit_code() == 0
        assert one.modes_left() == set()


def test_no_heavy_module_is_imported_for_the_first_frame() -> None:
    code = "import sys; import atomic.tui.main; print(*sys.modules)"
    done = subprocess.run(
        (sys.executable, "-c", code), env={"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, check=True
    )
    assert not {"textual", "rich", "asyncio", "msgspec", "typing", "json", "re"} & set(done.stdout.split())


TYPED = st.binary(max_size=40).map(lambda data: data.replace(b"\x1b", b""))


@given(before=TYPED, after=TYPED, cut=st.integers(0, 100))
def test_the_terminals_answer_is_removed_wherever_it_is_cut(before: bytes, after: bytes, cut: int) -> None:
    answers: list[str] = []
    sent = before + b"\x1b]11;rgb:0000/0000/0000\x1b\\" + after
    answer = BackgroundFilter(answers.append)
    got = b"".join(answer.strip(piece) for piece in (sent[:cut], sent[cut:]) if piece)
    # A single escape has already been passed on. No terminal cuts its answer there.
    if sent[:cut].endswith(b"\x1b") and not answers:
        return
    assert got == before + after
    assert answers == ["rgb:0000/0000/0000"]


def test_alt_with_a_bracket_is_passed_on() -> None:
    answer = BackgroundFilter(lambda _: None)
    assert answer.strip(b"a\x1b]") == b"a"
    assert answer.is_open
    assert answer.strip(b"") == b"\x1b]"
    assert not answer.is_open
