"""Parse server-sent events.

An event that is too big is cut and marked, and the stream continues.
"""

from __future__ import annotations

import msgspec

MAX_EVENT = 32 * 1024 * 1024
HEAD = 4096  # bytes kept of an event that is too big


class SseEvent(msgspec.Struct, frozen=True):
    """The data of one event, or the first `HEAD` bytes if it is too big."""

    data: bytes
    too_big: bool = False
    name: str = "message"


class SseReader:
    """Takes bytes in pieces of any size and returns complete events."""

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._line = bytearray()  # without its end
        self._line_is_cut = False
        self._begin_event()

    def _begin_event(self) -> None:
        self._name = ""
        self._data: list[bytes] = []
        self._size = 0
        self._too_big = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Return the events that this chunk completes."""
        events: list[SseEvent] = []
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            self._extend_line(piece)
            event = self._end_line()
            if event is not None:
                events.append(event)
        self._extend_line(rest)
        return events

    def _extend_line(self, piece: bytes) -> None:
        room = self._limit - len(self._line)
        self._line_is_cut = self._line_is_cut or len(piece) > room
        self._line += piece[: max(room, 0)]

    def _end_line(self) -> SseEvent | None:
        """Take the line, and return the event if the line is the empty one at its end."""
        line = bytes(self._line).removesuffix(b"\r")
        is_cut = self._line_is_cut
        self._line.clear()
        self._line_is_cut = False
        if not line:
            event = SseEvent(b"\n".join(self._data), self._too_big, self._name or "message") if self._data else None
            self._begin_event()
            return event
        # Comments and other fields are ignored.
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value[:HEAD].decode("utf-8", "replace")
        elif field == b"data":
            self._size += len(line)
            self._too_big = self._too_big or is_cut or self._size > self._limit
            self._data.append(value)
            if self._too_big:
                self._data = [b"\n".join(self._data)[:HEAD]]
        return None
