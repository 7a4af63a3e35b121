"""Sub-agents on a real agent: sessions, prompts, values, time limits and clean-up."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path
from time import monotonic
from typing import Any, cast

import msgspec
import pytest
import pytest_asyncio

from atomic.providers import AgentEvent, TextDelta, require_provider
from atomic.testing.conformance.agents import CLAUDE_WORDS
from atomic.testing.conformance.case import descendants, environment
from atomic.testing.model_server import Call, Drip, ModelServer, claude_env
from atomic.workflows import Bridge, State, SubagentError, SubagentRequest, graph
from tests.runs.small_runtime import Entities, Entity, Runtime
from tests.support.timing import judge

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.ci]


class Verdict(msgspec.Struct):
    approve: bool
    reason: str = ""


SCRIPTS = {
    "hello": "Hello from the worker.",
    "tool": [[CLAUDE_WORDS.bash("echo ran > ran.txt")], "Ran it."],
    "slow": Drip("word", times=2000, every=0.05),
    "judge": [[Call("StructuredOutput", {"approve": True, "reason": "fine"})], "Handed in."],
    **{f"part{n}": f"Part {n}." for n in range(5)},
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[ModelServer]:
    home = tmp_path_factory.mktemp("home")
    async with ModelServer(SCRIPTS) as server:
        with environment(claude_env(server, home), home):
            yield server


@pytest.fixture
def entities() -> Entities:
    entities = Entities()
    entities.add("agent", Entity("worker", prompt="You are the worker of this test.", tools=["bash", "read"]))
    return entities


@pytest.fixture
def bridge(server: ModelServer, entities: Entities, tmp_path: Path) -> Bridge:
    return Bridge(require_provider("claude"), entities=entities, cwd=tmp_path)


async def test_an_agent_works_with_its_own_prompt_tools_and_a_fresh_session(
    bridge: Bridge, server: ModelServer, tmp_path: Path
) -> None:
    result = await bridge.spawn(SubagentRequest("worker", "@@tool@@ Do it.", id="one"))
    assert result.success, result.error
    assert (result.id, result.text, result.tool_calls) == ("one", "Ran it.", 1)
    assert (tmp_path / "ran.txt").read_text() == "ran\n"
    assert result.seconds > 0
    assert result.usage is not None
    call = next(call for call in server.calls if call.script == "tool")
    assert "You are the worker of this test." in call.system
    assert {"Bash", "Read"} <= set(call.tools)
    assert not {"Write", "Edit"} & set(call.tools)


async def test_concurrent_sub_agents_return_in_order(bridge: Bridge) -> None:
    requests = [SubagentRequest("worker", f"@@part{n}@@ Go.") for n in range(5)]
    results = await bridge.spawn_parallel(requests, max_concurrency=2)
    assert [result.text for result in results] == [f"Part {n}." for n in range(5)]
    assert len({result.id for result in results}) == 5


async def test_a_sub_agent_returns_a_typed_value(bridge: Bridge) -> None:
    verdict = await bridge.ask_for(Verdict, SubagentRequest("worker", "@@judge@@ Judge it."))
    assert verdict == Verdict(approve=True, reason="fine")
    result = await bridge.spawn(SubagentRequest("worker", "@@judge@@ Judge it.", schema=Verdict))
    assert result.value == verdict


@pytest.mark.timed
async def test_a_time_limit_is_a_result_and_ends_the_program(bridge: Bridge) -> None:
    before = set(descendants(os.getpid()))
    began = monotonic()
    result = await bridge.spawn(SubagentRequest("worker", "@@slow@@ Go.", timeout=3))
    assert not result.success
    assert "longer than 3 s" in (result.error or "")
    judge(monotonic() - began, 20)
    assert set(descendants(os.getpid())) <= before


async def test_a_cancellation_goes_through_when_the_program_has_ended(bridge: Bridge, server: ModelServer) -> None:
    before = set(descendants(os.getpid()))
    heard = asyncio.Event()

    def watch(id: str, event: AgentEvent) -> None:
        if isinstance(event, TextDelta):
            heard.set()

    watched = Bridge(bridge.provider, entities=bridge.entities, watch=watch)
    task = asyncio.create_task(watched.spawn(SubagentRequest("worker", "@@slow@@ Go.")))
    async with asyncio.timeout(60):
        await heard.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert set(descendants(os.getpid())) <= before


async def test_an_unknown_agent_is_reported_with_the_nearest_name(bridge: Bridge) -> None:
    result = await bridge.spawn(SubagentRequest("wroker", "Go."))
    assert not result.success
    assert 'did you mean "worker"' in (result.error or "")
    with pytest.raises(SubagentError, match="wroker"):
        await bridge.ask_for(Verdict, SubagentRequest("wroker", "Go."))


async def test_nodes_of_the_engine_use_sub_agents_unchanged(bridge: Bridge, entities: Entities) -> None:
    deps = Runtime(entities=entities, bridge=cast("Any", bridge))  # the small one takes small parts
    workflow = graph(State).subagent("ask", agent="worker", task="@@hello@@ Say hello.").compile()
    result = await workflow.run(deps=deps)
    assert result.error is None
    assert result.state.outputs["ask"] == "Hello from the worker."
