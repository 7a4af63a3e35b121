"""The event stream of a server: read it, check for heartbeats, reopen it when it
breaks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

from atomic.base.http import HttpError, LoopbackClient
from atomic.base.sse import SseEvent, SseReader
from atomic.providers.opencode.router import Gap, Router

_MAX_FAILURES = 4  # connections in a row without an event
_FIRST_EVENT_SECONDS = 10.0  # the server sends it at once
_PAUSE = 0.1  # seconds before a new connection; doubled each time
_CONNECTED = b'"server.connected"'
_log = logging.getLogger(__name__)


class EventStream:
    """Reads events while the server lives."""

    def __init__(
        self, client: LoopbackClient, router: Router, *, liveness: float, has_ended: Callable[[], bool]
    ) -> None:
        self.open = asyncio.Event()  # set by the first event
        self._client = client
        self._router = router
        self._liveness = liveness
        self._has_ended = has_ended
        self._failures = 0  # connections in a row without an event

    async def read(self) -> str:
        """Pass on all events until the server is lost; return the reason."""
        while True:
            reason = await self._read_once()
            if self._has_ended() or self._failures >= _MAX_FAILURES:
                return reason
            _log.info("opencode: reopening the event stream, which broke: %s", reason)
            await asyncio.sleep(_PAUSE * 2**self._failures)

    async def _read_once(self) -> str:
        self._failures += 1
        try:
            await self._read_events()
        except TimeoutError:
            return f"no event within {self._liveness:g} s"
        except HttpError as error:
            return str(error)
        return "it was closed"

    async def _read_events(self) -> None:
        reader = SseReader()
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(min(self._liveness, _FIRST_EVENT_SECONDS)) as limit:
            async with self._client.request("GET", "/global/event") as response:
                if response.status != HTTPStatus.OK:
                    raise HttpError(f"HTTP {response.status}")
                while piece := await response.body.read():
                    limit.reschedule(clock() + self._liveness)
                    for event in reader.feed(piece):
                        self._handle(event)

    def _handle(self, event: SseEvent) -> None:
        if _CONNECTED in event.data[:200]:
            if self.open.is_set():
                self._router.send_to_all(Gap())
            self.open.set()
            return
        self._failures = 0
        self._router.receive(event)
