"""Gemini: POST /v1beta/models/MODEL:generateContent and :streamGenerateContent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from atomic.testing.model_server.calls import Conversation, Message, Protocol, join
from atomic.testing.model_server.encoder import CallPart, Encoder, Event, Json, Kind, TextPart, new_id
from atomic.testing.model_server.script import Fail, Stop, Tokens

WHOLE = ":generateContent"
STREAM = ":streamGenerateContent"
COUNT = ":countTokens"


class _Result(msgspec.Struct, frozen=True):
    response: Any = None


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    text: str | None = None
    function_response: _Result | None = None


class _Content(msgspec.Struct, frozen=True):
    role: str = "user"
    parts: tuple[_Part, ...] = ()


class _Declaration(msgspec.Struct, frozen=True):
    name: str


class _Tool(msgspec.Struct, frozen=True, rename="camel"):
    function_declarations: tuple[_Declaration, ...] = ()


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    contents: tuple[_Content, ...]
    system_instruction: _Content | None = None
    tools: tuple[_Tool, ...] | None = None


def read_gemini(path: str, body: bytes) -> Conversation:
    """Read a request; its path names the model. Raise msgspec.MsgspecError if it is
    invalid.
    """
    request = msgspec.json.decode(body, type=_Request)
    model, _, _ = path.rpartition("/")[2].partition(":")
    return Conversation(
        protocol=Protocol.GEMINI,
        model=model,
        stream=path.endswith(STREAM),
        system=_text(request.system_instruction.parts) if request.system_instruction else "",
        tools=tuple(one.name for tool in request.tools or () for one in tool.function_declarations),
        messages=tuple(_message(content) for content in request.contents),
    )


def _message(content: _Content) -> Message:
    results = (_result(part.function_response.response) for part in content.parts if part.function_response)
    return Message(content.role == "model", _text(content.parts), join(results))


def _text(parts: Sequence[_Part]) -> str:
    return join(part.text for part in parts)


def _result(response: Any) -> str:
    """Return the text of a tool's result: its output or error, else all of it."""
    if isinstance(response, dict):
        fields = cast("dict[str, Any]", response)
        text = fields.get("output", fields.get("error"))
        if isinstance(text, str):
            return text
    return msgspec.json.encode(response).decode()


class GeminiEncoder(Encoder):
    """An answer as one candidate; a call is sent in one piece."""

    error_types = {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        429: "RESOURCE_EXHAUSTED",
        500: "INTERNAL",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
        529: "UNAVAILABLE",
    }

    def __init__(self, conversation: Conversation, tokens: Tokens, stop: Stop | None) -> None:
        super().__init__(conversation, tokens, stop)
        self._id = new_id("resp")

    def begin(self) -> list[Event]:
        return [self._chunk([])]

    def end(self) -> list[Event]:
        return [Event("", self._response([], is_last=True))]

    def whole(self) -> Json:
        return self._response([_part(part) for part in self.parts], is_last=True)

    def failure(self, fail: Fail) -> list[Event]:
        return [Event("", self.error(fail))]

    def error(self, fail: Fail) -> Json:
        return {"error": {"code": fail.status, "message": fail.message, "status": self.error_type(fail)}}

    def _opened(self, kind: Kind) -> list[Event]:
        return []

    def _added(self, kind: Kind, piece: str) -> list[Event]:
        # A thought is a summary, which Gemini sends in one piece.
        return [] if kind is Kind.THINKING else [self._chunk([_part(TextPart(kind, [piece]))])]

    def _closed(self, part: TextPart) -> list[Event]:
        return [self._chunk([_part(part)])] if part.kind is Kind.THINKING else []

    def _called(self, call: CallPart) -> list[Event]:
        return [self._chunk([_part(call)])]

    def _chunk(self, parts: list[Json]) -> Event:
        return Event("", self._response(parts, is_last=False))

    def _response(self, parts: list[Json], *, is_last: bool) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        response: Json = {"modelVersion": self.model, "responseId": self._id, "candidates": [candidate]}
        if is_last:
            candidate["finishReason"] = self._finish_reason()
            response["usageMetadata"] = _usage(self.tokens)
        return response

    def _finish_reason(self) -> str:
        if self.stop is None:
            return "STOP"
        return {"refusal": "SAFETY", "length": "MAX_TOKENS"}[self.stop.reason]


def _part(part: TextPart | CallPart) -> Json:
    if isinstance(part, CallPart):
        return {"functionCall": {"id": part.id, "name": part.name, "args": part.input}}
    return {"text": part.text, "thought": True} if part.kind is Kind.THINKING else {"text": part.text}


def _usage(tokens: Tokens) -> Json:
    read = tokens.input + tokens.cached + tokens.written
    return {
        "promptTokenCount": read,
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": tokens.output,
        "totalTokenCount": read + tokens.output,
    }
