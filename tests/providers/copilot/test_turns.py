"""Test turns of the real program: their events, and that they last until all their work has ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.providers import (
    EndReason,
    LimitReached,
    Notice,
    PlanChanged,
    PlanItem,
    SkillLoaded,
    ToolEnded,
    ToolOutput,
    ToolStarted,
)
from atomic.testing.model_server import Call, Fail, Protocol, Say, Script, Stop, Tokens
from tests.providers.copilot.sandbox import Sandbox, bash, sandbox, shared_sandbox
from tests.providers.processes import appears, disappears
from tests.providers.turns import LIMIT, all_of, end, end_of, text_of, turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

INSERT = "INSERT INTO todos (id, title, status) VALUES ('a', 'Walls', 'in_progress'), ('b', 'Roof', 'pending')"
UPDATE = "UPDATE todos SET status = 'done' WHERE id = 'a'"
STUBBORN = "trap '' INT TERM HUP; while true; do sleep 0.4722; done"
SCRIPTS: dict[str, Script] = {
    "say": "hello",
    "run": [[bash("echo one; sleep 0.3; echo two")], "done"],
    "background": [[bash("sleep 1; echo ready > ready", mode="async")], "It runs.", "x", "It is ready."],
    "server": [[bash("sleep 4721", mode="async")], "It runs."],
    "stubborn": [[bash(STUBBORN)], "never"],
    "sleep": [[bash("sleep 4723")], "never"],
    "plan": [*([Call("sql", {"description": "plan", "query": query})] for query in (INSERT, UPDATE)), "done"],
    "skill": [[Call("skill", {"skill": "knack"})], "done"],
    "limit": [[Fail(429, message="slow down", headers={"retry-after": "1"}, times=1), Say("Here I am.")]],
    "again": [[Say("Half of it"), Fail(500, message="oops", times=1), Say(" and all.")]],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Sandbox]:
    async with shared_sandbox(tmp_path_factory.mktemp("copilot"), SCRIPTS) as here:
        yield here


async def test_output_and_end_of_a_command_are_emitted(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@run@@")
    [started] = all_of(ToolStarted, events)
    [ended] = all_of(ToolEnded, events)
    assert (started.name, started.input["command"]) == ("bash", "echo one; sleep 0.3; echo two")
    assert [(event.id, event.text) for event in all_of(ToolOutput, events)] == [
        (started.id, "one\n"),
        (started.id, "two\n"),
    ]
    assert ended.id == started.id
    assert ended.output.startswith("one\ntwo\n")


async def test_a_turn_waits_for_background_commands(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@background@@")
    assert end_of(events).reason is EndReason.DONE
    assert (here.work / "ready").exists()
    assert text_of(events).startswith("It runs.")
    [started] = [event for event in all_of(ToolStarted, events) if event.name == "bash"]
    assert [event.id for event in all_of(ToolEnded, events)].count(started.id) == 1


async def test_an_interrupt_ends_background_commands(here: Sandbox) -> None:
    async with here.open() as session:
        running = asyncio.create_task(turn(session, "@@server@@"))
        await appears("sleep 4721")
        await here.server.wait_for(lambda call: (call.script, call.turn) == ("server", 1))
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(LIMIT):
            await session.interrupt()
        assert loop.time() - began < 2.5
        assert end_of(await running).reason is EndReason.INTERRUPTED
        await disappears("sleep 4721")
        assert (await end(session, "@@say@@")).text == "hello"


async def test_an_interrupt_kills_a_command_that_ignores_signals(here: Sandbox) -> None:
    async with here.open() as session:
        running = asyncio.create_task(turn(session, "@@stubborn@@"))
        await appears("sleep 0.4722")
        await session.interrupt()
        assert end_of(await running).reason is EndReason.INTERRUPTED
        await disappears("trap '' INT TERM HUP")
        assert (await end(session, "@@say@@")).text == "hello"


async def test_an_interrupted_tool_ends_with_an_error(here: Sandbox) -> None:
    async with here.open() as session:
        running = asyncio.create_task(turn(session, "@@sleep@@"))
        await appears("sleep 4723")
        await session.interrupt()
        events = await running
    assert [event.id for event in all_of(ToolEnded, events)] == [event.id for event in all_of(ToolStarted, events)]
    assert all_of(ToolEnded, events)[0].error


async def test_the_to_do_list_is_the_plan(here: Sandbox) -> None:
    async with here.open() as session:
        plans = all_of(PlanChanged, await turn(session, "@@plan@@"))
    assert [plan.items for plan in plans] == [
        (PlanItem("Walls", "in_progress"), PlanItem("Roof", "pending")),
        (PlanItem("Walls", "completed"), PlanItem("Roof", "pending")),
    ]


async def test_a_skill_is_reported_when_it_is_loaded(here: Sandbox) -> None:
    folder = here.copilot_home / "skills" / "knack"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: knack\ndescription: a knack\n---\nDo it so.")
    async with here.open() as session:
        events = await turn(session, "@@skill@@")
    assert [event.name for event in all_of(SkillLoaded, events)] == ["knack"]


async def test_a_limit_that_passes_does_not_end_the_turn(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@limit@@")
    assert [event.message for event in all_of(LimitReached, events)] == ["slow down"]
    assert (end_of(events).reason, end_of(events).text) == (EndReason.DONE, "Here I am.")


async def test_a_retried_call_is_a_notice_and_its_text_is_emitted_once(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@again@@")
    assert all_of(Notice, events)
    assert end_of(events).text == "Half of it and all."


@pytest.mark.parametrize("protocol", [Protocol.ANTHROPIC, Protocol.OPENAI_RESPONSES])
async def test_models_with_other_protocols_work(tmp_path: Path, protocol: Protocol) -> None:
    scripts: dict[str, Script] = {
        "say": [[bash("echo hi")], [Say("Used."), Tokens(input=800, output=500, cached=200)]],
        "refuse": [[Say("I will not."), Stop("refusal")]],
    }
    async with sandbox(tmp_path, scripts, protocol=protocol) as here, here.open() as session:
        ended = await end(session, "@@say@@")
        assert (ended.reason, ended.text) == (EndReason.DONE, "Used.")
        assert (ended.usage.input, ended.usage.output, ended.usage.cached) == (1100, 520, 200)
        assert {call.protocol for call in here.server.calls} == {protocol}
        assert (await end(session, "@@refuse@@")).reason is EndReason.REFUSED
