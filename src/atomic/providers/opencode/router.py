"""Route events to sessions: each gets its own and its sub-agents' events."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec

from atomic.base.sse import MAX_EVENT, SseEvent
from atomic.providers.opencode import messages

_log = logging.getLogger(__name__)
_SESSION = re.compile(rb'"sessionID"\s*:\s*"(\w+)"')


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
