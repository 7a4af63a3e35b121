"""HTTP/1.1, as little of it as clients of a model need, and as much as is needed to break it on purpose."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from atomic.base.http import Body, parse_fields, read_all

MAX_BODY = 1024 * 1024 * 1024
LINE_LIMIT = 1024 * 1024
_SPLIT_PAUSE = 0.05  # seconds between the two halves of a character, so that they arrive alone


class BadRequestError(Exception):
    """What came is not a request that can be read."""


class CutError(Exception):
    """The answer ends here, in the middle: the connection must be closed."""


class Request(msgspec.Struct, frozen=True):
    """A request; the names of its headers are in lower case."""

    method: str
    path: str  # without the query
    headers: Mapping[str, str]
    body: bytes


async def read_request(first_line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request:
    """Read the rest of a request whose first line was read.

    Raises:
        BadRequestError: it is none.
    """
    try:
        method, target, _ = first_line.decode("latin-1").split(" ", 2)
        headers = await _read_headers(reader)
        if headers.get("expect", "").lower() == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        body = await _read_body(reader, headers)
    except (ValueError, zlib.error) as error:  # also a line beyond the limit
        raise BadRequestError(str(error)) from error
    return Request(method, target.partition("?")[0], headers, body)


async def _read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    lines: list[str] = []
    while line := (await reader.readline()).strip():
        lines.append(line.decode("latin-1"))
    return parse_fields(lines)


async def _read_body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    body = await read_all(Body(reader, headers), MAX_BODY)
    match headers.get("content-encoding", "identity").lower():
        case "identity":
            return body
        case "gzip":
            return zlib.decompress(body, wbits=31)  # 31: with gzip's header
        case encoding:
            raise ValueError(f"content-encoding {encoding} is not understood")


class Response:
    """An answer on its way to the client. It can be whole or a stream of events, and cut or split on the way."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.is_open = False  # the client has seen something of it
        self._writer = writer
        self._room: int | None = None  # how many bytes of the body may still go out
        self._halve_next = False
        self._split: tuple[bytes, bool] | None = None  # a character, and whether its rest is kept back

    # how it is to go wrong ---------------------------------------------------------------------------------

    def cut(self, after: int | None) -> None:
        """Have the next event cut in its middle, or the body after some bytes more, if it has them."""
        self._room, self._halve_next = after, after is None

    def split(self, character: str, *, cut: bool) -> None:
        """Have the next occurrence of a character sent in two parts."""
        self._split = character.encode(), cut

    # whole -------------------------------------------------------------------------------------------------

    async def whole(self, status: int, content: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send all of it at once."""
        body = b"" if content is None else msgspec.json.encode(content)
        fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self._head(status, fields)
        await self._body(body, chunked=False)

    async def begin_whole(self) -> None:
        """Send the first byte of an answer whose rest will never come."""
        await self._head(200, {"content-type": "application/json", "content-length": "1000"})
        await self._write(b"{")

    # stream ------------------------------------------------------------------------------------------------

    async def open_stream(self) -> None:
        """Begin a stream of events."""
        fields = {"content-type": "text/event-stream", "cache-control": "no-cache", "transfer-encoding": "chunked"}
        await self._head(200, fields)

    async def event(self, name: str, data: Mapping[str, Any] | str) -> None:
        """Send one event; a text is sent as it is."""
        content = data.encode() if isinstance(data, str) else msgspec.json.encode(data)
        head = f"event: {name}\n".encode() if name else b""
        await self._body(head + b"data: " + content + b"\n\n", chunked=True)

    async def close_stream(self) -> None:
        """End the stream; the connection can be used again."""
        await self._write(b"0\r\n\r\n")

    # bytes -------------------------------------------------------------------------------------------------

    async def _head(self, status: int, fields: Mapping[str, str]) -> None:
        self.is_open = True
        lines = [f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}", "request-id: req_scripted"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        await self._write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    async def _body(self, data: bytes, *, chunked: bool) -> None:
        character, keep_back = self._split or (b"", False)
        position = data.find(character) if character else -1
        if position < 0:
            await self._piece(data, chunked=chunked)
            return
        self._split = None
        await self._piece(data[: position + 1], chunked=chunked)
        await asyncio.sleep(_SPLIT_PAUSE)
        if keep_back:
            raise CutError
        await self._piece(data[position + 1 :], chunked=chunked)

    async def _piece(self, data: bytes, *, chunked: bool) -> None:
        before, behind = (b"%x\r\n" % len(data), b"\r\n") if chunked else (b"", b"")
        allowed = self._allowed(len(data))
        if allowed < len(data):
            await self._write(before + data[:allowed])
            raise CutError
        await self._write(before + data + behind)

    def _allowed(self, size: int) -> int:
        if self._halve_next:
            return size // 2
        if self._room is None:
            return size
        allowed = min(size, self._room)
        self._room -= allowed
        return allowed

    async def _write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()
