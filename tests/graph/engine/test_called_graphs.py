"""`ctx.run`: a graph that a node's function runs, in the same run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atomic.graph.engine.journal import RowKind
from atomic.workflows import (
    CompiledGraph,
    MemoryJournal,
    NodeContext,
    NodeError,
    Retry,
    RunStatus,
    ask_user_node,
    graph,
    map_node,
    node,
    parallel_node,
    subgraph_node,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, ended, fail, failed, run_ready_tasks, running, say, within
from tests.graph.engine.waiting import Clock, Host, finish
from tests.runs.small_runtime import runtime_with_workflows
from tests.support.waits import eventually

CHILD = graph(S).then([say("x"), say("y")]).compile("child")


def calls(id: str, child: Any, *inputs: Any, **options: Any) -> Any:
    """Return a node that runs a graph for each input, all at once, and joins their logs."""

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        states = await asyncio.gather(*(ctx.run(child, input) for input in inputs or (None,)))
        update: dict[str, Any] = {"log": [word for state in states for word in state.log]}
        return {**update, "text": ",".join(s.text for s in states)} if inputs else update

    return node(id, run, **options)


async def test_the_steps_of_the_child_belong_to_the_run() -> None:
    journal = MemoryJournal()
    flow = graph(S).then([say("a"), calls("n", CHILD, {"text": "in"}), say("b")]).compile()
    result = await ended(flow, journal=journal, execution_id=RUN)
    assert (result.state.log, result.state.text, result.steps) == (["a", "x", "y", "b"], "in", 5)
    assert [record.node_id for record in journal.records(RUN)] == ["a", "n/x", "n/y", "n", "b"]
    assert flow.load(journal, RUN) == result.state
    assert flow.load(journal, RUN, at=2).log == ["a"]


async def test_several_children_at_once_have_names_of_their_own() -> None:
    journal = MemoryJournal()
    flow = graph(S).then(calls("n", CHILD, {"text": "1"}, {"text": "2"}, {"text": "3"})).compile()
    result = await ended(flow, journal=journal, execution_id=RUN)
    assert result.state.text == "1,2,3"
    names = [record.node_id for record in journal.records(RUN)]
    assert sorted(names) == ["n", "n/x", "n/y", "n[1]/x", "n[1]/y", "n[2]/x", "n[2]/y"]


async def test_a_kill_after_any_record_repeats_no_finished_step() -> None:
    ran: list[str] = []

    def step(id: str) -> Any:
        async def run(ctx: NodeContext[S]) -> dict[str, Any]:
            ran.append(f"{ctx.node_id} {ctx.state.text}")
            return {"log": [id]}

        return node(id, run)

    inner = graph(S).then([step("x"), parallel_node("p", [step("y"), step("z")])]).compile("inner")
    middle = graph(S).then([step("m"), calls("deep", inner, {"text": "d"}), step("after")]).compile("middle")
    flow = graph(S).then([calls("n", middle, {"text": "1"}, {"text": "2"}), say("end")]).compile()
    journal = KeptJournal()
    result = await ended(flow, journal=journal, execution_id=RUN)
    for rows in range(len(journal.rows(RUN))):
        cut = journal.cut(RUN, rows)
        done = [record.step_id for record in cut.records(RUN)]
        finished = {record.node_id for record in cut.records(RUN)}
        ran.clear()
        again = await within(flow.resume(cut, RUN))
        assert (again.status, again.state) == (RunStatus.COMPLETED, result.state), rows
        assert not finished & {name.split()[0] for name in ran}, rows
        steps = [record.step_id for record in cut.records(RUN)]
        assert len(steps) == len(set(steps)) == result.steps, rows
        assert steps[: len(done)] == done


async def test_questions_of_children_come_out_and_are_answered_by_id() -> None:
    child = graph(S).then([say("x"), ask_user_node("q", "go?"), say("y")]).compile()
    flow = graph(S).then([calls("n", child, {}, {}), say("end")]).compile()
    journal = MemoryJournal()
    result = await within(flow.run(journal=journal, execution_id=RUN))
    assert (result.status, [q.id for q in result.questions]) == (RunStatus.PAUSED, ["n/q", "n[1]/q"])
    result = await within(flow.resume(journal, RUN, answers={"n/q": "yes"}))
    assert [q.id for q in result.questions] == ["n[1]/q"]
    result = await within(flow.resume(journal, RUN, answers={"n[1]/q": "yes"}))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["x", "y", "x", "y", "end"])
    names = [record.node_id for record in journal.records(RUN)]
    assert sorted(names) == sorted(["n/x", "n[1]/x", "n/q", "n[1]/q", "n/y", "n[1]/y", "n", "end"])


async def test_a_failure_of_the_child_raises_in_the_node() -> None:
    child = graph(S).then([say("x"), fail("bad", "broken")]).compile()
    text = await failed(graph(S).then(calls("n", child)).compile(), "n/bad")
    assert text == "n/bad: ValueError: broken"

    async def careful(ctx: NodeContext[S]) -> dict[str, Any]:
        with pytest.raises(NodeError, match="n/bad: ValueError: broken"):
            await ctx.run(child)
        return {"log": ["caught"]}

    assert (await ended(graph(S).node("n", careful).compile())).state.log == ["caught"]


async def test_a_resume_after_a_failure_continues_the_child() -> None:
    broken = True

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        if broken:
            raise ValueError("broken")
        return {"log": ["work"]}

    child = graph(S).then([say("x"), node("work", work)]).compile()
    flow = graph(S).then(calls("n", child)).compile()
    journal = MemoryJournal()
    assert (await within(flow.run(journal=journal, execution_id=RUN))).status is RunStatus.FAILED
    broken = False
    result = await within(flow.resume(journal, RUN))
    assert result.state.log == ["x", "work"]
    assert [r.node_id for r in journal.records(RUN) if r.step is not None] == ["n/x", "n/work", "n"]


async def test_another_attempt_calls_the_child_again() -> None:
    tries = 0

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        nonlocal tries
        tries += 1
        state = await ctx.run(CHILD)
        if tries == 1:
            raise ValueError("not good enough")
        return {"log": state.log}

    flow = graph(S).then([node("n", run, retry=Retry(0)), say("end")]).compile()
    journal = KeptJournal()
    result = await ended(flow, journal=journal, execution_id=RUN)
    assert result.state.log == ["x", "y", "end"]
    assert [r.node_id for r in journal.records(RUN)] == ["n/x", "n/y", "n/x", "n/y", "n", "end"]
    for rows in range(len(journal.rows(RUN))):
        tries = 1
        assert (await within(flow.resume(journal.cut(RUN, rows), RUN))).state == result.state, rows


async def test_a_workflow_by_its_name_and_circles() -> None:
    flow = graph(S).then(calls("n", "child")).compile("outer")
    assert (await ended(flow, deps=runtime_with_workflows(child=CHILD))).state.log == ["x", "y"]
    assert "Not found" in await failed(flow, "n", deps=runtime_with_workflows(other=CHILD))
    assert "the run has no workflows" in await failed(flow, "n")
    me: CompiledGraph[S] = graph(S).then(calls("n", "me")).compile("me")
    assert "workflows call each other in a circle: me -> me" in await failed(
        me, "n", deps=runtime_with_workflows(me=me)
    )


@pytest.mark.parametrize(
    ("child", "words"),
    [
        (graph(S).then(say("x")), "ctx.run takes a compiled graph or the name of a workflow"),
        (7, "ctx.run takes a compiled graph or the name of a workflow, not 7"),
    ],
)
async def test_something_else_is_refused(child: Any, words: str) -> None:
    assert words in await failed(graph(S).then(calls("n", child)).compile(), "n")


async def test_wrong_input_fails_the_node() -> None:
    flow = graph(S).then(calls("n", CHILD, {"txt": "x"})).compile()
    assert "n, txt: S has no such field" in await failed(flow, "n")


async def test_calls_in_items_branches_and_subgraphs() -> None:
    journal = MemoryJournal()
    over = map_node("m", lambda s: [1, 2], calls("n", CHILD))
    inner = graph(S).then(calls("deep", CHILD)).compile()
    flow = graph(S).then([over, parallel_node("p", [calls("b", CHILD), subgraph_node("sub", inner)])]).compile()
    result = await ended(flow, journal=journal, execution_id=RUN)
    names = {record.node_id for record in journal.records(RUN)}
    assert {"n[0]/x", "n[1]/y", "b/x", "sub/deep/y"} <= names
    assert result.state.log == ["x", "y"] * 4


async def test_a_stream_has_the_steps_of_children_before_the_node() -> None:
    flow = graph(S).then([calls("n", CHILD), say("end")]).compile()
    assert [step.node_id async for step in flow.stream()] == ["n/x", "n/y", "n", "end"]
    live = [event.node_id async for event in flow.stream(modes=["live", "debug"]) if event.mode == "debug"]
    assert live == ["n/x", "n/y", "n", "end"]


async def test_a_timeout_around_a_call_ends_the_child() -> None:
    gate = asyncio.Event()

    async def wait(ctx: NodeContext[S]) -> None:
        await gate.wait()

    child = graph(S).then([node("wait", wait)]).compile()

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        try:
            async with asyncio.timeout(0.01):
                await ctx.run(child)
        except TimeoutError:
            return {"log": ["too slow"]}
        return {}

    flow = graph(S).then(parallel_node("p", [node("n", run), say("other")])).compile()
    assert (await ended(flow)).state.log == ["too slow", "other"]
    slow = graph(S).then(calls("n", child, timeout=0.01)).compile()
    assert await failed(slow, "n") == "n: TimeoutError: timed out after 0.01 s"


async def test_a_call_that_is_not_awaited_ends_with_the_step() -> None:
    began = asyncio.Event()
    over = asyncio.Event()

    async def wait(ctx: NodeContext[S]) -> None:
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            over.set()

    child = graph(S).then([node("wait", wait)]).compile()
    kept: list[Any] = []

    async def run(ctx: NodeContext[S]) -> None:
        kept.append(asyncio.ensure_future(ctx.run(child)))
        await began.wait()

    await ended(graph(S).node("n", run).compile())
    assert over.is_set()
    assert kept[0].cancelled()


async def test_breakpoints_of_a_child_pause_the_run() -> None:
    child = graph(S).then([say("x"), say("y")]).compile(pause_before=["y"])
    flow = graph(S).then(calls("n", child)).compile()
    journal = MemoryJournal()
    result = await within(flow.run(journal=journal, execution_id=RUN))
    assert str(result.error) == "n/y: the run pauses before this node"
    assert (await within(flow.resume(journal, RUN))).state.log == ["x", "y"]


async def test_a_run_is_parked_only_when_no_child_is_at_work() -> None:
    """If it had parked while `work` ran, the sleep would not be over before the work."""
    go = asyncio.Event()
    clock = Clock()

    async def sleeps(ctx: NodeContext[S]) -> None:
        await ctx.sleep(hours=1)

    async def works(ctx: NodeContext[S]) -> None:
        await go.wait()

    async def naps(ctx: NodeContext[S]) -> None:
        await ctx.sleep(hours=9)

    first = graph(S).node("sleeps", sleeps).compile()
    second = graph(S).node("works", works).node("naps", naps).compile()

    async def run(ctx: NodeContext[S]) -> None:
        await asyncio.gather(ctx.run(first), ctx.run(second))

    flow = graph(S).node("n", run).compile()
    journal = KeptJournal()
    deps = Host(park=True, clock=clock)
    async with running(flow.run(journal=journal, execution_id=RUN, deps=deps)) as task:
        await run_ready_tasks()
        await eventually(lambda: any(row.kind == RowKind.PART for row in journal.rows(RUN)))
        clock.ahead = 3601
        await eventually(lambda: [record.node_id for record in journal.records(RUN)] == ["n/sleeps"])
        go.set()
        result = await finish(task)
    assert (result.status, result.codes) == (RunStatus.PAUSED, ("sleeping",))
    assert [record.node_id for record in journal.records(RUN)] == ["n/sleeps", "n[1]/works"]


async def test_steps_of_children_count_for_max_steps() -> None:
    loop = graph(S).loop(say("x"), until=lambda s: False, max_iterations=0).compile()
    flow = graph(S).then(calls("n", loop)).compile(max_steps=20)
    assert "max_steps (20) exceeded" in await failed(flow, "n/x")
