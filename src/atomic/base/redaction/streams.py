"""Remove secrets from text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from atomic.base.redaction.known_secrets import MARK
from atomic.base.redaction.redactor import Redactor

_DELTAS = ("text_delta", "thinking_delta", "tool_output")
_ENDS_MESSAGE = ("tool_started", "tool_ended", "turn_ended", "subagent_ended", "question_asked")
_LONG = 64 * 1024  # characters of a line after which it is written in parts
_HELD = 8 * 1024  # of these, the last ones are held back: no secret is longer
_BEGINNING = 4  # characters of a known secret that are held back at the end of a message
_PRIVATE_KEY = "PRIVATE KEY"
_LONGEST_KEY = 16 * _LONG  # characters that are held back for the end of a private key

Line = Mapping[str, Any]


class _Stream(NamedTuple):
    """Where a text comes from: the pieces of one stream are joined."""

    node: Any
    task: Any
    role: Any
    agent: Any
    type: str
    id: Any

    @property
    def turn(self) -> tuple[Any, ...]:
        """Return what all streams of one turn have in common."""
        return self.node, self.task, self.role


class EventRedactor:
    """Removes secrets from events as plain data.

    An agent's event is under `event`. Its text comes in pieces, and a secret may span
    two of them. So pieces are joined, and released line by line once no later piece can
    complete a secret.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._streams: dict[_Stream, _StreamText] = {}

    def add(self, line: Line) -> Iterator[Line]:
        """Add an event, and yield the events that are ready."""
        inner: Any = line.get("event")
        if isinstance(inner, Mapping):
            inner = cast("Line", inner)
            if inner["type"] in _DELTAS:
                text = self._streams.setdefault(_stream_of(line, inner), _StreamText(line, HeldText(self._redactor)))
                if text.is_between:
                    text.first = line
                    text.is_between = False
                yield from self._released(text, text.held.add(str(inner["text"])))
                return
            if inner["type"] in _ENDS_MESSAGE:
                yield from self._end_streams(line, inner)
        yield self._redactor.data(line)

    def rest(self) -> Iterator[Line]:
        """Yield the text that is held back."""
        for text in self._streams.values():
            yield from self._released(text, text.held.rest())
        self._streams.clear()

    def _end_streams(self, line: Line, inner: Line) -> Iterator[Line]:
        """Yield the held text of the agents whose message this event ends.

        A known secret that has begun in it is held back until the next message of the
        agent, or until its end.
        """
        source = _stream_of(line, inner)
        over: set[Any] = set()  # the agents that say nothing more
        if source.type == "turn_ended":
            over.add(source.agent)
        elif source.type == "subagent_ended":
            over.add(source.id)
        is_turn_over = source.type == "turn_ended" and source.agent is None  # which also ends its sub-agents
        for stream in [stream for stream in self._streams if stream.turn == source.turn]:
            text = self._streams[stream]
            if is_turn_over or stream.agent in over:
                del self._streams[stream]
                yield from self._released(text, text.held.rest())
            elif stream.agent == source.agent:
                text.is_between = True
                yield from self._released(text, text.held.end_message())
                if text.held.is_empty:
                    del self._streams[stream]

    def _released(self, text: _StreamText, ready: str) -> Iterator[Line]:
        if ready:
            first = text.first
            yield self._redactor.data({**first, "event": {**first["event"], "text": ready}})


class _StreamText:
    """The text of one stream that is held back."""

    def __init__(self, first: Line, held: HeldText) -> None:
        self.first = first  # the event of the first piece of the message
        self.held = held
        self.is_between = False  # a message has ended, and the next piece begins another one


class HeldText:
    """A text in pieces.

    It is released line by line, once no later piece can complete a secret in it. What
    is released still has to be redacted.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._text = ""
        self._before = ""  # the last characters of the message before, if a known secret begins with them

    @property
    def is_empty(self) -> bool:
        """Return whether the text so far does not matter for the next message."""
        return not self._text and not self._before

    def add(self, piece: str) -> str:
        """Add a piece, and return the text that can be written now."""
        self._text += piece
        return self._release(self._cut())

    def rest(self) -> str:
        """Return the text that is held back."""
        return self._release(len(self._text))

    def end_message(self) -> str:
        """Return the text that is held back, without the beginning of a known secret.

        A beginning of a few characters is found in ordinary words too: it is returned,
        and only the rest of the secret is removed from the next message.
        """
        begin = self._redactor.find_beginning(self._text)
        if len(self._text) - begin >= _BEGINNING:
            return self._release(begin)
        before = self._text[begin:]
        ready = self._release(len(self._text))
        if ready:
            self._before = before
        return ready

    def _release(self, cut: int) -> str:
        ready = self._text[:cut]
        self._text = self._text[cut:]
        if not ready or not self._before:
            return ready
        begun = len(self._before)
        spans = self._redactor.spans(self._before + ready)
        self._before = ""
        if spans and spans[0][0] < begun < spans[0][1]:
            return MARK + ready[spans[0][1] - begun :]
        return ready

    def _cut(self) -> int:
        """Return how many characters can be written now."""
        text = self._text
        key = _find_open_key(text)
        if key is not None:
            return text.rfind("\n", 0, key) + 1  # the start of its line
        whole_lines = text.rfind("\n") + 1
        if whole_lines or len(text) < _LONG:
            return whole_lines
        cut = len(text) - _HELD
        for start, end in self._redactor.spans(text):
            if start < cut < end:
                return start
        return cut


def _find_open_key(text: str) -> int | None:
    """Return where a private key starts whose last line is not complete, or None."""
    if _PRIVATE_KEY not in text or len(text) >= _LONGEST_KEY:
        return None
    start = text.rfind("-----BEGIN")
    if start < 0:
        return None
    end = text.find("-----END", start)
    is_complete = end >= 0 and text.find("\n", end) >= 0
    return None if is_complete else start


def _stream_of(line: Line, inner: Line) -> _Stream:
    return _Stream(
        line.get("node"), line.get("task"), line.get("role"), inner.get("agent"), inner["type"], inner.get("id")
    )
