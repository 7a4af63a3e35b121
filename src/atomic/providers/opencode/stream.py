"""The event stream of a server: read it, reopen it when it breaks, and route its events.

Each session gets its own and its sub-agents' events.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeAlias

import msgspec

from atomic.base.http import HttpError, LoopbackClient
from atomic.base.sse import MAX_EVENT, SseEvent, SseReader
from atomic.providers.opencode import messages

_MAX_FAILURES = 4  # connections in a row without an event
_FIRST_EVENT_SECONDS = 10.0  # the server sends it at once
_PAUSE = 0.1  # seconds before a new connection; doubled each time
_CONNECTED = b'"server.connected"'
_SESSION = re.compile(rb'"sessionID"\s*:\s*"(\w+)"')
_log = logging.getLogger(__name__)


class Event(msgspec.Struct, frozen=True):
    """Something that happened in a session."""

    session: str
    type: str
    properties: msgspec.Raw


class Gap(msgspec.Struct, frozen=True):
    """The stream was interrupted: missed events must be requested."""


InboxItem: TypeAlias = Event | Gap | Exception


class Inbox:
    """The events for one session."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._items: asyncio.Queue[InboxItem] = asyncio.Queue()

    def put(self, item: InboxItem) -> None:
        self._items.put_nowait(item)

    async def take(self) -> Event | Gap:
        """Return the next item, or raise it if it is an error."""
        item = await self._items.get()
        if isinstance(item, Exception):
            raise item
        return item


class Router:
    """Takes the events of a server and puts them into the inboxes of their sessions."""

    def __init__(self) -> None:
        self._inboxes: dict[str, Inbox] = {}  # by session; a sub-agent's session has its parent's

    @contextmanager
    def listening(self, session: str) -> Generator[Inbox]:
        """Receive the events of a session and of its sub-agents."""
        inbox = self._inboxes[session] = Inbox(session)
        try:
            yield inbox
        finally:
            self._inboxes = {id: other for id, other in self._inboxes.items() if other is not inbox}

    def adopt(self, child: str, inbox: Inbox) -> None:
        """Route the events of a sub-agent's session to its parent's inbox."""
        self._inboxes.setdefault(child, inbox)

    def receive(self, event: SseEvent) -> None:
        """Route an event.

        An unreadable event ends the turn of its session, or all turns if its session is
        unknown.
        """
        try:
            if event.too_big:
                raise messages.UnreadableError(f"an event of more than {MAX_EVENT} bytes")
            self._route(messages.read(event.data, messages.Envelope).payload)
        except msgspec.ValidationError as error:
            _log.warning("opencode: ignored an event of an unknown shape: %s", error)
        except messages.UnreadableError as error:
            self._send_to_owner(event.data, error)

    def send_to_all(self, item: InboxItem) -> None:
        for inbox in set(self._inboxes.values()):
            inbox.put(item)

    def _route(self, payload: messages.Payload) -> None:
        owner = messages.read(payload.properties, messages.Owner)
        if owner.session is None:
            if payload.type == "session.error":  # of no session
                _log.warning(
                    "opencode reports an error: %s", bytes(payload.properties)[:500].decode("utf-8", "replace")
                )
            return
        if payload.type == "session.created":
            child = messages.read(payload.properties, messages.SessionCreated).info
            parent = self._inboxes.get(child.parent or "")
            if parent is not None:
                self.adopt(child.id, parent)
        inbox = self._inboxes.get(owner.session)
        if inbox is not None:
            inbox.put(Event(owner.session, payload.type, payload.properties))

    def _send_to_owner(self, data: bytes, error: messages.UnreadableError) -> None:
        _log.warning("%s", error)
        found = _SESSION.search(data)
        inbox = self._inboxes.get(found[1].decode()) if found else None
        if inbox is not None:
            inbox.put(error)
        elif found is None:
            self.send_to_all(error)


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
