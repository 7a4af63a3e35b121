"""An adapter in memory, scripted by tests of the common code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import Any

from atomic.config import Settings
from atomic.providers import AgentEvent, Capabilities, Health, ModelInfo, SessionOptions, TurnEnded
from atomic.providers.session import LiveProvider, LiveSession
from atomic.providers.turn import Turn

Play = Callable[["ScriptedSession", Turn], Awaitable[None]]
Stop = Callable[["ScriptedSession", Turn], Awaitable[None]]


async def obey(session: ScriptedSession, turn: Turn) -> None:
    """Stop when asked."""
    session.stopped.set()


async def ignore(session: ScriptedSession, turn: Turn) -> None:
    """Ignore the request to stop."""


class ScriptedSession(LiveSession):
    """Runs the plays as its turns, in order, and repeats the last one."""

    def __init__(self, provider: ScriptedProvider, options: SessionOptions) -> None:
        super().__init__(provider.name, provider.capabilities, options)
        self.plays = provider.plays
        self.stop = provider.stop
        self.broken = provider.broken
        self.stopped = asyncio.Event()
        self.prompts: list[str] = []
        self.schemas: list[Mapping[str, Any] | None] = []
        self.running = 0
        self.most_at_once = 0
        self.stops = 0
        self.breaks = 0

    @property
    def id(self) -> str:
        return "scripted-1"

    async def run_turn(self, prompt: str, turn: Turn, *, schema: Mapping[str, Any] | None) -> None:
        play = self.plays[min(len(self.prompts), len(self.plays) - 1)]
        self.prompts.append(prompt)
        self.schemas.append(schema)
        self.running += 1
        self.most_at_once = max(self.most_at_once, self.running)
        try:
            await play(self, turn)
        finally:
            self.running -= 1

    async def stop_turn(self, turn: Turn) -> None:
        self.stops += 1
        await self.stop(self, turn)

    async def break_off(self) -> None:
        self.breaks += 1
        await self.broken()


async def at_once() -> None:
    """Kill the program."""


class ScriptedProvider(LiveProvider):
    """Opens scripted sessions."""

    name = "scripted"

    def __init__(
        self,
        *plays: Play,
        stop: Stop = obey,
        broken: Callable[[], Awaitable[None]] = at_once,
        capabilities: Capabilities | None = None,
        settings: Settings | None = None,
    ) -> None:
        super().__init__(settings or Settings())
        self.capabilities = capabilities or Capabilities()
        self.plays = plays
        self.stop = stop
        self.broken = broken
        self.opened = 0
        self.closed = 0

    @asynccontextmanager
    async def start(self, options: SessionOptions) -> AsyncGenerator[ScriptedSession]:
        self.opened += 1
        try:
            yield ScriptedSession(self, options)
        finally:
            self.closed += 1

    async def models(self) -> Sequence[ModelInfo]:
        return ()

    async def check(self) -> Health:
        return Health(True)


async def read(session: LiveSession, prompt: str = "go") -> list[AgentEvent]:
    """Return all events of a turn; the only end is the last."""
    async with asyncio.timeout(60), aclosing(session.send(prompt)) as turn:
        events = [event async for event in turn]
    assert [type(event) for event in events].count(TurnEnded) == 1
    return events


async def end_of(session: LiveSession, prompt: str = "go") -> TurnEnded:
    """Return the end of a turn."""
    end = (await read(session, prompt))[-1]
    assert isinstance(end, TurnEnded)
    return end
