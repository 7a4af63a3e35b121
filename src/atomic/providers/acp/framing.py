"""The framing of the protocol: one JSON message per line, of bounded length."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from atomic.providers.jsonrpc import UnreadableMessageError


class Lines:
    """The framing of the protocol. `printed` receives harmless lines that are not messages."""

    def __init__(self, printed: Callable[[str], None]) -> None:
        self._printed = printed

    async def messages(self, stdout: asyncio.StreamReader) -> AsyncGenerator[Any]:
        """Yield each message until the stream ends. Raise UnreadableMessageError."""
        while line := await _line(stdout):
            line = line.strip()
            if line.startswith((b"{", b"[{", b"[[")):
                yield _decoded(line)
            elif text := _text(line):
                self._printed(text)  # some agents print plain text on the stream

    def framed(self, content: bytes) -> bytes:
        return content + b"\n"


async def _line(stdout: asyncio.StreamReader) -> bytes:
    try:
        return await stdout.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise UnreadableMessageError(f"it wrote a line of more than {error.consumed} bytes") from None
    except (asyncio.IncompleteReadError, OSError):  # the end; an incomplete message is ignored
        return b""


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableMessageError(f"unreadable message: {error}: {line[:200]!r}") from error


def _text(line: bytes) -> str:
    """Decode a line. Raise UnreadableMessageError for bytes that are not text."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise UnreadableMessageError(f"it wrote bytes that are not text: {line[:200]!r}") from None
