"""Anthropic Messages: POST /v1/messages."""

from __future__ import annotations

from typing import Any

import msgspec

from atomic.testing.model_server.calls import Conversation, Message, Protocol, join
from atomic.testing.model_server.encoder import CallPart, Encoder, Event, Json, Kind, TextPart, new_id, pieces_of
from atomic.testing.model_server.script import Fail, Stop, Tokens


class _Block(msgspec.Struct, frozen=True):
    type: str = "text"
    text: str | None = None
    content: Any = None  # of a tool result: text or blocks; of other blocks anything


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | tuple[_Block, ...]


class _Tool(msgspec.Struct, frozen=True):
    name: str


class _Request(msgspec.Struct, frozen=True):
    model: str
    messages: tuple[_Message, ...]
    system: str | tuple[_Block, ...] | None = None
    tools: tuple[_Tool, ...] | None = None
    stream: bool | None = None


def read_anthropic(body: bytes) -> Conversation:
    """Read a request. Raise msgspec.MsgspecError if it is invalid."""
    request = msgspec.json.decode(body, type=_Request)
    return Conversation(
        protocol=Protocol.ANTHROPIC,
        model=request.model,
        stream=bool(request.stream),
        # Claude Code also puts system messages between the others.
        system=join([_text(request.system), *(_text(m.content) for m in request.messages if m.role == "system")]),
        tools=tuple(tool.name for tool in request.tools or ()),
        messages=tuple(_message(message) for message in request.messages if message.role != "system"),
    )


def _message(message: _Message) -> Message:
    blocks = () if isinstance(message.content, str) else message.content
    results = (msgspec.convert(b.content, str | tuple[_Block, ...] | None) for b in blocks if b.type == "tool_result")
    return Message(message.role == "assistant", _text(message.content), join(_text(result) for result in results))


def _text(content: str | tuple[_Block, ...] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return join(block.text for block in content)


class AnthropicEncoder(Encoder):
    """An answer as content blocks."""

    error_types = {
        400: "invalid_request_error",
        401: "authentication_error",
        403: "permission_error",
        404: "not_found_error",
        413: "request_too_large",
        429: "rate_limit_error",
        500: "api_error",
        504: "timeout_error",
        529: "overloaded_error",
    }

    def __init__(self, conversation: Conversation, tokens: Tokens, stop: Stop | None) -> None:
        super().__init__(conversation, tokens, stop)
        self._id = new_id("msg")

    def begin(self) -> list[Event]:
        usage = {**_usage(self.tokens), "output_tokens": 1}
        return [_event("message_start", message=self._message([], None, usage))]

    def end(self) -> list[Event]:
        delta = {"stop_reason": self._stop_reason(), "stop_sequence": None}
        return [_event("message_delta", delta=delta, usage=_usage(self.tokens)), _event("message_stop")]

    def whole(self) -> Json:
        blocks = [_block(part) for part in self.parts]
        return self._message(blocks, self._stop_reason(), _usage(self.tokens))

    def failure(self, fail: Fail) -> list[Event]:
        return [Event("error", self.error(fail))]

    def error(self, fail: Fail) -> Json:
        return {"type": "error", "error": {"type": self.error_type(fail), "message": fail.message}}

    def _opened(self, kind: Kind) -> list[Event]:
        return [self._at_index("start", content_block=_block(TextPart(kind, [])))]

    def _added(self, kind: Kind, piece: str) -> list[Event]:
        return [self._at_index("delta", delta={"type": f"{kind.value}_delta", kind.value: piece})]

    def _closed(self, part: TextPart) -> list[Event]:
        signature = {"type": "signature_delta", "signature": _SIGNATURE}
        signed = [self._at_index("delta", delta=signature)] if part.kind is Kind.THINKING else []
        return [*signed, self._at_index("stop")]

    def _called(self, call: CallPart) -> list[Event]:
        start = self._at_index("start", content_block={**_block(call), "input": {}})
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces_of(call.arguments, 40)]
        return [start, *(self._at_index("delta", delta=delta) for delta in deltas), self._at_index("stop")]

    def _at_index(self, what: str, **data: Any) -> Event:
        return _event(f"content_block_{what}", index=len(self.parts) - 1, **data)

    def _message(self, blocks: list[Json], stop_reason: str | None, usage: Json) -> Json:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": blocks,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage,
        }

    def _stop_reason(self) -> str:
        if self.stop is not None:
            return {"refusal": "refusal", "length": "max_tokens"}[self.stop.reason]
        return "tool_use" if self.calls else "end_turn"


_SIGNATURE = "c2NyaXB0ZWQ="


def _block(part: TextPart | CallPart) -> Json:
    if isinstance(part, CallPart):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.input}
    if part.kind is Kind.THINKING:
        return {"type": "thinking", "thinking": part.text, "signature": _SIGNATURE if part.pieces else ""}
    return {"type": "text", "text": part.text}


def _usage(tokens: Tokens) -> Json:
    return {
        "input_tokens": tokens.input,
        "output_tokens": tokens.output,
        "cache_read_input_tokens": tokens.cached,
        "cache_creation_input_tokens": tokens.written,
    }


def _event(type: str, **data: Any) -> Event:
    return Event(type, {"type": type, **data})
