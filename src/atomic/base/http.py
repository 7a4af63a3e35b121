"""HTTP/1.1 over asyncio streams: messages, and a client for servers on loopback.

`read_head` and `Body` read requests and responses alike; `http_server` has the other
side of the connection. Proxies, certificates, redirects and compression are not
supported.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import quote, urlencode, urlsplit

import msgspec

MAX_HEAD = 64 * 1024
LAST_CHUNK = b"0\r\n\r\n"
_PIECE = 256 * 1024


class HttpError(Exception):
    """A request failed: no connection, or an answer that is invalid or too long."""


class MalformedError(ValueError):
    """A message is not valid HTTP."""


class TooLongError(MalformedError):
    """A message is longer than its reader allows."""


async def read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    """Return the first line of a message, and its header fields by lower-case name.

    Raises:
        TooLongError: the head exceeds the limit of the reader.
        IncompleteReadError: the connection ends first.
    """
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError as error:
        raise TooLongError("its head is too long") from error
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return first, {name.strip().lower(): value.strip() for name, _, value in pairs}


def encode_head(first: str, fields: Mapping[str, str]) -> bytes:
    """Return the head of a message: its first line, its fields, an empty line."""
    lines = [first, *(f"{name}: {value}" for name, value in fields.items()), "", ""]
    return "\r\n".join(lines).encode("latin-1")


def encode_chunk(data: bytes) -> bytes:
    """Return one chunk of a body with `transfer-encoding: chunked`."""
    return b"%x\r\n" % len(data) + data + b"\r\n"


class Body:
    """The body of a message, read in pieces.

    Without a length, a response lasts until the connection ends (`until_end`), and a
    request has no body.
    """

    def __init__(self, reader: asyncio.StreamReader, fields: Mapping[str, str], *, until_end: bool = False) -> None:
        """Raise MalformedError if the length is not a number."""
        self._reader = reader
        self._is_chunked = fields.get("transfer-encoding", "").lower() == "chunked"
        self._has_ended = False
        # Bytes left of the body, or of the chunk; None means until the connection ends.
        self._left: int | None = 0
        length = fields.get("content-length")
        if not self._is_chunked and length:
            self._left = _parse_length(length, 10)
        elif not self._is_chunked and until_end:
            self._left = None

    @property
    def length(self) -> int | None:
        """Return the number of bytes left, or None if it is unknown."""
        return None if self._is_chunked else self._left

    async def read(self) -> bytes:
        """Return the next piece, or nothing at the end.

        Raises:
            MalformedError: a chunk is invalid.
            IncompleteReadError: the connection ends too early.
        """
        if self._is_chunked and self._left == 0 and not self._has_ended:
            await self._begin_chunk()
        if self._has_ended or self._left == 0:
            return b""
        piece = await self._reader.read(_PIECE if self._left is None else min(_PIECE, self._left))
        if self._left is None:
            self._has_ended = not piece
            return piece
        if not piece:
            raise asyncio.IncompleteReadError(b"", self._left)
        self._left -= len(piece)
        if self._is_chunked and self._left == 0:
            await self._reader.readexactly(2)
        return piece

    async def _begin_chunk(self) -> None:
        size = await _read_line(self._reader)
        self._left = _parse_length(size.partition(";")[0], 16)
        if self._left == 0:
            self._has_ended = True
            while await _read_line(self._reader):
                pass  # fields after the last chunk


async def read_all(body: Body, limit: int) -> bytes:
    """Read a body to its end. Raise TooLongError, and the errors of `Body.read`."""
    if (body.length or 0) > limit:
        raise TooLongError(f"its body is longer than {limit:,} bytes")
    data = bytearray()
    while piece := await body.read():
        data += piece
        if len(data) > limit:
            raise TooLongError(f"its body is longer than {limit:,} bytes")
    return bytes(data)


def _parse_length(text: str, base: int) -> int:
    try:
        length = int(text.strip(), base)
    except ValueError:
        length = -1
    if length < 0:
        raise MalformedError(f'"{text[:40]}" is not a length')
    return length


async def _read_line(reader: asyncio.StreamReader) -> str:
    try:
        line = await reader.readline()
    except ValueError as error:  # the line exceeds the limit of the reader
        raise MalformedError("a line is too long") from error
    if not line.endswith(b"\n"):
        raise asyncio.IncompleteReadError(line, None)
    return line.decode("latin-1").strip()


class Response(msgspec.Struct, frozen=True):
    """A response whose head was read; names of fields are in lower case."""

    status: int
    fields: dict[str, str]
    body: Body


class LoopbackClient:
    """Sends requests to one server, each over its own connection.

    A connection is never reused, because the server may have closed it.
    """

    def __init__(self, url: str, *, user: str, password: str) -> None:
        self.url = url.rstrip("/")
        parts = urlsplit(self.url)
        self._host = parts.hostname or ""
        self._port = parts.port or 80
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
        """Send a request, with `content` as JSON.

        Leaving the context closes the connection.

        Raises HttpError, also for errors of reading the body inside the context.
        """
        target = quote(path)
        if query:
            target += f"?{urlencode(query)}"
        fields = dict(self._fields)
        if content is not None:
            fields["content-type"] = "application/json"
            fields["content-length"] = str(len(content))
        try:
            reader, writer = await asyncio.open_connection(self._host, self._port, limit=MAX_HEAD)
        except OSError as error:
            raise HttpError(error.strerror or str(error)) from error
        try:
            writer.write(encode_head(f"{method} {target} HTTP/1.1", fields) + (content or b""))
            await writer.drain()
            yield await _read_response(reader)
        except TooLongError as error:
            raise HttpError(f"its answer is too long: {error}") from error
        except MalformedError as error:
            raise HttpError(f"its answer is not HTTP: {error}") from error
        except asyncio.IncompleteReadError as error:
            raise HttpError("it ended the connection in the middle of its answer") from error
        except ConnectionError as error:
            raise HttpError(error.strerror or str(error)) from error
        finally:
            writer.transport.abort()  # discards unsent data


async def _read_response(reader: asyncio.StreamReader) -> Response:
    """Return the first response that is not informational (1xx)."""
    while True:
        first, fields = await read_head(reader)
        version, _, rest = first.partition(" ")
        status = rest[:3]
        if not version.startswith("HTTP/1.") or not status.isdigit() or len(status) != 3:
            raise MalformedError(f'"{first[:40]}" is not a status')
        if int(status) >= 200:
            has_no_body = status in ("204", "304")
            body = Body(reader, {} if has_no_body else fields, until_end=not has_no_body)
            return Response(int(status), fields, body)
