"""Test sub-agents: nested, in the background, resumed, failing and missing."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.config import Settings
from atomic.providers import (
    AgentSpec,
    EndReason,
    SessionOptions,
    SubagentEnded,
    SubagentStarted,
    ToolEnded,
    ToolStarted,
)
from atomic.providers.copilot.launch import set_up
from atomic.testing.model_server import Call, Fail, Script
from tests.providers.copilot.sandbox import Sandbox, bash, shared_sandbox, task
from tests.providers.turns import all_of, end_of, text_of, turn

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPTS: dict[str, Script] = {
    "outer": [[task("mid")], "done"],
    "mid": [[task("leaf")], "mid"],
    "leaf": [[bash("echo hi")], "leaf"],
    "background": [[task("maker", mode="background")], "It works.", "x", "It is done."],
    "maker": [[bash("sleep 0.5; touch made")], "made it"],
    "begin": [[task("first", agent="worker", mode="background")], "It works.", "x", "It is done."],
    "first": "first",
    "wake": [
        [Call("find_worker", {})],
        [Call("write_agent", {"agent_id": "{{tool_result}}", "message": "@@second@@ go"})],
        "I woke it.",
        "x",
        "It is done again.",
    ],
    "second": "second",
    "failing": [[task("fails")], "It failed."],
    "fails": Fail(400, message="no such thing"),
    "missing": [[task("part", agent="missing")], "It does not exist."],
    "lead": [[task("part", agent="worker")], "done"],
    "part": "read",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[Sandbox]:
    async with shared_sandbox(tmp_path_factory.mktemp("copilot"), SCRIPTS) as here:
        yield here


async def test_a_nested_sub_agent_has_its_own_events(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@outer@@")
    mid, leaf = all_of(SubagentStarted, events)
    assert (mid.agent, leaf.agent) == (None, mid.id)
    assert mid.task == "@@mid@@ go"
    assert [(event.name, event.agent) for event in all_of(ToolStarted, events)] == [("bash", leaf.id)]
    assert [(event.id, event.text) for event in all_of(SubagentEnded, events)] == [(leaf.id, "leaf"), (mid.id, "mid")]
    assert (text_of(events, mid.id), text_of(events, leaf.id)) == ("mid", "leaf")


async def test_a_turn_waits_for_a_background_sub_agent_and_its_result(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@background@@")
    assert (here.work / "made").exists()
    [started] = all_of(SubagentStarted, events)
    [ended] = all_of(SubagentEnded, events)
    assert (ended.id, ended.text, ended.error) == (started.id, "made it", None)
    assert end_of(events).text == "It is done."
    assert not [event for event in all_of(ToolStarted, events) if event.name == "task"]


async def test_a_resumed_sub_agent_starts_and_ends_again(here: Sandbox) -> None:
    started: list[SubagentStarted] = []

    def find_worker() -> str:
        """Return the id of the sub-agent to wake."""
        return started[0].id

    worker = AgentSpec(name="worker", description="Works.", prompt="You work.")
    async with here.open(agents=[worker], custom_tools=[find_worker]) as session:
        started += all_of(SubagentStarted, await turn(session, "@@begin@@"))
        events = await turn(session, "@@wake@@")
    [again] = all_of(SubagentStarted, events)
    [ended] = all_of(SubagentEnded, events)
    assert (again.id, again.name, again.task) == (started[0].id, "worker", "@@second@@ go")
    assert (ended.id, ended.text) == (started[0].id, "second")


async def test_a_failed_sub_agent_has_a_reason_and_the_turn_continues(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@failing@@")
    [ended] = all_of(SubagentEnded, events)
    assert "no such thing" in str(ended.error)
    assert (end_of(events).reason, end_of(events).text) == (EndReason.DONE, "It failed.")


async def test_a_missing_sub_agent_is_a_failed_tool(here: Sandbox) -> None:
    async with here.open() as session:
        events = await turn(session, "@@missing@@")
    [started] = all_of(ToolStarted, events)
    [ended] = all_of(ToolEnded, events)
    assert (started.name, ended.id) == ("task", started.id)
    assert "missing" in str(ended.error)
    assert not all_of(SubagentStarted, events)


async def test_a_custom_sub_agent_has_its_own_prompt_tools_and_model(here: Sandbox) -> None:
    worker = AgentSpec(name="worker", description="Reads.", prompt="You read.", tools=["read"], model="scripted-2")
    async with here.open(agents=[worker]) as session:
        await turn(session, "@@lead@@")
    [call] = [call for call in here.server.calls if call.script == "part"]
    assert call.tools == ("view",)
    assert call.model == "scripted-2"
    assert "You read." in call.system


@pytest.mark.parametrize("model", ["inherit", "opus", "haiku"])
async def test_a_model_family_is_not_passed_to_copilot(here: Sandbox, model: str) -> None:
    worker = AgentSpec(name="worker", description="Reads.", prompt="You read.", model=model)
    setup = set_up(Path("copilot"), SessionOptions(agents=[worker]), Settings())
    assert setup.arguments["customAgents"] == [{"name": "worker", "description": "Reads.", "prompt": "You read."}]
