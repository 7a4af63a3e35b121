"""Who hears which event: each session hears its own and those of its sub-agents, which are sessions too."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TypeAlias

import msgspec

from atomic.providers.opencode import wire
from atomic.providers.opencode.sse import MAX_EVENT, SseEvent

_log = logging.getLogger(__name__)
_SESSION = re.compile(rb'"sessionID"\s*:\s*"(\w+)"')


class Event(msgspec.Struct, frozen=True):
    """Something that happened in a session."""

    session: str
    type: str
    properties: msgspec.Raw


class Gap(msgspec.Struct, frozen=True):
    """For a while nothing could be heard: what was said meanwhile must be asked for."""


News: TypeAlias = Event | Gap | Exception


class Inbox:
    """What one session hears."""

    def __init__(self, session: str) -> None:
        self.session = session
        self._news: asyncio.Queue[News] = asyncio.Queue()

    def put(self, news: News) -> None:
        self._news.put_nowait(news)

    async def take(self) -> Event | Gap:
        """The next news. Raises the error that came in its place."""
        news = await self._news.get()
        if isinstance(news, Exception):
            raise news
        return news


class Router:
    """Takes the events of a server and hands them to whom they belong."""

    def __init__(self) -> None:
        self._inboxes: dict[str, Inbox] = {}  # by session; a sub-agent's leads to the one it works for

    @contextmanager
    def listening(self, session: str) -> Generator[Inbox]:
        """Hear what happens in a session and below it."""
        inbox = self._inboxes[session] = Inbox(session)
        try:
            yield inbox
        finally:
            self._inboxes = {id: other for id, other in self._inboxes.items() if other is not inbox}

    def adopt(self, child: str, inbox: Inbox) -> None:
        """A session that works for another one."""
        self._inboxes.setdefault(child, inbox)

    def hear(self, event: SseEvent) -> None:
        """Pass an event on. One that cannot be read ends the turn it belongs to, or all if that cannot be seen."""
        try:
            if event.too_big:
                raise wire.UnreadableError(f"an event of more than {MAX_EVENT} bytes")
            self._route(wire.read(event.data, wire.Envelope).payload)
        except msgspec.ValidationError as error:
            _log.warning("opencode: an event of a new shape was passed over: %s", error)
        except wire.UnreadableError as error:
            self._tell_owner(event.data, error)

    def tell_all(self, news: News) -> None:
        for inbox in set(self._inboxes.values()):
            inbox.put(news)

    def _route(self, payload: wire.Payload) -> None:
        owner = wire.read(payload.properties, wire.Owner)
        if owner.session is None:
            if payload.type == "session.error":  # it does not say whose
                _log.warning("opencode complains: %s", bytes(payload.properties)[:500].decode("utf-8", "replace"))
            return
        if payload.type == "session.created":
            self._born(payload.properties)
        inbox = self._inboxes.get(owner.session)
        if inbox is not None:
            inbox.put(Event(owner.session, payload.type, payload.properties))

    def _born(self, properties: msgspec.Raw) -> None:
        child = wire.read(properties, wire.SessionNews).info
        parent = self._inboxes.get(child.parent or "")
        if parent is not None:
            self.adopt(child.id, parent)

    def _tell_owner(self, data: bytes, error: wire.UnreadableError) -> None:
        _log.warning("%s", error)
        found = _SESSION.search(data)
        inbox = self._inboxes.get(found[1].decode()) if found else None
        if inbox is not None:
            inbox.put(error)
        elif found is None:
            self.tell_all(error)
