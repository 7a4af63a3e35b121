"""Serve custom tools to agents that cannot call Python: an MCP server on loopback.

It implements MCP's streamable HTTP as far as tools need it and requires a token;
`tool_protocol` handles the messages. Why it is not the `mcp` package:
docs/decisions/0007-tool-server.md.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import cast

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
from atomic.providers.tool_protocol import PARSE_ERROR, Json, ToolProtocol, failed, is_request
from atomic.providers.turn import cancel_all

PATH = "/mcp"
MAX_BODY = 64 * 1024 * 1024
HEARTBEAT = 10.0  # seconds
_SESSION = "mcp-session-id"
_log = logging.getLogger(__name__)


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
    """Serves all clients. A call ends with its connection, or when its client cancels it."""

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
        if not self._is_authorized(head):
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

    def _is_authorized(self, head: Request) -> bool:
        scheme, _, token = head.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and secrets.compare_digest(token.strip().encode(), self._token.encode())

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
