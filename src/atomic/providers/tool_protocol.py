"""MCP for custom tools, independent of the transport: handshake, list, calls, cancellation.

Why it is not the `mcp` package: docs/decisions/0007-tool-server.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

from atomic.providers.base import CustomTool
from atomic.providers.turn import cancel_all

Json: TypeAlias = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
NO_SUCH_METHOD = -32601
INVALID_PARAMS = -32602
CANCELLED = -32800
_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


class ToolProtocol:
    """Answers MCP messages. A call ends when it is done, its context ends, or its client
    cancels it.
    """

    def __init__(self, tools: Sequence[CustomTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._calls: dict[tuple[str, str], asyncio.Task[Json]] = {}  # by client and request id

    async def exchange(self, message: Json) -> Json:
        """Answer any message of a single client; a notification gets an empty result."""
        if not is_request(message):
            self.notice(message)
            return {"jsonrpc": "2.0", "result": {}}
        async with self.calling(message) as call:
            await asyncio.wait({call})
            return failed(message.get("id"), CANCELLED, "cancelled") if call.cancelled() else call.result()

    @asynccontextmanager
    async def calling(self, request: Json, client: str = "") -> AsyncGenerator[asyncio.Task[Json]]:
        """Start answering a request; leaving the context cancels it."""
        call = asyncio.create_task(self.answer(request))
        key = client, repr(request.get("id"))
        self._calls[key] = call
        try:
            yield call
        finally:
            if self._calls.get(key) is call:  # a client may use an id twice
                del self._calls[key]
            await cancel_all(call)

    def notice(self, message: Json, client: str = "") -> None:
        """Handle a notification: cancel the call that it names."""
        params = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(params, dict):
            call = self._calls.get((client, repr(cast("Json", params).get("requestId"))))
            if call is not None:
                call.cancel()

    async def answer(self, request: Json) -> Json:
        """Return the answer to a request."""
        id = request.get("id")
        params = request.get("params")
        if params is not None and not isinstance(params, dict):
            return failed(id, INVALID_REQUEST, "params must be an object")
        given = cast("Json", params or {})
        match request.get("method"):
            case "initialize":
                return _result(id, _greeting(given))
            case "ping":
                return _result(id, {})
            case "tools/list":
                return _result(id, {"tools": [_described(tool) for tool in self._tools.values()]})
            case "tools/call":
                return await self._call(id, given)
            case method:
                return failed(id, NO_SUCH_METHOD, f"no such method: {method}")

    async def _call(self, id: Any, params: Json) -> Json:
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            return failed(id, INVALID_PARAMS, f"no such tool: {params.get('name')}")
        is_error = False
        try:
            text = await tool.run(params.get("arguments") or {})
        except Exception as error:  # the agent made the call and receives every error
            text = str(error) or type(error).__name__
            is_error = True
        return _result(id, {"content": [{"type": "text", "text": text}], "isError": is_error})


def is_request(message: Json) -> bool:
    """Return whether a message needs an answer."""
    return "method" in message and message.get("id") is not None


def failed(id: Any, code: int, message: str) -> Json:
    """Return an error response."""
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def _result(id: Any, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _greeting(params: Json) -> Json:
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in _VERSIONS else _VERSIONS[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "atomic", "version": "1"},
    }


def _described(tool: CustomTool) -> Json:
    return {"name": tool.name, "description": tool.description, "inputSchema": {"type": "object", **tool.schema}}
