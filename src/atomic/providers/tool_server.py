"""Serve custom tools to agents over MCP.

`ToolProtocol` handles the messages and is independent of the transport: Claude Code
sends them over its own streams. For agents that cannot do that, `serving_tools` serves
MCP's streamable HTTP on loopback, as far as tools need it, and requires a token. Why it
is not the `mcp` package: docs/decisions/0007-tool-server.md.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Any, TypeAlias, cast

import msgspec

from atomic.base.http_server import (
    HOST,
    BadRequestError,
    Request,
    ResponseWriter,
    listen,
    read_request_body,
    read_request_head,
)
from atomic.providers.base import CustomTool
from atomic.providers.turn import cancel_all

PATH = "/mcp"
MAX_BODY = 64 * 1024 * 1024
HEARTBEAT = 10.0  # seconds
_SESSION = "mcp-session-id"
_log = logging.getLogger(__name__)
Json: TypeAlias = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
NO_SUCH_METHOD = -32601
INVALID_PARAMS = -32602
CANCELLED = -32800
_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")


class ToolProtocol:
    """Answers MCP messages.

    A call ends when it is done, its context ends, or its client cancels it.
    """

    def __init__(self, tools: Sequence[CustomTool]) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._calls: dict[tuple[str, str], asyncio.Task[Json]] = {}  # by client and request id

    async def exchange(self, message: Json) -> Json:
        """Answer any message of a single client.

        A notification gets an empty result.
        """
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


class ToolServer(msgspec.Struct, frozen=True):
    """The address of the tools and the token that calls need."""

    url: str
    token: str


@asynccontextmanager
async def serving_tools(tools: Sequence[CustomTool]) -> AsyncGenerator[ToolServer]:
    """Serve the tools in this context; leaving it ends all calls and connections."""
    token = secrets.token_urlsafe(32)
    handler = _Handler(ToolProtocol(tools), token)

    def log_failure(error: BaseException) -> None:
        _log.error("the tool server failed", exc_info=error)

    async with listen(handler.serve, log_failure) as port:
        yield ToolServer(f"http://{HOST}:{port}{PATH}", token)


class _Handler:
    """Serves all clients.

    A call ends with its connection, or when its client cancels it.
    """

    def __init__(self, protocol: ToolProtocol, token: str) -> None:
        self._protocol = protocol
        self._token = token

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer requests of one connection until it ends."""
        answer = ResponseWriter(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):  # the client closed the connection
            try:
                while (head := await read_request_head(reader)) is not None:
                    if not await self._exchange(head, reader, answer):
                        break
            except BadRequestError as error:
                await answer.send(error.status, last=True)
            writer.close()
            await writer.wait_closed()

    async def _exchange(self, head: Request, reader: asyncio.StreamReader, answer: ResponseWriter) -> bool:
        """Answer one request and return whether the connection may be used again."""
        scheme, _, token = head.headers.get("authorization", "").partition(" ")
        is_token = secrets.compare_digest(token.strip().encode(), self._token.encode())
        if scheme.lower() != "bearer" or not is_token:
            await answer.send(HTTPStatus.UNAUTHORIZED, headers={"www-authenticate": "Bearer"}, last=True)
            return False
        body = await read_request_body(reader, head, limit=MAX_BODY)
        if head.path != PATH:
            await answer.send(HTTPStatus.NOT_FOUND)
        elif head.method == "DELETE":
            await answer.send(HTTPStatus.OK)  # the client ends its session, which has no state here
        elif head.method != "POST":
            await answer.send(HTTPStatus.METHOD_NOT_ALLOWED, headers={"allow": "POST, DELETE"})
        else:
            return await self._messages(head, body, reader, answer)
        return True

    async def _messages(self, head: Request, body: bytes, reader: asyncio.StreamReader, answer: ResponseWriter) -> bool:
        try:
            given: object = msgspec.json.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            await answer.send(HTTPStatus.BAD_REQUEST, _encoded(failed(None, PARSE_ERROR, f"not JSON: {error}")))
            return True
        client = head.headers.get(_SESSION) or secrets.token_hex(16)
        messages = cast("list[object]", given) if isinstance(given, list) else [given]
        objects = [cast("Json", message) for message in messages if isinstance(message, dict)]
        for message in objects:
            self._protocol.notice(message, client)
        requests = [message for message in objects if is_request(message)]
        if not requests:
            await answer.send(HTTPStatus.ACCEPTED)
            return True
        if len(requests) == 1 and requests[0]["method"] != "tools/call":
            await answer.send(HTTPStatus.OK, _encoded(await self._protocol.answer(requests[0])), {_SESSION: client})
            return True
        await self._stream_answers(client, requests, reader, answer)
        return False

    async def _stream_answers(
        self, client: str, requests: Sequence[Json], reader: asyncio.StreamReader, answer: ResponseWriter
    ) -> None:
        """Answer as a stream: a call may take long, and the client may cancel it by
        closing.
        """
        await answer.begin_events({_SESSION: client, "connection": "close"})
        leaving = asyncio.create_task(reader.read(1))  # ends if the client closes the connection
        try:
            for request in requests:
                await self._answer_one(client, request, leaving, answer)
            if not leaving.done():
                await answer.end_events()
        finally:
            await cancel_all(leaving)

    async def _answer_one(
        self, client: str, request: Json, leaving: asyncio.Task[bytes], answer: ResponseWriter
    ) -> None:
        async with self._protocol.calling(request, client) as call:
            while not call.done() and not leaving.done():
                await asyncio.wait({call, leaving}, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                if not call.done() and not leaving.done():
                    await answer.send_heartbeat()
            if call.done() and not call.cancelled():  # else the client cancelled it
                await answer.send_event(_encoded(call.result()))


def _encoded(message: Json) -> bytes:
    return msgspec.json.encode(message)
