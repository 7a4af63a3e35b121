"""The messages that list a server's tools.

Pure: `tool_queries` and `http` transport them.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import count
from typing import Any, cast

import msgspec

Json = dict[str, Any]
# Yields messages, receives the result of each ({} for a notification), returns names.
Talk = Generator[Json, Json, list[str]]

# Bytes of all messages of a server.
MAX_BYTES = 1024 * 1024
TOO_MUCH = f"it sends more than {MAX_BYTES:,} bytes"
_VERSION = "2025-06-18"
_NO_SUCH_METHOD = -32601
# Characters of a server's own error message.
_MAX_MESSAGE = 200


class TalkError(Exception):
    """The server cannot be reached, or its answer is invalid.

    `status` is an HTTP status.
    """

    def __init__(self, reason: str, status: int = 0) -> None:
        self.status = status
        super().__init__(reason)


def list_tools() -> Talk:
    """Run the whole exchange: the handshake, then the list, page by page."""
    greeting = yield _request(0, "initialize", _INTRODUCTION)
    if not isinstance(greeting.get("protocolVersion"), str):
        raise TalkError("it names no version of MCP")
    yield {"jsonrpc": "2.0", "method": "notifications/initialized"}
    if "tools" not in _object(greeting.get("capabilities")):
        return []
    names: list[str] = []
    seen: set[str] = set()
    params: Json = {}
    for number in count(1):
        page = yield _request(number, "tools/list", params)
        names += _names(page)
        cursor: object = page.get("nextCursor")
        if cursor is None:
            break
        if not isinstance(cursor, str) or cursor in seen:
            raise TalkError("its list of tools has no end")
        seen.add(cursor)
        params = {"cursor": cursor}
    return names


def messages_in(data: bytes | str) -> list[Json]:
    """Return the messages of one line, body or event.

    Raises TalkError if it is not one.
    """
    try:
        given: object = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise TalkError("its answer is not JSON") from None
    found = cast("list[object]", given) if isinstance(given, list) else [given]
    if not all(isinstance(message, dict) for message in found):
        raise TalkError("its answer is not an MCP message")
    return cast("list[Json]", found)


def result_in(message: Json, question: Json) -> Json | None:
    """Return the result if the message answers the request.

    Raises TalkError if the answer is an error.
    """
    if "method" in message or message.get("id") != question["id"]:
        return None
    if "error" in message:
        reason = " ".join(str(_object(message["error"]).get("message", "")).split())[:_MAX_MESSAGE]
        raise TalkError(f"it refuses {question['method']}: {reason or 'no reason given'}")
    if not isinstance(message.get("result"), dict):
        raise TalkError(f"its answer to {question['method']} has no result")
    return cast("Json", message["result"])


def reply_to(message: Json) -> Json | None:
    """Return the answer to a request of the server, which may wait for one."""
    if "method" not in message or message.get("id") is None:
        return None
    reply: Json = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "ping":
        return {**reply, "result": {}}
    return {**reply, "error": {"code": _NO_SUCH_METHOD, "message": "this client only lists tools"}}


class Budget:
    """The number of bytes that a server may still send."""

    def __init__(self) -> None:
        self.left = MAX_BYTES

    def spend(self, data: bytes) -> bytes:
        """Return the data. Raises TalkError if the limit is exceeded."""
        self.left -= len(data)
        if self.left < 0:
            raise TalkError(TOO_MUCH)
        return data


_INTRODUCTION: Json = {
    "protocolVersion": _VERSION,
    "capabilities": {},
    "clientInfo": {"name": "atomic", "version": "1"},
}


def _request(id: int, method: str, params: Json) -> Json:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}


def _names(page: Json) -> list[str]:
    tools: object = page.get("tools")
    if not isinstance(tools, list):
        raise TalkError("its list of tools is not a list")
    names = [_object(tool).get("name") for tool in cast("list[object]", tools)]
    if not all(isinstance(name, str) and name for name in names):
        raise TalkError("one of its tools has no name")
    return cast("list[str]", names)


def _object(value: object) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
