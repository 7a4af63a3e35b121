"""OpenAI chat completions: POST /v1/chat/completions."""

from __future__ import annotations

import time

import msgspec

from atomic.testing.model_server.conversation import Conversation, Message, Protocol, join
from atomic.testing.model_server.encoder import CallPart, Encoder, Event, Json, Kind, TextPart, new_id, pieces_of
from atomic.testing.model_server.script import Fail, Stop, Tokens


class _Piece(msgspec.Struct, frozen=True):
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | tuple[_Piece, ...] | None = None

    @property
    def text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return join(piece.text for piece in self.content)


class _Function(msgspec.Struct, frozen=True):
    name: str


class _Tool(msgspec.Struct, frozen=True):
    function: _Function | None = None
    type: str = "function"


class _Request(msgspec.Struct, frozen=True):
    model: str
    messages: tuple[_Message, ...]
    tools: tuple[_Tool, ...] | None = None
    stream: bool | None = None


_SYSTEM = ("system", "developer")


def read_chat(body: bytes) -> Conversation:
    """Read a request. Raises msgspec.MsgspecError where it is none."""
    request = msgspec.json.decode(body, type=_Request)
    return Conversation(
        protocol=Protocol.OPENAI_CHAT,
        model=request.model,
        stream=bool(request.stream),
        system=join(message.text for message in request.messages if message.role in _SYSTEM),
        tools=tuple(tool.function.name if tool.function else tool.type for tool in request.tools or ()),
        messages=tuple(_message(message) for message in request.messages if message.role not in _SYSTEM),
    )


def _message(message: _Message) -> Message:
    if message.role == "tool":
        return Message(False, tool_result=message.text)
    return Message(message.role == "assistant", message.text)


# The same for both of OpenAI's protocols.
ERROR_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "service_unavailable",
    529: "overloaded_error",
}


class ChatEncoder(Encoder):
    """An answer as one message."""

    error_types = ERROR_TYPES

    def __init__(self, conversation: Conversation, tokens: Tokens, stop: Stop | None) -> None:
        super().__init__(conversation, tokens, stop)
        self._id, self._created = new_id("chatcmpl"), int(time.time())

    def begin(self) -> list[Event]:
        return [self._delta({"role": "assistant", "content": ""})]

    def end(self) -> list[Event]:
        cost: Json = {**self._about("chat.completion.chunk"), "choices": [], "usage": _usage(self.tokens)}
        return [self._delta({}, self._finish_reason()), Event("", cost), Event("", "[DONE]")]

    def whole(self) -> Json:
        message: Json = {"role": "assistant", "content": self.text(Kind.TEXT) or None}
        if thinking := self.text(Kind.THINKING):
            message["reasoning_content"] = thinking
        if self.calls:
            message["tool_calls"] = [_call(call, call.arguments) for call in self.calls]
        choice = {"index": 0, "message": message, "finish_reason": self._finish_reason()}
        return {**self._about("chat.completion"), "choices": [choice], "usage": _usage(self.tokens)}

    def failure(self, fail: Fail) -> list[Event]:
        return [Event("", self.error(fail))]

    def error(self, fail: Fail) -> Json:
        return error_of(fail, self.error_type(fail))

    def _opened(self, kind: Kind) -> list[Event]:
        return []

    def _added(self, kind: Kind, piece: str) -> list[Event]:
        return [self._delta({"content" if kind is Kind.TEXT else "reasoning_content": piece})]

    def _closed(self, part: TextPart) -> list[Event]:
        return []

    def _called(self, call: CallPart) -> list[Event]:
        index = len(self.calls) - 1
        pieces = ({"index": index, "function": {"arguments": piece}} for piece in pieces_of(call.arguments, 40))
        return [self._delta({"tool_calls": [delta]}) for delta in ({"index": index, **_call(call, "")}, *pieces)]

    def _delta(self, delta: Json, finish_reason: str | None = None) -> Event:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return Event("", {**self._about("chat.completion.chunk"), "choices": [choice]})

    def _about(self, object: str) -> Json:
        return {"id": self._id, "object": object, "created": self._created, "model": self.model}

    def _finish_reason(self) -> str:
        if self.stop is not None:
            return {"refusal": "content_filter", "length": "length"}[self.stop.reason]
        return "tool_calls" if self.calls else "stop"


def error_of(fail: Fail, type: str) -> Json:
    """Word an error as both of OpenAI's protocols do."""
    return {"error": {"message": fail.message, "type": type, "param": None, "code": None}}


def _call(call: CallPart, arguments: str) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(tokens: Tokens) -> Json:
    read = tokens.input + tokens.cached + tokens.written
    return {
        "prompt_tokens": read,
        "completion_tokens": tokens.output,
        "total_tokens": read + tokens.output,
        "prompt_tokens_details": {"cached_tokens": tokens.cached},
    }
