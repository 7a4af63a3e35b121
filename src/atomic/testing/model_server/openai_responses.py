"""OpenAI Responses: POST /v1/responses."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from atomic.testing.model_server.conversation import Conversation, Message, Protocol, join
from atomic.testing.model_server.encoder import CallPart, Encoder, Event, Json, Kind, TextPart, new_id, pieces_of
from atomic.testing.model_server.openai_chat import ERROR_TYPES, error_of
from atomic.testing.model_server.script import Fail, Stop, Tokens


class _Piece(msgspec.Struct, frozen=True):
    text: str | None = None


class _Item(msgspec.Struct, frozen=True):
    type: str = "message"
    role: str = "user"
    content: str | tuple[_Piece, ...] | None = None
    output: str | tuple[_Piece, ...] | None = None  # of a tool


class _Tool(msgspec.Struct, frozen=True):
    type: str = "function"
    name: str | None = None


class _Request(msgspec.Struct, frozen=True):
    model: str
    input: str | tuple[_Item, ...]
    instructions: str | None = None
    tools: tuple[_Tool, ...] | None = None
    stream: bool | None = None


def read_responses(body: bytes) -> Conversation:
    """Read a request. Raises msgspec.MsgspecError where it is none."""
    request = msgspec.json.decode(body, type=_Request)
    items = (_Item(content=request.input),) if isinstance(request.input, str) else request.input
    return Conversation(
        protocol=Protocol.OPENAI_RESPONSES,
        model=request.model,
        stream=bool(request.stream),
        system=join([request.instructions, *(_text(item.content) for item in items if _is_system(item))]),
        tools=tuple(tool.name or tool.type for tool in request.tools or ()),
        messages=tuple(_message(item) for item in items if not _is_system(item)),
    )


def _is_system(item: _Item) -> bool:
    return item.type == "message" and item.role in ("system", "developer")


def _message(item: _Item) -> Message:
    if item.type.endswith("_output"):
        return Message(False, tool_result=_text(item.output))
    if item.type != "message":  # reasoning and calls
        return Message(True)
    return Message(item.role == "assistant", _text(item.content))


def _text(content: str | tuple[_Piece, ...] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return join(piece.text for piece in content)


class ResponsesEncoder(Encoder):
    """An answer as output items, each of which is told bit by bit and then again as a whole."""

    error_types = ERROR_TYPES

    def __init__(self, conversation: Conversation, tokens: Tokens, stop: Stop | None) -> None:
        super().__init__(conversation, tokens, stop)
        self._about = _about(self.model)
        self._number = 0
        self._items: list[Json] = []

    def begin(self) -> list[Event]:
        return [self._event("response.created", response=self._response("in_progress", None))]

    def end(self) -> list[Event]:
        response = self.whole()
        return [self._event(f"response.{response['status']}", response=response)]

    def whole(self) -> Json:
        if self.stop is None:
            return self._response("completed", _usage(self.tokens))
        reason = {"refusal": "content_filter", "length": "max_output_tokens"}[self.stop.reason]
        return self._response("incomplete", _usage(self.tokens), incomplete_details={"reason": reason})

    def failure(self, fail: Fail) -> list[Event]:
        error = {"code": self.error_type(fail), "message": fail.message}
        return [self._event("response.failed", response=self._response("failed", None, error=error))]

    def error(self, fail: Fail) -> Json:
        return error_of(fail, self.error_type(fail))

    def _opened(self, kind: Kind) -> list[Event]:
        thinking = kind is Kind.THINKING
        item = _reasoning("") if thinking else _message_item("")
        self._items.append(item)
        begun: Json = {**item, "summary": []} if thinking else {**item, "status": "in_progress", "content": []}
        return [
            self._of_output("response.output_item.added", item=begun),
            self._of_item(f"response.{_NAMES[kind].part}.added", kind, part=_part_of(item)),
        ]

    def _added(self, kind: Kind, piece: str) -> list[Event]:
        return [self._of_item(f"response.{_NAMES[kind].text}.delta", kind, delta=piece)]

    def _closed(self, part: TextPart) -> list[Event]:
        made = _reasoning(part.text) if part.kind is Kind.THINKING else _message_item(part.text)
        item = self._items[-1] = {**made, "id": self._items[-1]["id"]}
        names = _NAMES[part.kind]
        return [
            self._of_item(f"response.{names.text}.done", part.kind, text=part.text),
            self._of_item(f"response.{names.part}.done", part.kind, part=_part_of(item)),
            self._of_output("response.output_item.done", item=item),
        ]

    def _called(self, call: CallPart) -> list[Event]:
        item: Json = {
            "type": "function_call",
            "id": new_id("fc"),
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
            "status": "completed",
        }
        self._items.append(item)
        name = "response.function_call_arguments"
        begun = {**item, "arguments": "", "status": "in_progress"}
        deltas = (self._of_item(f"{name}.delta", delta=piece) for piece in pieces_of(call.arguments, 40))
        return [
            self._of_output("response.output_item.added", item=begun),
            *deltas,
            self._of_item(f"{name}.done", arguments=call.arguments, name=call.name),
            self._of_output("response.output_item.done", item=item),
        ]

    def _of_item(self, type: str, kind: Kind | None = None, **data: Any) -> Event:
        index = {} if kind is None else {_NAMES[kind].index: 0}
        return self._of_output(type, item_id=self._items[-1]["id"], **index, **data)

    def _of_output(self, type: str, **data: Any) -> Event:
        return self._event(type, output_index=len(self._items) - 1, **data)

    def _event(self, type: str, **data: Any) -> Event:
        self._number += 1
        return Event(type, {"type": type, "sequence_number": self._number - 1, **data})

    def _response(self, status: str, usage: Json | None, **more: Any) -> Json:
        return {**self._about, "status": status, "output": list(self._items), "usage": usage, **more}


class _Names(msgspec.Struct, frozen=True):
    part: str
    text: str
    index: str


_NAMES = {
    Kind.TEXT: _Names("content_part", "output_text", "content_index"),
    Kind.THINKING: _Names("reasoning_summary_part", "reasoning_summary_text", "summary_index"),
}


def _reasoning(text: str) -> Json:
    return {"type": "reasoning", "id": new_id("rs"), "summary": [{"type": "summary_text", "text": text}]}


def _message_item(text: str) -> Json:
    part: Json = {"type": "output_text", "text": text, "annotations": []}
    return {"type": "message", "id": new_id("msg"), "role": "assistant", "status": "completed", "content": [part]}


def _part_of(item: Json) -> Json:
    return (item.get("content") or item["summary"])[0]


def _about(model: str) -> Json:
    """Give the fields that clients check and nobody needs."""
    return {
        "id": new_id("resp"),
        "object": "response",
        "created_at": int(time.time()),
        "model": model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1,
    }


def _usage(tokens: Tokens) -> Json:
    read = tokens.input + tokens.cached + tokens.written
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + tokens.output,
    }
