"""Messages of the protocol in the stream: one of JSON a line, each with a bound."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from atomic.providers.jsonrpc import UnreadableMessageError


class Lines:
    """The framing of the protocol. `printed` hears what is no message, but harmless."""

    def __init__(self, printed: Callable[[str], None]) -> None:
        self._printed = printed

    async def messages(self, stdout: asyncio.StreamReader) -> AsyncGenerator[Any]:
        """Each message up to the end. Raises UnreadableMessageError."""
        while line := await _line(stdout):
            line = line.strip()
            if line.startswith((b"{", b"[{", b"[[")):
                yield _decoded(line)
            elif text := _text(line):
                self._printed(text)  # some agents print a word of their own on the stream

    def framed(self, content: bytes) -> bytes:
        return content + b"\n"


async def _line(stdout: asyncio.StreamReader) -> bytes:
    try:
        return await stdout.readuntil(b"\n")
    except asyncio.LimitOverrunError as error:
        raise UnreadableMessageError(f"it wrote a line of more than {error.consumed} bytes") from None
    except (asyncio.IncompleteReadError, OSError):  # its end; half a message is none
        return b""


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnreadableMessageError(f"a message cannot be read: {error}: {line[:200]!r}") from error


def _text(line: bytes) -> str:
    """The line as text; but bytes that are no text are no print."""
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise UnreadableMessageError(f"it wrote bytes that are no text: {line[:200]!r}") from None
