"""OpenAI's protocols: POST /v1/chat/completions and POST /v1/responses."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from atomic.testing.model_server.calls import Conversation, Message, Protocol, join
from atomic.testing.model_server.encoder import CallPart, Encoder, Event, Json, Kind, TextPart, new_id, pieces_of
from atomic.testing.model_server.script import Fail, Stop, Tokens


class _Piece(msgspec.Struct, frozen=True):
    text: str | None = None


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | tuple[_Piece, ...] | None = None

    @property
    def text(self) -> str:
        return _text(self.content)


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
    """Read a request. Raise msgspec.MsgspecError if it is invalid."""
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


# By HTTP status, for both protocols.
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
        self._id = new_id("chatcmpl")
        self._created = int(time.time())

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
    """Return an error in the form of both protocols."""
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


class _Item(msgspec.Struct, frozen=True):
    type: str = "message"
    role: str = "user"
    content: str | tuple[_Piece, ...] | None = None
    output: str | tuple[_Piece, ...] | None = None  # of a tool


class _ResponsesTool(msgspec.Struct, frozen=True):
    type: str = "function"
    name: str | None = None


class _ResponsesRequest(msgspec.Struct, frozen=True):
    model: str
    input: str | tuple[_Item, ...]
    instructions: str | None = None
    tools: tuple[_ResponsesTool, ...] | None = None
    stream: bool | None = None


def read_responses(body: bytes) -> Conversation:
    """Read a request. Raise msgspec.MsgspecError if it is invalid."""
    request = msgspec.json.decode(body, type=_ResponsesRequest)
    items = (_Item(content=request.input),) if isinstance(request.input, str) else request.input
    return Conversation(
        protocol=Protocol.OPENAI_RESPONSES,
        model=request.model,
        stream=bool(request.stream),
        system=join([request.instructions, *(_text(item.content) for item in items if _is_system(item))]),
        tools=tuple(tool.name or tool.type for tool in request.tools or ()),
        messages=tuple(_item_message(item) for item in items if not _is_system(item)),
    )


def _is_system(item: _Item) -> bool:
    return item.type == "message" and item.role in ("system", "developer")


def _item_message(item: _Item) -> Message:
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
    """An answer as output items; each is sent in pieces and then as a whole."""

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
            return self._response("completed", _responses_usage(self.tokens))
        reason = {"refusal": "content_filter", "length": "max_output_tokens"}[self.stop.reason]
        return self._response("incomplete", _responses_usage(self.tokens), incomplete_details={"reason": reason})

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
        # Codex has tools in namespaces; names of tools contain no dots.
        namespace, _, tool = call.name.rpartition(".")
        item: Json = {
            "type": "function_call",
            "id": new_id("fc"),
            "call_id": call.id,
            "name": tool,
            **({"namespace": namespace} if namespace else {}),
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
            self._of_item(f"{name}.done", arguments=call.arguments, name=tool),
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
    """Return the fields that clients check but do not use."""
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


def _responses_usage(tokens: Tokens) -> Json:
    read = tokens.input + tokens.cached + tokens.written
    return {
        "input_tokens": read,
        "input_tokens_details": {"cached_tokens": tokens.cached},
        "output_tokens": tokens.output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": read + tokens.output,
    }
