"""Cases about a model provider that fails, is overloaded or closes the connection."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic

from atomic.providers import AgentEvent, EndReason, LimitReached, TextDelta, ToolEnded, ToolStarted
from atomic.testing.conformance.case import Cases, Stage, World, gone
from atomic.testing.model_server import Cut, Drip, Fail, HalfCharacter, Pause, Say, Script, Stall

cases = Cases("Failures")
deaths = Cases("Deaths")


async def _fails(world: World, reason: EndReason, *words: str) -> None:
    async with world.open() as session:
        heard = (await world.turn(session, "fail")).ended(reason)
        assert heard.end.error, heard
        for word in words:
            assert word in heard.end.error, heard.end.error
        assert (await world.turn(session, "next")).ended().end.text == "Still here."


@cases.case(lambda stage: {"fail": Fail(400, message="the scripted model is confused"), "next": "Still here."})
async def a_bad_request(world: World) -> None:
    """Report 400 as an error with the provider's message."""
    await _fails(world, EndReason.ERROR, "confused")


@cases.case(lambda stage: {"fail": Fail(401, message="the key is not valid"), "next": "Still here."})
async def a_wrong_key(world: World) -> None:
    """Report 401 as an error."""
    await _fails(world, EndReason.ERROR)


@cases.case(lambda stage: {"fail": Fail(500), "next": "Still here."})
async def an_internal_error(world: World) -> None:
    """Report 500 as an error."""
    await _fails(world, EndReason.ERROR)


@cases.case(lambda stage: {"fail": Fail(429, message="too many requests", headers={"retry-after": "600"})})
async def a_limit_with_a_reset_time(world: World) -> None:
    """End the turn at the limit after 429 with a reset time."""
    async with world.open() as session:
        heard = (await world.turn(session, "fail")).ended(EndReason.LIMIT)
    limits = heard.of(LimitReached)
    assert limits
    known = [limit.reset_at for limit in limits if limit.reset_at is not None]
    for reset_at in known:
        assert 0 < (reset_at - datetime.now(UTC)).total_seconds() < 700, reset_at


@cases.case(lambda stage: {"fail": Fail(429, message="too many requests")})
async def a_limit_without_a_reset_time(world: World) -> None:
    """End the turn at the limit after 429 without a reset time."""
    async with world.open() as session:
        heard = (await world.turn(session, "fail")).ended(EndReason.LIMIT)
    assert heard.of(LimitReached)


@cases.case(lambda stage: {"fail": Fail(529, message="overloaded")})
async def an_overload(world: World) -> None:
    """End the turn at the limit after 529."""
    async with world.open() as session:
        heard = (await world.turn(session, "fail")).ended(EndReason.LIMIT)
    assert heard.of(LimitReached)


@cases.case(lambda stage: {"cut": [[Say("This answer is cut in the"), Cut()]] * 12})
async def the_stream_is_cut(world: World) -> None:
    """Report a stream that closes in the middle of an event as an error."""
    async with world.open() as session:
        heard = await world.turn(session, "cut")
    assert heard.end.reason in (EndReason.ERROR, EndReason.LIMIT), heard


@cases.case(lambda stage: {"half": [[Say("The price is 3 "), HalfCharacter("€", cut=True)]] * 12})
async def half_a_character_and_no_more(world: World) -> None:
    """Report a stream that ends with half a character as an error."""
    async with world.open() as session:
        heard = await world.turn(session, "half")
    assert heard.end.reason in (EndReason.ERROR, EndReason.LIMIT), heard


@cases.case(lambda stage: {"stall": [[Say("One moment"), Stall()]], "next": "Still here."})
async def a_stalled_stream_can_be_stopped(world: World) -> None:
    """Interrupt a turn whose model stalls, and continue the session."""
    async with world.open() as session:
        await world.interrupted(session, "stall", lambda event: bool(getattr(event, "text", "")))
        assert (await world.turn(session, "next")).ended().end.text == "Still here."


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


@deaths.case(_work)
async def killed_before_a_tool(world: World) -> None:
    """Continue after `kill -9` of the program while the model sends text."""
    await _dies(world, "before", TextDelta)


@deaths.case(_work)
async def killed_during_a_tool(world: World) -> None:
    """Continue after `kill -9` of the program while a tool runs."""
    await _dies(world, "during", ToolStarted)


@deaths.case(_work)
async def killed_after_a_tool(world: World) -> None:
    """Continue after `kill -9` of the program after a tool; the tool is not run again."""
    await _dies(world, "after", ToolEnded)
    assert (world.folder / "ran.txt").read_text() == "ran\n"


@deaths.case(lambda stage: {"slow": Drip("word", times=400, every=0.05)})
async def a_program_that_does_not_listen(world: World) -> None:
    """Stop a program that does not react, within two seconds, with all its processes."""
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


@deaths.case(lambda stage: {"hello": "Hello."})
async def nothing_is_left_behind(world: World) -> None:
    """Leave no process behind after a session."""
    before = set(world.programs())
    async with world.open() as session:
        (await world.turn(session, "hello")).ended()
        during = set(world.programs())
    shared = before & during
    assert await gone([pid for pid in during if pid not in shared], within=5)
