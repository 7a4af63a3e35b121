"""The frame clock: at most 15 frames a second, keys first, nothing when idle."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from atomic.tui.frame_loop import FRAME, HOLD, QUIET, FrameClock
from atomic.tui.state.model import Changes


def test_an_idle_clock_wants_no_timer() -> None:
    clock = FrameClock()
    clock.key(1.0)
    clock.mark(Changes.NONE, 1.0)

    assert clock.next_frame() is None
    assert clock.take(2.0) is Changes.NONE


def test_the_first_change_is_painted_at_once_and_later_ones_are_collected() -> None:
    clock = FrameClock()
    clock.mark(Changes.TRANSCRIPT, 10.0)
    assert clock.take(10.0) is Changes.TRANSCRIPT

    clock.mark(Changes.TRANSCRIPT, 10.001)
    clock.mark(Changes.STATUS, 10.002)
    assert clock.take(10.003) is Changes.NONE
    assert clock.next_frame() == 10.0 + FRAME
    assert clock.take(10.0 + FRAME) == Changes.TRANSCRIPT | Changes.STATUS
    assert clock.next_frame() is None


def test_a_key_delays_a_frame_for_a_limited_time() -> None:
    clock = FrameClock()
    clock.mark(Changes.TRANSCRIPT, 10.0)
    clock.key(10.0)
    assert clock.next_frame() == 10.0 + QUIET

    for step in range(20):  # steady typing
        clock.key(10.0 + step / 50)
    assert clock.next_frame() == 10.0 + HOLD


@given(st.lists(st.tuples(st.floats(0, 0.05), st.sampled_from(["mark", "key", "look"])), max_size=200))
def test_no_frame_is_too_early_or_too_late(steps: list[tuple[float, str]]) -> None:
    clock = FrameClock()
    now = 100.0
    frames = [0.0]
    since = None
    for pause, what in steps:
        now += pause
        if what == "key":
            clock.key(now)
        elif what == "mark":
            clock.mark(Changes.TRANSCRIPT, now)
            since = now if since is None else since
        due = clock.next_frame()
        assert (due is None) == (since is None)
        if due is not None and since is not None:
            assert due <= max(since + HOLD, frames[-1] + FRAME)
        if clock.take(now):
            assert now - frames[-1] >= FRAME - 1e-9
            frames.append(now)
            since = None
