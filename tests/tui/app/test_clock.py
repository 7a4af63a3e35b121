"""The frame clock: at most 15 frames a second, keys first, nothing when idle."""

from __future__ import annotations

from enum import Flag, auto

from hypothesis import given
from hypothesis import strategies as st

from atomic.tui.frame_loop import FRAME, HOLD, QUIET, FrameClock


class Parts(Flag):
    NONE = 0
    ONE = auto()
    TWO = auto()


def new_clock() -> FrameClock[Parts]:
    return FrameClock(Parts.NONE)


def test_an_idle_clock_wants_no_timer() -> None:
    clock = new_clock()
    clock.key(1.0)
    clock.mark(Parts.NONE, 1.0)

    assert clock.next_frame() is None
    assert clock.take(2.0) is Parts.NONE


def test_the_first_change_is_painted_at_once_and_later_ones_are_collected() -> None:
    clock = new_clock()
    clock.mark(Parts.ONE, 10.0)
    assert clock.take(10.0) is Parts.ONE

    clock.mark(Parts.ONE, 10.001)
    clock.mark(Parts.TWO, 10.002)
    assert clock.take(10.003) is Parts.NONE
    assert clock.next_frame() == 10.0 + FRAME
    assert clock.take(10.0 + FRAME) == Parts.ONE | Parts.TWO
    assert clock.next_frame() is None


def test_a_key_delays_a_frame_for_a_limited_time() -> None:
    clock = new_clock()
    clock.mark(Parts.ONE, 10.0)
    clock.key(10.0)
    assert clock.next_frame() == 10.0 + QUIET

    for step in range(20):  # steady typing
        clock.key(10.0 + step / 50)
    assert clock.next_frame() == 10.0 + HOLD


@given(st.lists(st.tuples(st.floats(0, 0.05), st.sampled_from(["mark", "key", "look"])), max_size=200))
def test_no_frame_is_too_early_or_too_late(steps: list[tuple[float, str]]) -> None:
    clock = new_clock()
    now = 100.0
    frames = [0.0]
    since = None
    for pause, what in steps:
        now += pause
        if what == "key":
            clock.key(now)
        elif what == "mark":
            clock.mark(Parts.ONE, now)
            since = now if since is None else since
        due = clock.next_frame()
        assert (due is None) == (since is None)
        if due is not None and since is not None:
            assert due <= max(since + HOLD, frames[-1] + FRAME)
        if clock.take(now):
            assert now - frames[-1] >= FRAME - 1e-9
            frames.append(now)
            since = None
