"""Cases about interrupts, after which the session continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from time import monotonic
from typing import cast

from atomic.providers import (
    AgentEvent,
    AgentSession,
    AgentSpec,
    EndReason,
    SessionBusyError,
    SubagentStarted,
    TextDelta,
    ToolStarted,
)
from atomic.testing.conformance.case import PATIENCE, Cases, Heard, Stage, World, gone, processes_of, seen
from atomic.testing.model_server import CallState, Drip, Script, Stall

cases = Cases("Interrupts")


async def _continues(world: World, session: AgentSession) -> None:
    assert (await world.turn(session, "next")).ended().end.text == "Still here."


@cases.case(lambda stage: {"mute": Stall(), "next": "Still here."})
async def interrupt_before_the_first_byte(world: World) -> None:
    """Interrupt before the model sends anything."""
    async with world.open() as session:
        heard = Heard()

        async def read() -> None:
            async for event in session.send(world.prompt("mute")):
                heard.events.append(event)

        async with asyncio.timeout(PATIENCE):
            reading = asyncio.create_task(read())
            await world.called("mute")
            began = monotonic()
            await session.interrupt()
            await reading
        assert monotonic() - began < 2.5
        heard.ended(EndReason.INTERRUPTED)
        await _continues(world, session)


@cases.case(lambda stage: {"slow": Drip("word", times=400, every=0.05), "next": "Still here."})
async def interrupt_in_the_text(world: World) -> None:
    """Interrupt in the middle of the text; the connection to the model closes too."""
    async with world.open() as session:
        await world.interrupted(session, "slow", lambda event: isinstance(event, TextDelta))
        [call] = world.calls("slow")
        await world.server.wait_for(lambda one: one is call and one.state is CallState.CLIENT_CLOSED, timeout=10)
        await _continues(world, session)


def _sleeps(stage: Stage) -> dict[str, Script]:
    return {"tool": [[stage.words.bash(f"exec -a {_tag(stage)} sleep 300")], "Slept."], "next": "Still here."}


def _tag(stage: Stage) -> str:
    return f"sleeper-{stage.case}-{stage.folder.parent.name}"


@cases.case(_sleeps)
async def interrupt_in_a_tool(world: World) -> None:
    """Interrupt a running tool; its process ends."""
    stopping: list[asyncio.Task[float]] = []

    async def stop() -> float:
        async with asyncio.timeout(PATIENCE):
            await seen(_tag(world.stage))
            began = monotonic()
            await session.interrupt()
            return monotonic() - began

    def act(event: AgentEvent) -> None:
        if isinstance(event, ToolStarted):
            stopping.append(asyncio.create_task(stop()))

    async with world.open() as session:
        (await world.until(session, "tool", act)).ended(EndReason.INTERRUPTED)
        assert await stopping[0] < 2.5
        assert await gone(processes_of(_tag(world.stage)), within=5)
        await _continues(world, session)


def _subagent(stage: Stage) -> dict[str, Script]:
    return {
        "lead": [[stage.words.subagent("worker", f"{stage.mark('part')} Do it.")], "Lead."],
        "part": [[stage.words.bash("exec -a sleeper sleep 300")], "Slept."],
        "next": "Still here.",
    }


@cases.case(_subagent, needs=lambda can: can.subagents)
async def interrupt_in_a_subagent(world: World) -> None:
    """Interrupt a sub-agent; it ends with the turn."""
    worker = AgentSpec(name="worker", description="Works.", prompt="You work.")
    async with world.open(agents=[worker]) as session:
        heard = await world.interrupted(
            session, "lead", lambda event: isinstance(event, ToolStarted) and bool(event.agent)
        )
        assert heard.of(SubagentStarted)
        await _continues(world, session)


@cases.case(lambda stage: {"slow": Drip("word", times=400, every=0.05), "next": "Still here."})
async def closing_the_iterator_interrupts(world: World) -> None:
    """Stop the turn if the caller stops reading its events."""
    async with world.open() as session:
        async with asyncio.timeout(PATIENCE):
            async with aclosing(cast("AsyncGenerator[AgentEvent]", session.send(world.prompt("slow")))) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
        [call] = world.calls("slow")
        await world.server.wait_for(lambda one: one is call and one.state is CallState.CLIENT_CLOSED, timeout=10)
        await _continues(world, session)


@cases.case(lambda stage: {"slow": Drip("word", times=400, every=0.05)})
async def cancelling_the_reader_interrupts(world: World) -> None:
    """End the turn and the session if the caller's task is cancelled, and stay cancelled."""
    first = asyncio.Event()

    async def read() -> None:
        async with world.open() as session:
            async for event in session.send(world.prompt("slow")):
                if isinstance(event, TextDelta):
                    first.set()

    reading = asyncio.create_task(read())
    async with asyncio.timeout(PATIENCE):
        await first.wait()
        reading.cancel()
        results = await asyncio.gather(reading, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    [call] = world.calls("slow")
    await world.server.wait_for(lambda one: one is call and one.state is CallState.CLIENT_CLOSED, timeout=10)


@cases.case(lambda stage: {"slow": Drip("word", times=400, every=0.05)})
async def one_prompt_at_a_time(world: World) -> None:
    """Refuse a second prompt during a turn, without harm to the turn."""
    async with world.open() as session:

        async def second() -> None:
            try:
                async for _ in session.send("Me too."):
                    raise AssertionError("a second turn began")
            except SessionBusyError:
                await session.interrupt()

        def act(event: AgentEvent) -> object:
            return second() if isinstance(event, TextDelta) and not acted.append(event) and len(acted) == 1 else None

        acted: list[AgentEvent] = []
        (await world.until(session, "slow", act)).ended(EndReason.INTERRUPTED)


@cases.case(lambda stage: {"hello": "Hello."})
async def interrupt_without_a_turn_does_nothing(world: World) -> None:
    """Ignore an interrupt between two turns."""
    async with world.open() as session:
        await session.interrupt()
        (await world.turn(session, "hello")).ended()
        await session.interrupt()
        (await world.turn(session, "hello")).ended()
