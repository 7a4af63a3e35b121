"""One turn of an agent: its queue of events, its single end, and its background tasks."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import suppress
from typing import Any

from atomic.providers.events import (
    AgentEvent,
    EndReason,
    LimitReached,
    TextDelta,
    ToolStarted,
    TurnEnded,
    Usage,
    UsageReported,
)

_log = logging.getLogger(__name__)


class Turn:
    """A queue of events from an adapter to a reader.

    The first `end` wins and is the last event.
    """

    def __init__(self, provider: str, *, on_event: Callable[[AgentEvent], None] | None = None) -> None:
        self.provider = provider
        self._on_event = on_event  # called before a reader gets the event
        self.ending = False  # an interrupt was requested, so any end but DONE is an interruption
        self.problem: str | None = None  # why Atomic stops the turn, which makes it an error
        self.unknown: Counter[str] = Counter()  # messages of an unknown kind
        self.late = 0  # events after the end
        self._events: deque[AgentEvent] = deque()
        self._changed = asyncio.Event()
        self._over = asyncio.Event()
        self._text: list[str] = []  # the agent's last message
        self._usage = Usage()
        self._limit: LimitReached | None = None

    @property
    def over(self) -> bool:
        """Return whether the turn has ended."""
        return self._over.is_set()

    def emit(self, event: AgentEvent) -> None:
        """Queue an event for the reader."""
        if self.over:
            self.late += 1
            _log.debug("%s: %s came after the end of its turn", self.provider, type(event).__name__)
            return
        match event:
            case TurnEnded():
                raise TypeError("use end() to end a turn")
            case TextDelta(agent=None):
                self._text.append(event.text)
                self._limit = None  # the provider answers again
            case ToolStarted(agent=None):
                self._text.clear()  # a new message follows a tool call
                self._limit = None
            case UsageReported():
                self._usage += event.usage
            case LimitReached():
                self._limit = event
            case _:
                pass
        self._put(event)

    def begin_message(self) -> None:
        """Forget the text of the previous message: it is no longer the last one."""
        self._text.clear()

    def note_unknown(self, kind: str) -> None:
        """Count a message of an unknown kind and log the first one of each kind."""
        self.unknown[kind] += 1
        if self.unknown[kind] == 1:
            _log.warning('%s: ignored a message of the unknown kind "%s"', self.provider, kind)

    def end(
        self, reason: EndReason, *, text: str | None = None, usage: Usage | None = None, error: str | None = None
    ) -> None:
        """End the turn.

        `text` and `usage` override the values collected from events. After an interrupt
        was requested, every reason but DONE becomes INTERRUPTED. An error after an
        unresolved LimitReached becomes LIMIT.
        """
        if self.over:
            return
        if self.problem is not None:
            reason = EndReason.ERROR
            error = self.problem
        elif self.ending and reason is not EndReason.DONE:
            reason = EndReason.INTERRUPTED
            error = None
        elif reason is EndReason.ERROR and self._limit is not None:
            reason = EndReason.LIMIT
        if text is None:
            text = "".join(self._text)
        if usage is None:
            usage = self._usage
        self._put(TurnEnded(reason, text, usage, error))
        self._over.set()

    async def wait_over(self, timeout: float | None = None) -> None:
        """Wait for the end, at most `timeout` seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), timeout)

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """Yield all events, up to and including the end."""
        while True:
            while self._events:
                event = self._events.popleft()
                yield event
                if isinstance(event, TurnEnded):
                    return
            self._changed.clear()
            await self._changed.wait()

    def _put(self, event: AgentEvent) -> None:
        if self._on_event is not None:
            self._on_event(event)
        self._events.append(event)
        self._changed.set()


class TurnTasks:
    """Background work during a turn: custom tools, questions, permissions.

    `on_error` receives the error of a task that failed.
    """

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def cancel(self) -> None:
        """Cancel all running tasks and wait for them."""
        await cancel_all(*self._tasks)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)


async def cancel_all(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, wait for their end and ignore their results."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
