"""One turn of an agent: what is told about it, and its one end."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

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
    """Events as an adapter tells them and a reader takes them. The first `end` wins; nothing comes after it."""

    def __init__(self, provider: str, *, hear: Callable[[AgentEvent], None] | None = None) -> None:
        self.provider = provider
        self._hear = hear  # each event when it is told, before a reader comes to it
        self.ending = False  # somebody wants it to stop: what the program now says of its end is an interruption
        self.problem: str | None = None  # why it is stopped, if that is nobody's wish: then it ends as an error
        self.unknown: Counter[str] = Counter()  # messages that were not understood, by kind
        self.late = 0  # events after the end
        self._events: deque[AgentEvent] = deque()
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._text: list[str] = []  # of the agent's last message
        self._usage = Usage()
        self._limit: LimitReached | None = None

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def tell(self, event: AgentEvent) -> None:
        """Pass an event on."""
        if self.over:
            self.late += 1
            _log.debug("%s: %s came after the end of its turn", self.provider, type(event).__name__)
            return
        match event:
            case TurnEnded():
                raise TypeError("a turn is ended by end()")
            case TextDelta(agent=None):
                self._text.append(event.text)
                self._limit = None  # it goes on: the provider serves again
            case ToolStarted(agent=None):
                self._text.clear()  # what comes behind a tool call is another message
                self._limit = None
            case UsageReported():
                self._usage += event.usage
            case LimitReached():
                self._limit = event
            case _:
                pass
        self._put(event)

    def begin_message(self) -> None:
        """The agent starts a new message; the text of the one before is not its last any more."""
        self._text.clear()

    def note_unknown(self, kind: str) -> None:
        """A message that nobody understands: counted, logged once a kind, never fatal."""
        self.unknown[kind] += 1
        if self.unknown[kind] == 1:
            _log.warning('%s: a message of kind "%s" is not known here and was passed over', self.provider, kind)

    def end(
        self, reason: EndReason, *, text: str | None = None, usage: Usage | None = None, error: str | None = None
    ) -> None:
        """End the turn. `text` and `usage` where the provider tells them, else what was heard counts.

        Whatever a program says about its end after it was told to stop, the turn was interrupted; and one that failed
        because the provider does not serve now ended at a limit.
        """
        if self.over:
            return
        if self.problem is not None:
            reason, error = EndReason.ERROR, self.problem
        elif self.ending and reason is not EndReason.DONE:
            reason, error = EndReason.INTERRUPTED, None
        elif reason is EndReason.ERROR and self._limit is not None:
            reason = EndReason.LIMIT
        said = "".join(self._text) if text is None else text
        self._put(TurnEnded(reason, said, self._usage if usage is None else usage, error))
        self._over.set()

    async def wait_over(self, timeout: float | None = None) -> None:
        """Wait for the end, or so many seconds."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._over.wait(), timeout)

    async def events(self) -> AsyncGenerator[AgentEvent]:
        """All events up to and with the end."""
        while True:
            while self._events:
                event = self._events.popleft()
                yield event
                if isinstance(event, TurnEnded):
                    return
            self._news.clear()
            await self._news.wait()

    def _put(self, event: AgentEvent) -> None:
        if self._hear is not None:
            self._hear(event)
        self._events.append(event)
        self._news.set()
