"""What workflow functions do with agents, signals and other workflows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from atomic.providers import EndReason, Usage
from atomic.providers.turn import Turn
from atomic.workflows import (
    Flow,
    MemoryJournal,
    RunStatus,
    State,
    SubagentError,
    SubagentResult,
    TurnFailedError,
    Work,
    agents,
    graph,
    step,
    workflow,
)
from tests.providers.scripted import ScriptedSession
from tests.runs.small_runtime import Bridge, Entities, Entity, Named, Runtime
from tests.test_agents import provider

WORK = Work("draft", "Draft", 1, "a" * 40, "b" * 40)


class Verdict(msgspec.Struct):
    good: bool


class Stop(Exception):
    """Ends a run after a failure that the function has caught."""


def runtime(**more: Any) -> Runtime:
    made = Runtime(**more)
    made.entities.add("agent", Entity("reviewer"))
    return made


def refusing(error: str) -> Bridge:
    return Bridge(lambda request: SubagentResult(request.id, success=False, error=error))


@workflow
async def ask_reviewer(flow: Flow) -> str:
    return await flow.agent("review", "Look.", agent="reviewer")


async def model_of(session: ScriptedSession, turn: Turn) -> None:
    turn.end(EndReason.DONE, text=str(session.options.model), usage=Usage(cost=0.0))


@pytest.mark.parametrize(
    ("entities", "alone"),
    [pytest.param(None, "None", id="built in"), pytest.param(Entity("reviewer", model="opus"), "opus", id="own")],
)
async def test_the_model_of_the_run_comes_before_that_of_the_agents_file(entities: Entity | None, alone: str) -> None:
    own = None
    if entities is not None:
        own = Entities()
        own.add("agent", entities)
    nodes = graph(State).agent("review", "Look.", agent="reviewer").compile()
    agent = provider(model_of)
    agent.name = "claude"  # which knows the models by these names
    async with agents(agent, entities=own) as found:
        for runnable in (ask_reviewer, nodes):
            assert (await runnable.run(deps=found, model="haiku")).result == "haiku"
            assert (await runnable.run(deps=found)).result == alone


async def test_a_failed_sub_agent_is_caught_also_after_a_resume() -> None:
    journal = MemoryJournal()
    must_stop = [True]

    @workflow
    async def review(flow: Flow) -> str:
        try:
            return await flow.subagent("reviewer", "Look.")
        except SubagentError as error:
            caught = f"{error.agent}, {error.reason}: {error}"
        await asyncio.sleep(0)
        await note()
        if must_stop:
            raise Stop
        return caught

    deps = runtime(bridge=refusing("no money"))
    assert (await review.run(deps=deps, journal=journal, execution_id="r")).status is RunStatus.FAILED
    must_stop.clear()
    ended = await review.resume(journal, "r", deps=deps)
    assert ended.result == 'reviewer, no money: agent "reviewer" failed: no money'
    assert len(deps.bridge.requests) == 1


@step
async def note() -> None:
    """Do nothing, after what the function has caught."""


async def test_a_failed_turn_is_caught_also_after_a_resume() -> None:
    journal = MemoryJournal()
    must_stop = [True]
    played: list[str] = []

    async def fails(session: ScriptedSession, turn: Turn) -> None:
        played.append(session.prompts[-1])
        turn.end(EndReason.ERROR, text="I was about to", error="the model is ill")

    @workflow
    async def review(flow: Flow) -> str:
        try:
            return await flow.agent("review", "Look.")
        except TurnFailedError as error:
            caught = f"{error.reason}, {error.said}: {error}"
        await note()
        if must_stop:
            raise Stop
        return caught

    async with agents(provider(fails)) as deps:
        assert (await review.run(deps=deps, journal=journal, execution_id="r")).status is RunStatus.FAILED
        must_stop.clear()
        ended = await review.resume(journal, "r", deps=deps)
    assert ended.result == "error, I was about to: the model is ill"
    assert played == ["Look."]


@workflow
async def child(flow: Flow, n: int = 1) -> int:
    return n * 2


CALLS: list[tuple[Callable[[Flow], Any], str]] = [
    (lambda flow: flow.run(child), "flow.run(child)"),
    (lambda flow: flow.run("child"), "flow.run(child)"),
    (lambda flow: flow.patched("new"), 'flow.patched("new")'),
    (lambda flow: flow.compensate(note), "flow.compensate"),
    (lambda flow: flow.agent("review", "Look."), "review"),
]


@pytest.mark.parametrize(("call", "what"), CALLS)
async def test_what_belongs_to_the_function_is_refused_in_a_step(call: Callable[[Flow], Any], what: str) -> None:
    @workflow
    async def parent(flow: Flow) -> None:
        @step
        async def outer() -> None:
            called = call(flow)
            if asyncio.iscoroutine(called):
                await called

        await outer()

    journal = MemoryJournal()
    ended = await parent.run(journal=journal, execution_id="r", deps=runtime())
    assert f"{what} was called inside the step outer" in str(ended.error)
    assert [record.node_id for record in journal.records("r")] == ["outer"]


async def test_a_workflow_function_is_called_by_its_name() -> None:
    nodes = graph(State).tool("one", int).compile(name="nodes")
    deps = runtime(workflows=Named({"child": child, "nodes": nodes}))

    @workflow
    async def parent(flow: Flow, name: str) -> int:
        return await flow.run(name, n=4) + await flow.run(child, 1)

    assert (await parent.run("child", deps=deps)).result == 10
    assert "there are child, nodes" in str((await parent.run("chidl", deps=deps)).error)
    refused = 'workflow "nodes" is a graph: call it in a step, with current_step().run("nodes")'
    assert refused in str((await parent.run("nodes", deps=deps)).error)
    assert "the run has no workflows" in str((await parent.run("child")).error)


@pytest.mark.parametrize("name", ["deploy/prod", "build #7"])
async def test_a_signal_may_have_any_name_that_can_be_sent(name: str) -> None:
    journal = MemoryJournal()

    @workflow
    async def waits(flow: Flow) -> int:
        return await flow.signal(name, returns=int)

    paused = await waits.run(journal=journal, execution_id="r")
    assert (paused.status, paused.signals) == (RunStatus.PAUSED, (name,))
    journal.signal("r", name, 7)
    assert (await waits.resume(journal, "r")).result == 7


async def test_an_isolated_sub_agent_has_tools_a_type_and_work_to_continue() -> None:
    deps = runtime(
        bridge=Bridge(lambda request: SubagentResult(request.id, success=True, text='{"good": true}', work=WORK))
    )

    @workflow
    async def draft(flow: Flow) -> list[Any]:
        first = await flow.isolated("reviewer", "Write.", tools=["Edit"], returns=Verdict)
        assert isinstance(first.value, Verdict)
        second = await flow.isolated("reviewer", "Again.", continues=first.work)
        return [first.value.good, second.value, second.work.name]

    assert (await draft.run(deps=deps)).result == [True, None, "draft"]
    first, second = deps.bridge.requests
    assert (first.tools, first.schema, first.isolate, second.isolate) == (["Edit"], Verdict, True, WORK)


async def test_an_answer_that_is_not_of_the_type_is_named_without_the_words_of_nodes() -> None:
    @workflow
    async def judge(flow: Flow) -> Verdict:
        return await flow.agent("judge", "Look.", returns=Verdict)

    ended = await judge.run(deps=runtime(says="maybe"))
    assert "judge: the answer is not the JSON that was asked for" in str(ended.error)
