"""The engine's end of the socket: intents come in, news go out, one JSON object a line."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from atomic.chat.protocol import ChatEvent, Intent, decode_intent, encode

_LONGEST = 256 * 1024 * 1024  # bytes of one intent: a prompt with what was pasted into it
_MUCH = 4 * 1024 * 1024  # bytes that the screen has not taken yet

_log = logging.getLogger(__name__)


class Wire:
    """What is said is never waited for; `room` is for those who have much to say."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, fd: int) -> Wire:
        """Take the inherited end of a socket pair."""
        end = socket.socket(fileno=fd)
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end, limit=_LONGEST))

    def tell(self, news: ChatEvent) -> None:
        """Say it; a screen that has gone hears nothing."""
        if not self._writer.is_closing():
            self._writer.write(encode(news))

    async def room(self) -> None:
        """Wait while the screen is far behind."""
        if self._writer.transport.get_write_buffer_size() > _MUCH:
            with suppress(ConnectionError):  # it has gone: its end is noticed where intents are read
                await self._writer.drain()

    async def intents(self) -> AsyncIterator[Intent]:
        """What the person wants, until the screen has gone."""
        while line := await self._line():
            try:
                yield decode_intent(line)
            except msgspec.DecodeError as error:  # of another version: one intent is lost, not the conversation
                _log.warning("an intent cannot be read: %s", error)

    async def _line(self) -> bytes:
        try:
            line = await self._reader.readline()
        except (ConnectionError, ValueError) as error:
            _log.warning("the screen cannot be heard any more: %s", error)
            return b""
        return line if line.endswith(b"\n") else b""

    async def close(self, limit: float) -> None:
        """Let the screen have the last words, if it takes them in time."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(limit):
                await self._writer.drain()
                self._writer.close()
                await self._writer.wait_closed()
