"""The one stream of events of a server: read, watched for signs of life, and opened again when it breaks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

from atomic.http1 import HttpError, LoopbackClient
from atomic.providers.opencode.router import Gap, Router
from atomic.providers.opencode.sse import SseEvent, SseReader

_TRIES = 4  # in a row without a single event, then it is given up
_WELCOME = 10.0  # seconds for its first word, which it says at once
_PAUSE = 0.1  # seconds before the second one; doubled each time
_GREETING = b'"server.connected"'
_log = logging.getLogger(__name__)


class EventStream:
    """Reads events for as long as the server lives."""

    def __init__(
        self, client: LoopbackClient, router: Router, *, liveness: float, has_ended: Callable[[], bool]
    ) -> None:
        self.open = asyncio.Event()  # it has been heard once
        self._client, self._router = client, router
        self._liveness, self._has_ended = liveness, has_ended
        self._fruitless = 0  # connections in a row that brought nothing

    async def read(self) -> str:
        """Pass all events on until the server is lost; say why that is so."""
        while True:
            reason = await self._read_once()
            if self._has_ended() or self._fruitless >= _TRIES:
                return reason
            _log.info("opencode: the stream of events broke (%s) and is opened again", reason)
            await asyncio.sleep(_PAUSE * 2**self._fruitless)

    async def _read_once(self) -> str:
        self._fruitless += 1
        try:
            await self._read_events()
        except TimeoutError:
            return f"no sign of life within {self._liveness:g} s"
        except HttpError as error:
            return str(error)
        return "it was closed"

    async def _read_events(self) -> None:
        reader, clock = SseReader(), asyncio.get_running_loop().time
        async with asyncio.timeout(min(self._liveness, _WELCOME)) as limit:
            async with self._client.request("GET", "/global/event") as response:
                if response.status != HTTPStatus.OK:
                    raise HttpError(f"HTTP {response.status}")
                while piece := await response.body.read():
                    limit.reschedule(clock() + self._liveness)
                    for event in reader.feed(piece):
                        self._heard(event)

    def _heard(self, event: SseEvent) -> None:
        if _GREETING in event.data[:200]:
            if self.open.is_set():
                self._router.tell_all(Gap())
            self.open.set()
            return
        self._fruitless = 0
        self._router.hear(event)
