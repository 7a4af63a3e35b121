"""Our own tools for agents that cannot call a Python function: an MCP server on loopback, behind a token.

It speaks MCP's streamable HTTP as far as tools need it; what is said over it is in `tool_protocol`. Why it is not the
`mcp` package: docs/decisions/0007-tool-server.md.
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

from atomic.http1 import MAX_HEAD
from atomic.loopback import HOST, listening
from atomic.providers.base import CustomTool
from atomic.providers.tool_http import Answer, BadRequestError, Request, read_body, read_head
from atomic.providers.tool_protocol import PARSE_ERROR, Json, ToolProtocol, failed, is_request

PATH = "/mcp"
HEARTBEAT = 10.0  # seconds
_SESSION = "mcp-session-id"
_log = logging.getLogger(__name__)


class ToolServer(msgspec.Struct, frozen=True):
    """Where the tools can be called, and the token without which they cannot."""

    url: str
    token: str


@asynccontextmanager
async def serving_tools(tools: Sequence[CustomTool]) -> AsyncGenerator[ToolServer]:
    """Offer the tools while the context lasts; leaving it ends all calls and connections."""
    token = secrets.token_urlsafe(32)
    desk = _Desk(ToolProtocol(tools), token)
    async with listening(desk.serve, _note_failure, limit=MAX_HEAD) as port:
        yield ToolServer(f"http://{HOST}:{port}{PATH}", token)


def _note_failure(error: BaseException) -> None:
    _log.error("the tool server failed", exc_info=error)


class _Desk:
    """Serves all clients. A call ends with its connection, or when its client says that it is cancelled."""

    def __init__(self, protocol: ToolProtocol, token: str) -> None:
        self._protocol, self._token = protocol, token

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer on one connection until it ends."""
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
            await answer.whole(HTTPStatus.BAD_REQUEST, _encoded(failed(None, PARSE_ERROR, f"no JSON: {error}")))
            return True
        client = head.headers.get(_SESSION) or secrets.token_hex(16)
        messages = cast("list[object]", given) if isinstance(given, list) else [given]
        objects = [cast("Json", message) for message in messages if isinstance(message, dict)]
        for message in objects:
            self._protocol.notice(message, client)
        requests = [message for message in objects if is_request(message)]
        if not requests:
            await answer.whole(HTTPStatus.ACCEPTED)
            return True
        if len(requests) == 1 and requests[0]["method"] != "tools/call":
            await answer.whole(HTTPStatus.OK, _encoded(await self._protocol.answer(requests[0])), {_SESSION: client})
            return True
        await self._answer_slowly(client, requests, reader, answer)
        return False

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
        async with self._protocol.calling(request, client) as call:
            while not call.done() and not leaving.done():
                await asyncio.wait({call, leaving}, timeout=HEARTBEAT, return_when=asyncio.FIRST_COMPLETED)
                if not call.done() and not leaving.done():
                    await answer.sign_of_life()
            if call.done() and not call.cancelled():  # else nobody waits for it any more
                await answer.event(_encoded(call.result()))


def _encoded(message: Json) -> bytes:
    return msgspec.json.encode(message)
