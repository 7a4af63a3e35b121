"""Our own tools for agents that cannot call a Python function: an MCP server on loopback, behind a token.

It speaks MCP's streamable HTTP as far as tools need it: the handshake, the list, the calls. Why it is not the `mcp`
package: docs/decisions/0007-tool-server.md.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, cast

import msgspec

from atomic.providers.base import CustomTool
from atomic.providers.tool_http import MAX_HEAD, Answer, BadRequestError, Request, read_body, read_head

PATH = "/mcp"
HEARTBEAT = 10.0  # seconds
_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
_SESSION = "mcp-session-id"
_PARSE_ERROR, _INVALID_REQUEST, _NO_SUCH_METHOD, _INVALID_PARAMS = -32700, -32600, -32601, -32602
_log = logging.getLogger(__name__)

Json = dict[str, Any]


class ToolServer(msgspec.Struct, frozen=True):
    """Where the tools can be called, and the token without which they cannot."""

    url: str
    token: str


@asynccontextmanager
async def serving_tools(tools: Sequence[CustomTool]) -> AsyncGenerator[ToolServer]:
    """Offer the tools while the context lasts; leaving it ends all calls and connections."""
    token = secrets.token_urlsafe(32)
    connections = _Connections({tool.name: tool for tool in tools}, token)
    server = await asyncio.start_server(connections.connected, "127.0.0.1", 0, limit=MAX_HEAD)
    try:
        yield ToolServer(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{PATH}", token)
    finally:
        server.close()
        await connections.close()
        await server.wait_closed()


class _Connections:
    """All clients. A call ends with its connection, or when its client says that it is cancelled."""

    def __init__(self, tools: Mapping[str, CustomTool], token: str) -> None:
        self._tools, self._token = tools, token
        self._tasks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._calls: dict[tuple[str, str], asyncio.Task[Json]] = {}  # by client and its number for the call
        self._is_closing = False

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_closing:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks[task] = writer
        task.add_done_callback(self._gone)

    async def close(self) -> None:
        self._is_closing = True
        writers = list(self._tasks.values())
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in writers), return_exceptions=True)

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task).transport.abort()
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("the tool server failed", exc_info=error)

    # one connection -------------------------------------------------------------------------------------------

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answer = Answer(writer)
        with suppress(ConnectionError):  # the client has gone
            try:
                while (head := await read_head(reader)) is not None:
                    if not await self._exchange(head, reader, answer):
                        break
            except BadRequestError as error:
                await answer.whole(error.status, last=True)
            writer.close()
            await writer.wait_closed()

    async def _exchange(self, head: Request, reader: asyncio.StreamReader, answer: Answer) -> bool:
        """Answer one request; whether the connection may be used again."""
        if not self._may(head):
            await answer.whole(HTTPStatus.UNAUTHORIZED, headers={"www-authenticate": "Bearer"}, last=True)
            return False
        body = await read_body(reader, head)
        if head.path != PATH:
            await answer.whole(HTTPStatus.NOT_FOUND)
        elif head.method == "DELETE":
            await answer.whole(HTTPStatus.OK)  # a client takes its leave; nothing is kept for it
        elif head.method != "POST":
            await answer.whole(HTTPStatus.METHOD_NOT_ALLOWED, headers={"allow": "POST, DELETE"})
        else:
            return await self._messages(head, body, reader, answer)
        return True

    def _may(self, head: Request) -> bool:
        scheme, _, token = head.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(token.strip().encode(), self._token.encode())

    async def _messages(self, head: Request, body: bytes, reader: asyncio.StreamReader, answer: Answer) -> bool:
        try:
            given: object = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            await answer.whole(HTTPStatus.BAD_REQUEST, _encoded(_error(None, _PARSE_ERROR, f"no JSON: {error}")))
            return True
        client = head.headers.get(_SESSION) or secrets.token_hex(16)
        messages = cast("list[object]", given) if isinstance(given, list) else [given]
        objects = [cast("Json", message) for message in messages if isinstance(message, dict)]
        self._cancel(client, objects)
        requests = [message for message in objects if "method" in message and message.get("id") is not None]
        if not requests:
            await answer.whole(HTTPStatus.ACCEPTED)
            return True
        if len(requests) == 1 and requests[0]["method"] != "tools/call":
            await answer.whole(HTTPStatus.OK, _encoded(await self._answer(requests[0])), {_SESSION: client})
            return True
        await self._answer_slowly(client, requests, reader, answer)
        return False

    def _cancel(self, client: str, messages: Sequence[Json]) -> None:
        """End the calls that a client does not want any more."""
        for message in messages:
            params = message.get("params")
            if message.get("method") == "notifications/cancelled" and isinstance(params, dict):
                call = self._calls.get((client, repr(cast("Json", params).get("requestId"))))
                if call is not None:
                    call.cancel()

    async def _answer_slowly(
        self, client: str, requests: Sequence[Json], reader: asyncio.StreamReader, answer: Answer
    ) -> None:
        """Answer as a stream: it may take long, and a client that hangs up meanwhile does not want it any more."""
        await answer.begin_events({_SESSION: client})
        leaving = asyncio.create_task(reader.read(1))  # a client has nothing to say while it waits
        try:
            for request in requests:
                await self._answer_one(client, request, leaving, answer)
            if not leaving.done():
                await answer.end_events()
        finally:
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _answer_one(self, client: str, request: Json, leaving: asyncio.Task[bytes], answer: Answer) -> None:
        call = asyncio.create_task(self._answer(request))
        key = client, repr(request.get("id"))
        self._calls[key] = call
        try:
            while not call.done() and not leaving.done():
                await asyncio.wait({call, leaving}, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                if not call.done() and not leaving.done():
                    await answer.sign_of_life()
            if call.done() and not call.cancelled():  # else nobody waits for it any more
                await answer.event(_encoded(call.result()))
        finally:
            del self._calls[key]
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)

    # the protocol ---------------------------------------------------------------------------------------------

    async def _answer(self, request: Json) -> Json:
        id, params = request.get("id"), request.get("params")
        if params is not None and not isinstance(params, dict):
            return _error(id, _INVALID_REQUEST, "params are an object")
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
                return _error(id, _NO_SUCH_METHOD, f"no such method: {method}")

    async def _call(self, id: Any, params: Json) -> Json:
        tool = self._tools.get(str(params.get("name")))
        if tool is None:
            return _error(id, _INVALID_PARAMS, f"no such tool: {params.get('name')}")
        try:
            text, failed = await tool.run(params.get("arguments") or {}), False
        except Exception as error:  # the agent is told, whatever it was: it is the agent's call
            text, failed = str(error) or type(error).__name__, True
        return _result(id, {"content": [{"type": "text", "text": text}], "isError": failed})


def _greeting(params: Json) -> Json:
    wanted = params.get("protocolVersion")
    return {
        "protocolVersion": wanted if wanted in _VERSIONS else _VERSIONS[-1],
        "capabilities": {"tools": {"listChanged": False}},
        "serverInfo": {"name": "atomic", "version": "1"},
    }


def _described(tool: CustomTool) -> Json:
    return {"name": tool.name, "description": tool.description, "inputSchema": {"type": "object", **tool.schema}}


def _result(id: Any, result: Json) -> Json:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def _error(id: Any, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message}}


def _encoded(message: Json) -> bytes:
    return msgspec.json.encode(message)
