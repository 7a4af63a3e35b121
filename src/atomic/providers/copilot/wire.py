"""Messages of Copilot in the stream: each behind a header that tells its length."""

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
        """Each message up to the end. Raises UnreadableMessageError."""
        while (length := await _next_length(stdout)) is not None:
            yield await _content(stdout, length)

    def framed(self, content: bytes) -> bytes:
        return b"Content-Length: %d\r\n\r\n%b" % (len(content), content)


async def _next_length(stdout: asyncio.StreamReader) -> int | None:
    """How long the next message is; None at the end."""
    try:
        return _length(await stdout.readuntil(b"\r\n\r\n"))
    except asyncio.LimitOverrunError:
        raise UnreadableMessageError("it sent a line that has no end") from None
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
        raise UnreadableMessageError("it sent a message that is nested too deep") from None
    except ValueError as error:
        raise UnreadableMessageError(f"it sent a message that is no JSON ({error})") from None


def _length(header: bytes) -> int:
    name, _, value = header.partition(b":")
    if name.lower() != b"content-length" or not value.strip().isdigit():
        raise UnreadableMessageError(f"it sent {header[:200]!r}, which is no message")
    length = int(value)
    if length > MESSAGE_LIMIT:
        raise UnreadableMessageError(f"it sent a message of {length} bytes (at most {MESSAGE_LIMIT} are read)")
    return length
