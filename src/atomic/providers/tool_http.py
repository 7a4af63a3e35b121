"""HTTP/1.1 on a loopback connection, as far as MCP clients need it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from atomic.base.http import Body, MalformedError, TooLongError, parse_fields, read_all

MAX_BODY = 64 * 1024 * 1024


class BadRequestError(Exception):
    """The request cannot be read; `status` is the answer to send."""

    def __init__(self, status: HTTPStatus) -> None:
        self.status = status
        super().__init__(status.phrase)


class Request(msgspec.Struct, frozen=True):
    """A request; header names are in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""


async def read_head(reader: asyncio.StreamReader) -> Request | None:
    """Return the next request without its body, None at the end. Raise BadRequestError."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError as error:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE) from error
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    return Request(words[0], words[1].partition("?")[0], parse_fields(lines))


async def read_body(reader: asyncio.StreamReader, head: Request) -> bytes:
    """Return the body. Raise BadRequestError if it is too long or its length is invalid."""
    try:
        return await read_all(Body(reader, head.headers), MAX_BODY)
    except TooLongError as error:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE) from error
    except (MalformedError, asyncio.IncompleteReadError) as error:
        raise BadRequestError(HTTPStatus.BAD_REQUEST) from error


class Answer:
    """Writes responses to a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def send(
        self, status: HTTPStatus, body: bytes = b"", headers: Mapping[str, str] | None = None, *, last: bool = False
    ) -> None:
        """Send a complete response; with `last` the connection closes after it."""
        fields = {"content-length": str(len(body)), **(headers or {})}
        if last:
            fields["connection"] = "close"
        if body:
            fields.setdefault("content-type", "application/json")
        await self._write(_head(status, fields) + body)

    async def begin_events(self, headers: Mapping[str, str]) -> None:
        """Begin a stream of events; the connection ends with it."""
        fields = {
            "content-type": "text/event-stream",
            "cache-control": "no-cache",
            "transfer-encoding": "chunked",
            "connection": "close",
        }
        await self._write(_head(HTTPStatus.OK, {**fields, **headers}))

    async def event(self, data: bytes) -> None:
        await self._chunk(b"event: message\ndata: " + data + b"\n\n")

    async def send_heartbeat(self) -> None:
        """Send a comment, so that the client does not consider the connection dead."""
        await self._chunk(b": still running\n\n")

    async def end_events(self) -> None:
        await self._write(b"0\r\n\r\n")

    async def _chunk(self, data: bytes) -> None:
        await self._write(b"%x\r\n" % len(data) + data + b"\r\n")

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


def _head(status: HTTPStatus, fields: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")
