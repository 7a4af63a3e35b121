"""The agent's program dies or does not listen: the turn ends once, and nothing stays."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from time import monotonic

from atomic.providers import AgentEvent, EndReason, TextDelta, ToolEnded, ToolStarted
from atomic.testing.conformance.case import Cases
from atomic.testing.conformance.case_setup import Stage, World, gone
from atomic.testing.model_server import Drip, Pause, Say, Script

cases = Cases("Deaths")


def _work(stage: Stage) -> dict[str, Script]:
    return {
        "before": [[Say("Let me see. "), Pause(30), stage.words.bash("true")], "Done."],
        "during": [[stage.words.bash("exec -a sleeper sleep 30")], "Done."],
        "after": [[stage.words.bash("echo ran >> ran.txt")], Drip("word", times=400, every=0.05)],
        "next": "Still here.",
    }


async def _dies(world: World, script: str, when: type[AgentEvent]) -> None:
    async with world.open() as session:
        killed: list[int] = []

        def act(event: AgentEvent) -> None:
            if not killed and isinstance(event, when):
                killed.extend(world.programs())
                for pid in killed:
                    with suppress(ProcessLookupError):  # one may have been a short-lived helper of another
                        os.kill(pid, signal.SIGKILL)

        heard = await world.until(session, script, act)
        assert killed, f"there was no program to kill: {heard}"
        assert heard.end.reason is EndReason.ERROR, heard
        assert heard.end.error
        if world.provider.capabilities.resume:
            assert (await world.turn(session, "next")).ended().end.text == "Still here."


@cases.case(_work)
async def killed_before_a_tool(world: World) -> None:
    """kill -9 of the program while the model speaks."""
    await _dies(world, "before", TextDelta)


@cases.case(_work)
async def killed_during_a_tool(world: World) -> None:
    """kill -9 of the program while a tool runs."""
    await _dies(world, "during", ToolStarted)


@cases.case(_work)
async def killed_after_a_tool(world: World) -> None:
    """kill -9 of the program behind a tool; what the tool did stays done, once."""
    await _dies(world, "after", ToolEnded)
    assert (world.folder / "ran.txt").read_text() == "ran\n"


@cases.case(lambda stage: {"slow": Drip("word", times=400, every=0.05)})
async def a_program_that_does_not_listen(world: World) -> None:
    """A program that reacts to nothing is stopped all the same, within two seconds, and none of it is left."""
    async with world.open() as session:
        stopped: list[int] = []
        began = 0.0

        async def stop() -> None:
            nonlocal began
            stopped.extend(world.programs())
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            began = monotonic()
            await session.interrupt()

        stopping: list[asyncio.Task[None]] = []

        def act(event: AgentEvent) -> None:
            if not stopping and isinstance(event, TextDelta):
                stopping.append(asyncio.create_task(stop()))

        (await world.until(session, "slow", act)).ended(EndReason.INTERRUPTED)
        assert monotonic() - began < 2.5
        await stopping[0]
    assert await gone(stopped, within=10)


@cases.case(lambda stage: {"hello": "Hello."})
async def nothing_is_left_behind(world: World) -> None:
    """Behind a session there is no process more than before."""
    before = set(world.programs())
    async with world.open() as session:
        (await world.turn(session, "hello")).ended()
        during = set(world.programs())
    shared = before & during
    assert await gone([pid for pid in during if pid not in shared], within=5)
