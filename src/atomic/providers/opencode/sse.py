"""Parse server-sent events. An event that is too big is cut and marked; the stream
continues.
"""

from __future__ import annotations

import msgspec

MAX_EVENT = 32 * 1024 * 1024
HEAD = 4096  # bytes kept of an event that is too big, to find its session


class SseEvent(msgspec.Struct, frozen=True):
    """The data of one event; of one that is too big only the beginning."""

    data: bytes
    too_big: bool = False


class SseReader:
    """Takes bytes in pieces of any size and returns complete events."""

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._line = bytearray()  # without its end
        self._line_is_cut = False
        self._data: list[bytes] = []
        self._size = 0
        self._too_big = False

    def feed(self, chunk: bytes) -> list[SseEvent]:
        events: list[SseEvent] = []
        *complete, rest = chunk.split(b"\n")
        for piece in complete:
            self._add(piece)
            if event := self._line_ended():
                events.append(event)
        self._add(rest)
        return events

    def _add(self, piece: bytes) -> None:
        room = self._limit - len(self._line)
        self._line_is_cut = self._line_is_cut or len(piece) > room
        self._line += piece[: max(room, 0)]

    def _line_ended(self) -> SseEvent | None:
        line = bytes(self._line).removesuffix(b"\r")
        is_cut = self._line_is_cut
        self._line.clear()
        self._line_is_cut = False
        if not line:
            return self._event_ended()
        if line.startswith(b"data:"):
            self._size += len(line)
            self._too_big = self._too_big or is_cut or self._size > self._limit
            self._data.append(line[5:].removeprefix(b" "))
            if self._too_big:
                self._data = [b"\n".join(self._data)[:HEAD]]
        return None  # comments and other fields are not needed

    def _event_ended(self) -> SseEvent | None:
        event = SseEvent(b"\n".join(self._data), self._too_big) if self._data else None
        self._data = []
        self._size = 0
        self._too_big = False
        return event
