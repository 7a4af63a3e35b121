"""HTTP responses of the model server, which can break on purpose."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from atomic.base.http import encode_chunk
from atomic.base.http_server import BadRequestError, ResponseWriter

_SPLIT_PAUSE = 0.05  # seconds between the two halves of a character, so that they arrive separately


class CutError(Exception):
    """The answer ends in the middle; the connection must be closed."""


def decode_body(body: bytes, encoding: str) -> bytes:
    """Return the body without its content encoding. Raise BadRequestError."""
    if encoding == "identity":
        return body
    if encoding != "gzip":
        raise BadRequestError(HTTPStatus.BAD_REQUEST, f"content-encoding {encoding} is not supported")
    try:
        return zlib.decompress(body, wbits=31)  # 31: with the header of gzip
    except zlib.error as error:
        raise BadRequestError(HTTPStatus.BAD_REQUEST, str(error)) from error


class Response(ResponseWriter):
    """An answer, whole or as a stream of events; it can be cut or split."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        super().__init__(writer)
        self.is_open = False  # something was sent
        self._room: int | None = None  # bytes of the body before the cut
        self._halve_next = False
        self._split: tuple[bytes, bool] | None = None  # a character, and whether its rest is never sent

    def cut(self, after: int | None) -> None:
        """Cut the next event in its middle, or the body after that many more bytes."""
        self._room = after
        self._halve_next = after is None

    def split(self, character: str, *, cut: bool) -> None:
        """Send the next occurrence of a character in two parts."""
        self._split = character.encode(), cut

    async def whole(self, status: int, content: Any, headers: Mapping[str, str] | None = None) -> None:
        """Send the whole answer at once."""
        body = b"" if content is None else msgspec.json.encode(content)
        fields = {"content-type": "application/json", "content-length": str(len(body)), **(headers or {})}
        await self.begin(status, fields)
        await self._send(body, chunked=False)

    async def begin_whole(self) -> None:
        """Send the first byte of an answer without its rest."""
        await self.begin(200, {"content-type": "application/json", "content-length": "1000"})
        await self.write(b"{")

    async def begin(self, status: int, fields: Mapping[str, str]) -> None:
        self.is_open = True
        await super().begin(status, {"request-id": "req_scripted", **fields})

    async def event(self, name: str, data: Mapping[str, Any] | str) -> None:
        """Send one event; a text is sent as it is."""
        await self.send_event(data.encode() if isinstance(data, str) else msgspec.json.encode(data), name)

    async def write_chunk(self, data: bytes) -> None:
        await self._send(data, chunked=True)

    async def _send(self, data: bytes, *, chunked: bool) -> None:
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
        allowed = self._allowed(len(data))
        if allowed < len(data):
            size_line = b"%x\r\n" % len(data) if chunked else b""
            await self.write(size_line + data[:allowed])
            raise CutError
        await self.write(encode_chunk(data) if chunked else data)

    def _allowed(self, size: int) -> int:
        if self._halve_next:
            return size // 2
        if self._room is None:
            return size
        allowed = min(size, self._room)
        self._room -= allowed
        return allowed
