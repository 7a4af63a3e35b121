"""The framing of Copilot's messages: a header with the length before each message."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

from atomic.providers.jsonrpc import UnreadableMessageError

MESSAGE_LIMIT = 64 * 1024 * 1024  # bytes of one message


class Headed:
    """The framing of Copilot."""

    async def messages(self, stdout: asyncio.StreamReader) -> AsyncGenerator[Any]:
        """Yield each message until the stream ends. Raise UnreadableMessageError."""
        while (length := await _next_length(stdout)) is not None:
            yield await _content(stdout, length)

    def framed(self, content: bytes) -> bytes:
        return b"Content-Length: %d\r\n\r\n%b" % (len(content), content)


async def _next_length(stdout: asyncio.StreamReader) -> int | None:
    """Return the length of the next message, None at the end."""
    try:
        return _length(await stdout.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        raise UnreadableMessageError("it sent a line that is too long") from None
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise UnreadableMessageError(f"it ended with {error.partial[-200:]!r}") from None
        return None


async def _content(stdout: asyncio.StreamReader, length: int) -> Any:
    try:
        return json.loads(await stdout.readexactly(length))
    except asyncio.IncompleteReadError:
        raise UnreadableMessageError("it ended in the middle of a message") from None
    except RecursionError:
        raise UnreadableMessageError("it sent a message that is nested too deeply") from None
    except ValueError as error:
        raise UnreadableMessageError(f"it sent a message that is not JSON ({error})") from None


def _length(header: bytes) -> int:
    name, _, value = header.partition(b":")
    if name.lower() != b"content-length" or not value.strip().isdigit():
        raise UnreadableMessageError(f"it sent {header[:200]!r}, which is not a message")
    length = int(value)
    if length > MESSAGE_LIMIT:
        raise UnreadableMessageError(f"it sent a message of {length} bytes (at most {MESSAGE_LIMIT} are read)")
    return length
