"""HTTP/1.1 over asyncio streams: as much of it as programs on one machine need.

`parse_fields` and `Body` read the messages of clients and of servers alike. `LoopbackClient` asks a server on
loopback; proxies, certificates, redirects and compression are not for it.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import asynccontextmanager
from urllib.parse import quote, urlencode, urlsplit

import msgspec

MAX_HEAD = 64 * 1024
_PIECE = 256 * 1024


class HttpError(Exception):
    """The connection failed, or what came over it is not HTTP or too long."""


class MalformedError(ValueError):
    """A message breaks the rules of HTTP."""


class TooLongError(MalformedError):
    """A message is longer than its reader allows."""


def parse_fields(lines: Iterable[str]) -> dict[str, str]:
    """Return header fields by their names in lower case."""
    pairs = (line.partition(":") for line in lines if line)
    return {name.strip().lower(): value.strip() for name, _, value in pairs}


class Body:
    """The body of a message, read piece by piece.

    `until_end`: without a length it lasts until the connection ends (an answer); else it is empty (a request).
    """

    def __init__(self, reader: asyncio.StreamReader, fields: Mapping[str, str], *, until_end: bool = False) -> None:
        """Raise MalformedError if the length is no number."""
        self._reader = reader
        self._is_chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        self._has_ended = False
        self._left: int | None = 0  # bytes of the body, or of the chunk; None: until the connection ends
        if not self._is_chunked:
            self._left = None if until_end else 0
            if length := fields.get("content-length"):
                self._left = _number(length, 10)

    @property
    def length(self) -> int | None:
        """The bytes that are still to come, if they are known."""
        return None if self._is_chunked else self._left

    async def read(self) -> bytes:
        """Return the next piece; nothing at the end.

        Raises MalformedError, and IncompleteReadError where the connection ends too early.
        """
        if self._is_chunked and self._left == 0 and not self._has_ended:
            await self._begin_chunk()
        if self._has_ended or self._left == 0:
            return b""
        piece = await self._reader.read(_PIECE if self._left is None else min(_PIECE, self._left))
        if self._left is None:
            self._has_ended = not piece
        elif not piece:
            raise asyncio.IncompleteReadError(b"", self._left)
        else:
            self._left -= len(piece)
            if self._is_chunked and self._left == 0:
                await self._reader.readexactly(2)
        return piece

    async def _begin_chunk(self) -> None:
        self._left = _number((await _line(self._reader)).partition(";")[0], 16)
        if self._left == 0:
            self._has_ended = True
            while await _line(self._reader):
                pass  # fields after the last chunk


async def read_all(body: Body, limit: int) -> bytes:
    """Read a body to its end. Raise TooLongError, and what `Body.read` raises."""
    if (body.length or 0) > limit:
        raise TooLongError(f"longer than {limit} bytes")
    data = bytearray()
    while piece := await body.read():
        data += piece
        if len(data) > limit:
            raise TooLongError(f"longer than {limit} bytes")
    return bytes(data)


def _number(text: str, base: int) -> int:
    try:
        number = int(text.strip(), base)
    except ValueError:
        number = -1
    if number < 0:
        raise MalformedError(f'"{text[:40]}" is not a length')
    return number


async def _line(reader: asyncio.StreamReader) -> str:
    try:
        line = await reader.readline()
    except ValueError as error:  # beyond the reader's limit
        raise MalformedError("a line is too long") from error
    if not line.endswith(b"\n"):
        raise asyncio.IncompleteReadError(line, None)
    return line.decode("latin-1").strip()


class Response(msgspec.Struct, frozen=True):
    """An answer whose head has come; the names of its fields are in lower case."""

    status: int
    fields: dict[str, str]
    body: Body


class LoopbackClient:
    """Asks one server, each time over a connection of its own: none is kept that the server may have closed."""

    def __init__(self, url: str, *, user: str, password: str) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        self._fields = {
            "host": parts.netloc,
            "authorization": f"Basic {token}",
            "accept": "*/*",
            "accept-encoding": "identity",
            "connection": "close",
        }

    @asynccontextmanager
    async def request(
        self, method: str, path: str, *, query: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> AsyncGenerator[Response]:
        """Send a request, with `content` as JSON; leaving the context hangs up.

        Raises HttpError, also in place of what reading the body raises inside the context.
        """
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=MAX_HEAD)
        except OSError as error:
            raise HttpError(error.strerror or str(error)) from error
        try:
            writer.write(self._request(method, path, query or {}, content))
            await writer.drain()
            yield await _response(reader)
        except TooLongError as error:
            raise HttpError(f"its answer is {error}") from error
        except MalformedError as error:
            raise HttpError(f"its answer is not HTTP: {error}") from error
        except asyncio.IncompleteReadError as error:
            raise HttpError("it ended the connection in the middle of its answer") from error
        except ConnectionError as error:
            raise HttpError(error.strerror or str(error)) from error
        finally:
            writer.transport.abort()  # nothing that is still under way matters

    def _request(self, method: str, path: str, query: Mapping[str, str], content: bytes | None) -> bytes:
        fields = self._fields
        if content is not None:
            fields = {**fields, "content-type": "application/json", "content-length": str(len(content))}
        target = quote(path) + (f"?{urlencode(query)}" if query else "")
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + (content or b"")


async def _response(reader: asyncio.StreamReader) -> Response:
    while True:
        status, fields = await _head(reader)
        if status >= 200:
            body = Body(reader, {"content-length": "0"} if status in (204, 304) else fields, until_end=True)
            return Response(status, fields, body)


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise MalformedError("its head is too long") from error
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    status = rest[:3]
    if not version.startswith("HTTP/1.") or not status.isdigit() or len(status) != 3:
        raise MalformedError(f'"{first[:40]}" is not a status')
    return int(status), parse_fields(lines)
