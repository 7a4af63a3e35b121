"""Test interrupts: a turn stops within two seconds at any point, and the session continues."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from pathlib import Path
from typing import cast

import pytest

from atomic.providers import (
    AgentEvent,
    AgentSession,
    EndReason,
    SubagentEnded,
    SubagentStarted,
    TextDelta,
    ToolEnded,
    ToolStarted,
)
from atomic.testing.model_server import Call, CallState, Drip, Pause, Say, Stop
from tests.providers.claude.sandbox import agent, bash, sandbox, sleep_command
from tests.providers.processes import appears, disappears, find
from tests.providers.turns import LIMIT, all_of, end, end_of
from tests.support.timing import judge

pytestmark = [pytest.mark.ci, pytest.mark.timed]

QUICK = 2.5  # seconds: the limit of two, and some reserve for a busy machine


async def run_interrupted(session: AgentSession, prompt: str, when: Callable[[AgentEvent], bool]) -> list[AgentEvent]:
    """Run a turn, interrupt it at the first matching event, and return all its events."""
    events: list[AgentEvent] = []
    stopping: asyncio.Task[None] | None = None
    began = 0.0
    async with asyncio.timeout(LIMIT):
        async for event in session.send(prompt):
            events.append(event)
            if stopping is None and when(event):
                began = time.monotonic()
                stopping = asyncio.create_task(session.interrupt())
        judge(time.monotonic() - began, QUICK)
        assert stopping is not None
        await stopping
    assert end_of(events).reason is EndReason.INTERRUPTED
    assert end_of(events).error is None
    return events


async def test_a_turn_stops_in_its_text_in_a_tool_and_in_sub_agents(tmp_path: Path) -> None:
    scripts = {
        "text": [["Before. ", Stop("length")], [Drip("w", 1000, 0.02)]],
        "tool": [[bash(sleep_command(101))], "never"],
        "inside": [agent("child", run_in_background=False), "never"],
        # For a while only the sub-agents are running.
        "background": [[agent("child"), agent("talker")], "waiting", "never"],
        "child": [[Pause(0.7), bash(sleep_command(102))], "never"],
        "talker": [[Drip("c", 1000, 0.02)]],
        "say": "hello",
    }
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        events = await run_interrupted(
            session, "@@text@@ go", lambda one: isinstance(one, TextDelta) and "w" in one.text
        )
        assert end_of(events).text.startswith("w1 ")
        await here.server.wait_for(lambda call: call.script == "text" and call.state is CallState.CLIENT_CLOSED)

        running = asyncio.create_task(collect(session, "@@tool@@ go"))
        await appears("time.sleep(101)")
        began = time.monotonic()
        await session.interrupt()
        judge(time.monotonic() - began, QUICK)
        events = await running
        assert end_of(events).reason is EndReason.INTERRUPTED
        assert [one.id for one in all_of(ToolEnded, events)] == [one.id for one in all_of(ToolStarted, events)]
        await disappears("time.sleep(101)")

        for script in ("inside", "background"):
            events = await run_interrupted(session, f"@@{script}@@ go", is_tool_of_sub_agent)
            ended = {one.id: one.error for one in all_of(SubagentEnded, events)}
            assert ended.keys() == {one.id for one in all_of(SubagentStarted, events)}
            assert all(ended.values())
            await disappears("time.sleep(102)")

        assert (await end(session, "@@say@@ go")).text == "hello"
        last = str(here.server.calls[-1].body["messages"])
        assert "@@text@@" in last  # the conversation is still the same
        assert "[Request interrupted by user]" in last


def is_tool_of_sub_agent(event: AgentEvent) -> bool:
    return isinstance(event, ToolStarted) and event.agent is not None


async def collect(session: AgentSession, prompt: str) -> list[AgentEvent]:
    return [event async for event in session.send(prompt)]


async def test_a_turn_stops_at_any_moment_before_the_first_byte(tmp_path: Path) -> None:
    scripts = {"late": [[Pause(LIMIT), Say("never")]], "say": "hello"}
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        await interrupt_after(session, 3)  # while it still starts
        await end(session, "@@say@@ go")
        programs = find(session.id)
        for moment in range(20):
            await interrupt_after(session, moment)
        for seconds in (0.001, 0.005, 0.02, 0.3):
            await interrupt_after(session, 0, seconds)
        assert find(session.id) == programs  # it was interrupted, not killed
        assert (await end(session, "@@say@@ go")).text == "hello"
        assert here.server.calls[-1].script == "say"


async def interrupt_after(session: AgentSession, moments: int, seconds: float = 0.0) -> None:
    running = asyncio.create_task(collect(session, "@@late@@ go"))
    # Each moment is one step of the event loop between the call and the prompt being sent.
    for _ in range(moments):
        await asyncio.sleep(0)
    await asyncio.sleep(seconds)
    began = time.monotonic()
    await session.interrupt()
    async with asyncio.timeout(LIMIT):
        events = await running
    judge(time.monotonic() - began, QUICK)
    assert end_of(events).reason is EndReason.INTERRUPTED


async def test_closing_the_iterator_and_leaving_the_session_stop_the_turn(tmp_path: Path) -> None:
    scripts = {"text": [[Drip("w", 1000, 0.02)]], "tool": [[bash(sleep_command(103))], "never"], "say": "hello"}
    async with sandbox(tmp_path, scripts) as here, asyncio.timeout(LIMIT):
        async with here.open() as session:
            async with aclosing(cast("AsyncGenerator[AgentEvent]", session.send("@@text@@ go"))) as stream:
                async for event in stream:
                    if isinstance(event, TextDelta):
                        break
            assert (await end(session, "@@say@@ go")).text == "hello"
            running = asyncio.create_task(collect(session, "@@tool@@ go"))
            await appears("time.sleep(103)")
        assert end_of(await running).reason is EndReason.INTERRUPTED
        assert find("time.sleep(103)") == []


async def test_a_program_that_ignores_an_interrupt_is_killed_with_its_children(tmp_path: Path) -> None:
    scripts = {"tool": [[bash(sleep_command(104))], "never"], "say": "hello"}
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        await end(session, "@@say@@ 1")
        [program] = find(session.id)
        running = asyncio.create_task(collect(session, "@@tool@@ go"))
        await appears("time.sleep(104)")
        os.kill(program, signal.SIGSTOP)
        began = time.monotonic()
        await session.interrupt()
        async with asyncio.timeout(LIMIT):
            assert end_of(await running).reason is EndReason.INTERRUPTED
        judge(time.monotonic() - began, QUICK)
        await disappears("time.sleep(104)")
        assert find(session.id) == []
        assert (await end(session, "@@say@@ 2")).text == "hello"
        assert "@@say@@ 1" in str(here.server.calls[-1].body["messages"])


async def test_a_custom_tool_is_cancelled_with_its_turn(tmp_path: Path) -> None:
    began = asyncio.Event()
    ended = asyncio.Event()

    async def wait() -> None:
        """Wait."""
        began.set()
        try:
            await asyncio.sleep(LIMIT)
        finally:
            ended.set()

    scripts = {"wait": [[Call("mcp__atomic__wait", {})], "never"], "say": "hello"}
    async with sandbox(tmp_path, scripts) as here, here.open(custom_tools=[wait]) as session, asyncio.timeout(LIMIT):
        running = asyncio.create_task(collect(session, "@@wait@@ go"))
        await began.wait()
        await session.interrupt()
        await ended.wait()
        assert end_of(await running).reason is EndReason.INTERRUPTED
        [program] = find(session.id)
        assert (await end(session, "@@say@@ go")).text == "hello"
        assert find(session.id) == [program]  # it was interrupted, not killed
