"""What a run tells its host, in order, without ever waiting for it.

A host that reads slowly finds an agent's words joined. One that does not read at all costs a bounded amount of memory:
what agents did long ago is left out and counted; it is in the session's log. What the host must know is never left out.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

import msgspec

from atomic.providers.events import TextDelta, ThinkingDelta, ToolOutput, TurnEnded
from atomic.workflows.events import AgentActivity, Warning, WorkflowEvent

MOST = 10_000  # events that wait
LONGEST = 1_000_000  # characters of joined words

_Delta = TextDelta | ThinkingDelta | ToolOutput


class _Item:
    """An event that waits, and the words that were added to it."""

    __slots__ = ("event", "pieces", "size")

    def __init__(self, event: WorkflowEvent) -> None:
        self.event = event
        self.pieces: deque[str] = deque()
        self.size = 0

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.size += len(text)
        while self.size > LONGEST and len(self.pieces) > 1:
            self.size -= len(self.pieces.popleft())

    def told(self) -> WorkflowEvent:
        if not self.pieces or not isinstance(self.event, AgentActivity) or not isinstance(self.event.event, _Delta):
            return self.event
        delta = msgspec.structs.replace(self.event.event, text=self.event.event.text + "".join(self.pieces))
        return msgspec.structs.replace(self.event, event=delta)


class News:
    """A queue of events with one reader. `seq` is given when an event is read."""

    def __init__(self, run: str) -> None:
        self._run = run
        self._items: deque[_Item] = deque()
        self._tails: dict[tuple[Any, ...], _Item] = {}  # by speaker: the words that may still grow
        self._news = asyncio.Event()
        self._closed = False
        self._seq = self._left_out = 0

    def put(self, event: WorkflowEvent) -> None:
        """Tell it."""
        if isinstance(event, AgentActivity):
            self._put_activity(event)
        else:
            self._tails.clear()
            self._items.append(_Item(event))
        if len(self._items) > MOST:
            self._thin_out()
        self._news.set()

    def close(self) -> None:
        """Nothing more will come."""
        self._closed = True
        self._news.set()

    async def get(self) -> WorkflowEvent | None:
        """The next event; None when all are read."""
        while not self._items:
            if self._closed:
                return None
            self._news.clear()
            await self._news.wait()
        if self._left_out:
            return self._numbered(self._apology())
        item = self._items.popleft()
        for key in [key for key, tail in self._tails.items() if tail is item]:
            del self._tails[key]
        return self._numbered(item.told())

    def _put_activity(self, event: AgentActivity) -> None:
        inner, speaker = event.event, (event.node, event.task, event.role, event.event.agent)
        if not isinstance(inner, _Delta):
            for key in [key for key in self._tails if key[:4] == speaker]:
                del self._tails[key]
            self._items.append(_Item(event))
            return
        key = (*speaker, type(inner), getattr(inner, "id", None))
        tail = self._tails.get(key)
        if tail is not None:
            tail.add(inner.text)
            return
        item = self._tails[key] = _Item(event)
        self._items.append(item)

    def _thin_out(self) -> None:
        """Leave out the older half of what agents did, but for how their turns ended."""
        kept: deque[_Item] = deque()
        half = len(self._items) // 2
        for place, item in enumerate(self._items):
            event = item.event
            if place < half and isinstance(event, AgentActivity) and not isinstance(event.event, TurnEnded):
                self._left_out += 1
            else:
                kept.append(item)
        self._items = kept
        self._tails.clear()

    def _apology(self) -> Warning:
        count, self._left_out = self._left_out, 0
        text = f"{count:,} events of agents were left out: they came faster than they were read (the log has them)"
        return Warning(run=self._run, seq=0, time=self._items[0].event.time, text=text)

    def _numbered(self, event: WorkflowEvent) -> WorkflowEvent:
        self._seq += 1
        return msgspec.structs.replace(event, seq=self._seq)
