"""MCP for our own tools, whatever carries its messages: the handshake, the list, the calls and their cancellation.

Why it is not the `mcp` package: docs/decisions/0007-tool-server.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, cast

from atomic.providers.base import CustomTool

Json: TypeAlias = dict[str, Any]

PARSE_ERROR, INVALID_REQUEST, NO_SUCH_METHOD, INVALID_PARAMS, CANCELLED = -32700, -32600, -32601, -32602, -32800
_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


class ToolProtocol:
    """Answers for the tools. A call ends when it is over, when it is left, or when its client does not want it."""

    def __init__(self, tools: Sequence[CustomTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._calls: dict[tuple[str, str], asyncio.Task[Json]] = {}  # by client and its number for the call

    async def exchange(self, message: Json) -> Json:
        """The answer to any message of an only client; to a notification it says nothing."""
        if not is_request(message):
            self.notice(message)
            return {"jsonrpc": "2.0", "result": {}}
        async with self.calling(message) as call:
            await asyncio.wait({call})
            return failed(message.get("id"), CANCELLED, "cancelled") if call.cancelled() else call.result()

    @asynccontextmanager
    async def calling(self, request: Json, client: str = "") -> AsyncGenerator[asyncio.Task[Json]]:
        """The answer as it is being made; leaving the context ends the making."""
        call = asyncio.create_task(self.answer(request))
        key = client, repr(request.get("id"))
        self._calls[key] = call
        try:
            yield call
        finally:
            if self._calls.get(key) is call:  # a client may use a number twice
                del self._calls[key]
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    def notice(self, message: Json, client: str = "") -> None:
        """Take what wants no answer: that a call is not wanted any more."""
        params = message.get("params")
        if message.get("method") == "notifications/cancelled" and isinstance(params, dict):
            call = self._calls.get((client, repr(cast("Json", params).get("requestId"))))
            if call is not None:
                call.cancel()

    async def answer(self, request: Json) -> Json:
        """The answer to a request."""
        id, params = request.get("id"), request.get("params")
        if params is not None and not isinstance(params, dict):
            return failed(id, INVALID_REQUEST, "params are an object")
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
        try:
            text, is_error = await tool.run(params.get("arguments") or {}), False
        except Exception as error:  # the agent is told, whatever it was: it is the agent's call
            text, is_error = str(error) or type(error).__name__, True
        return _result(id, {"content": [{"type": "text", "text": text}], "isError": is_error})


def is_request(message: Json) -> bool:
    """Whether a message wants an answer."""
    return "method" in message and message.get("id") is not None


def failed(id: Any, code: int, message: str) -> Json:
    """The answer that there is none."""
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
