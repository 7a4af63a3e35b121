"""The engine's end of the socket to the screen: intents come in, events go out."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from atomic.chat.protocol import ChatEvent, Intent, decode_intent, encode

_LONGEST_LINE = 256 * 1024 * 1024  # bytes: a prompt with its pastes
_MOST_UNSENT = 4 * 1024 * 1024  # bytes

_log = logging.getLogger(__name__)


class ScreenConnection:
    """Sends without waiting. Long streams call `wait_for_room` between their events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, fd: int) -> ScreenConnection:
        """Open the inherited end of a socket pair."""
        end = socket.socket(fileno=fd)
        end.setblocking(False)
        return cls(*await asyncio.open_connection(sock=end, limit=_LONGEST_LINE))

    def send(self, event: ChatEvent) -> None:
        """Send an event. Does nothing if the screen has gone."""
        if not self._writer.is_closing():
            self._writer.write(encode(event))

    async def wait_for_room(self) -> None:
        """Wait while much is still unsent."""
        if self._writer.transport.get_write_buffer_size() > _MOST_UNSENT:
            with suppress(ConnectionError):  # `intents` ends when the screen has gone
                await self._writer.drain()

    async def intents(self) -> AsyncIterator[Intent]:
        """Yield the user's intents until the screen has gone."""
        while True:
            try:
                line = await self._reader.readline()
            except (ConnectionError, ValueError) as error:
                _log.warning("the connection to the screen failed: %s", error)
                return
            if not line.endswith(b"\n"):
                return
            try:
                yield decode_intent(line)
            except msgspec.DecodeError as error:  # of another version: only this intent is lost
                _log.warning("an intent cannot be read: %s", error)

    async def close(self, limit: float) -> None:
        """Send the remaining events and close, within a time limit."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(limit):
                await self._writer.drain()
                self._writer.close()
                await self._writer.wait_closed()
