"""Run a turn of a real agent and select its events; used by the tests of all adapters."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from atomic.providers import AgentEvent, AgentSession, TextDelta, TurnEnded
from tests.support.waits import HANG as LIMIT

EventT = TypeVar("EventT")


async def turn(session: AgentSession, prompt: str) -> list[AgentEvent]:
    """Return all events of a turn; the only end is the last."""
    async with asyncio.timeout(LIMIT):
        events = [event async for event in session.send(prompt)]
    assert [event for event in events if isinstance(event, TurnEnded)] == events[-1:]
    return events


async def end(session: AgentSession, prompt: str) -> TurnEnded:
    return end_of(await turn(session, prompt))


def end_of(events: list[AgentEvent]) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


def all_of(kind: type[EventT], events: list[AgentEvent]) -> list[EventT]:
    return [event for event in events if isinstance(event, kind)]


def text_of(events: list[AgentEvent], agent: str | None = None) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta) and event.agent == agent)
