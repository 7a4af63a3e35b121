"""The base class of protocols: one answer, as a stream of events or as a whole."""

from __future__ import annotations

import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Any, ClassVar, NamedTuple, TypeAlias

import msgspec

from atomic.testing.model_server.calls import Conversation
from atomic.testing.model_server.script import Fail, Stop, Tokens

Json: TypeAlias = dict[str, Any]


class Event(NamedTuple):
    """One event of a stream; some protocols do not name theirs."""

    name: str
    data: Json | str


class Kind(Enum):
    """The kind of a text."""

    TEXT = "text"
    THINKING = "thinking"


class TextPart(msgspec.Struct):
    """A text of the answer; it grows while it is sent."""

    kind: Kind
    pieces: list[str]

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class CallPart(msgspec.Struct, frozen=True):
    """A tool call of the answer."""

    id: str
    name: str
    input: Mapping[str, Any]

    @property
    def arguments(self) -> str:
        return msgspec.json.encode(self.input).decode()


Part: TypeAlias = TextPart | CallPart


class Encoder(ABC):
    """One answer in one protocol.

    The order of calls is: begin, {open, add…, close | call}…, end or failure. Each
    returns the events to send. The parts are kept, because protocols repeat them at the
    end, and a client without a stream gets only `whole`.
    """

    error_types: ClassVar[Mapping[int, str]]  # by HTTP status

    def __init__(self, conversation: Conversation, tokens: Tokens, stop: Stop | None) -> None:
        self.model = conversation.model
        self.tokens = tokens
        self.stop = stop
        self.parts: list[Part] = []

    @abstractmethod
    def begin(self) -> list[Event]: ...

    def open(self, kind: Kind) -> list[Event]:
        self.parts.append(TextPart(kind, []))
        return self._opened(kind)

    def add(self, piece: str) -> list[Event]:
        part = self.parts[-1]
        assert isinstance(part, TextPart)
        part.pieces.append(piece)
        return self._added(part.kind, piece)

    def close(self) -> list[Event]:
        part = self.parts[-1]
        assert isinstance(part, TextPart)
        return self._closed(part)

    def call(self, call: CallPart) -> list[Event]:
        self.parts.append(call)
        return self._called(call)

    @abstractmethod
    def end(self) -> list[Event]: ...

    @abstractmethod
    def whole(self) -> Json: ...

    @abstractmethod
    def failure(self, fail: Fail) -> list[Event]: ...

    @abstractmethod
    def error(self, fail: Fail) -> Json: ...

    @abstractmethod
    def _opened(self, kind: Kind) -> list[Event]: ...

    @abstractmethod
    def _added(self, kind: Kind, piece: str) -> list[Event]: ...

    @abstractmethod
    def _closed(self, part: TextPart) -> list[Event]: ...

    @abstractmethod
    def _called(self, call: CallPart) -> list[Event]: ...

    @property
    def calls(self) -> list[CallPart]:
        return [part for part in self.parts if isinstance(part, CallPart)]

    def text(self, kind: Kind) -> str:
        return "".join(part.text for part in self.parts if isinstance(part, TextPart) and part.kind is kind)

    def error_type(self, fail: Fail) -> str:
        return fail.type or self.error_types.get(fail.status) or self.error_types[500]


def new_id(prefix: str) -> str:
    return f"{prefix}_{uuid.uuid4().hex[:24]}"


def pieces_of(text: str, size: int = 12) -> Iterator[str]:
    """Split a text into small pieces, as models send it, and a long text into larger
    ones.
    """
    size = max(size, len(text) // 200)
    return (text[start : start + size] for start in range(0, len(text), size))
