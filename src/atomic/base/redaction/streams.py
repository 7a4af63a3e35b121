"""Remove secrets from text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from atomic.base.redaction.redactor import Redactor

_DELTAS = ("text_delta", "thinking_delta", "tool_output")
_ENDS_MESSAGE = ("tool_started", "tool_ended", "turn_ended", "subagent_ended", "question_asked")
_LONG = 64 * 1024  # characters of a line after which it is written in parts
_HELD = 8 * 1024  # of these, the last ones are held back: no secret is longer
_KEY = "PRIVATE KEY"

Line = Mapping[str, Any]
Key = tuple[Any, ...]


class EventRedactor:
    """Removes secrets from events as plain data.

    An agent's event is under `event`. Its text comes in pieces, and a secret may span
    two of them. So pieces are joined, and released line by line once no later piece can
    complete a secret.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._streams: dict[Key, tuple[Line, HeldText]] = {}  # with the event of the first piece

    def add(self, line: Line) -> Iterator[Line]:
        """Add an event, and yield the events that are ready."""
        inner: Any = line.get("event")
        if isinstance(inner, Mapping):
            inner = cast("Line", inner)
            if inner["type"] in _DELTAS:
                first, held = self._streams.setdefault(_key(line, inner), (line, HeldText(self._redactor)))
                yield from self._released(first, held.add(str(inner["text"])))
                return
            if inner["type"] in _ENDS_MESSAGE:
                yield from self._end_streams(line, inner)
        yield self._redactor.data(line)

    def rest(self) -> Iterator[Line]:
        """Yield the text that is held back."""
        for first, held in self._streams.values():
            yield from self._released(first, held.rest())
        self._streams.clear()

    def _end_streams(self, line: Line, inner: Line) -> Iterator[Line]:
        """Yield the held text of the agents whose message this event ends."""
        *place, agent, type, id = _key(line, inner)
        ended = {agent, id} if type == "subagent_ended" else {agent}
        is_turn_over = type == "turn_ended" and agent is None  # which also ends the sub-agents of the turn
        for key in [key for key in self._streams if key[:3] == (*place,)]:
            if is_turn_over or key[3] in ended:
                first, held = self._streams.pop(key)
                yield from self._released(first, held.rest())

    def _released(self, first: Line, text: str) -> Iterator[Line]:
        if text:
            yield self._redactor.data({**first, "event": {**first["event"], "text": text}})


class HeldText:
    """A text in pieces.

    It is released line by line, once no later piece can complete a secret in it. What
    is released still has to be redacted.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._text = ""

    def add(self, piece: str) -> str:
        """Add a piece, and return the text that can be written now."""
        self._text += piece
        cut = self._cut()
        ready = self._text[:cut]
        self._text = self._text[cut:]
        return ready

    def rest(self) -> str:
        """Return the text that is held back."""
        ready = self._text
        self._text = ""
        return ready

    def _cut(self) -> int:
        text = self._text
        if _KEY in text and len(text) < 16 * _LONG:
            begin = text.rfind("-----BEGIN")
            end = text.find("-----END", begin) if begin >= 0 else 0
            if end < 0 or (begin >= 0 and text.find("\n", end) < 0):
                return text.rfind("\n", 0, begin) + 1  # inside a private key
        end = text.rfind("\n") + 1
        if end or len(text) < _LONG:
            return end
        cut = len(text) - _HELD
        for start, stop in self._redactor.spans(text):
            if start < cut < stop:
                return start
        return cut


def _key(line: Line, inner: Line) -> Key:
    return (line.get("node"), line.get("task"), line.get("role"), inner.get("agent"), inner["type"], inner.get("id"))
