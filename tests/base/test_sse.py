"""Server-sent events from bytes that are split anywhere."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from atomic.base.sse import HEAD, SseEvent, SseReader

STREAM = (
    b": hello\n\n"
    b"data: one\n\n"
    b"event: message\r\nid: 7\r\ndata: two\r\ndata: lines\r\n\r\n"
    b"data:\xe2\x82\xac\n\n"
    b"retry: 5\n\n"
    b"data: half an eve"
)
EVENTS = [SseEvent(b"one"), SseEvent(b"two\nlines"), SseEvent("€".encode())]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_events_are_the_same_wherever_the_bytes_are_split(cuts: list[int]) -> None:
    reader = SseReader()
    events = list[SseEvent]()
    places = sorted({0, len(STREAM), *cuts})
    for start, stop in pairwise(places):
        events += reader.feed(STREAM[start:stop])
    assert events == EVENTS


@given(st.integers(1, 5000))
def test_an_event_that_is_too_large_is_reported_and_the_next_ones_are_read(step: int) -> None:
    reader = SseReader(limit=10_000)
    events = list[SseEvent]()
    stream = b"data: a\n\ndata: whose is it " + b"x" * 50_000 + b"\n\ndata: b\n\n"
    for start in range(0, len(stream), step):
        events += reader.feed(stream[start : start + step])
    assert [event.too_big for event in events] == [False, True, False]
    assert [event.data for event in events if not event.too_big] == [b"a", b"b"]
    assert events[1].data.startswith(b"whose is it")
    assert len(events[1].data) <= HEAD


def test_many_lines_that_are_too_big_together_are_too_big() -> None:
    events = SseReader(limit=1000).feed(b"data: 0123456789\n" * 1000 + b"\n")
    assert [event.too_big for event in events] == [True]


def test_a_line_without_an_end_does_not_fill_the_memory() -> None:
    reader = SseReader(limit=10_000)
    piece = b"x" * 100_000
    tracemalloc.start()
    try:
        for _ in range(200):
            assert not reader.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
