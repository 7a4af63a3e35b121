"""A `CancelledError` from inside a node fails the node, unless the run was cancelled."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from atomic.tasks import Task, TaskList
from atomic.workflows import (
    Edge,
    GraphBuilder,
    GraphConfig,
    MemoryJournal,
    Node,
    NodeContext,
    Retry,
    RunResult,
    RunStatus,
    Skip,
    compile_graph,
    graph,
    node,
    parallel_node,
    tool_node,
)
from atomic.workflows.builder import graph as workflow_graph
from tests.graph.engine.small import LIMIT, RUN, S, ended, fail, failed, running, say, within
from tests.support.waits import eventually

REASON = "CancelledError: something that the node waited for was cancelled, but the run was not"


async def cancelled_helper() -> None:
    """Await a cancelled task, as with a shared connection or a library's time limit."""
    helper = asyncio.create_task(asyncio.sleep(1000))
    asyncio.get_running_loop().call_soon(helper.cancel)
    await helper


def cut(id: str = "cut", **options: Any) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        await cancelled_helper()
        return {"log": [id]}

    return node(id, run, **options)


def edges() -> Any:
    config = GraphConfig(
        start_node="a",
        nodes=[say("a"), cut(), say("b"), say("end")],
        edges=[Edge("a", "cut"), Edge("a", "b"), Edge("cut", "end"), Edge("b", "end")],
        state=S,
    )
    return compile_graph(config)


SHAPES: dict[str, tuple[Callable[[], Any], str]] = {
    "plain": (lambda: graph(S).then(cut()).compile(), "cut"),
    "time limit": (lambda: graph(S).then(cut(timeout=500)).compile(), "cut"),
    "branch": (lambda: graph(S).parallel({"x": cut(), "y": say("y")}).compile(), "cut"),
    "bounded branches": (lambda: graph(S).parallel([cut(), say("y")], max_concurrency=1).compile(), "cut"),
    "race": (lambda: graph(S).parallel([cut(), never()], strategy="race").compile(), "cut"),
    "edges": (edges, "cut"),
    "items": (lambda: graph(S).map("m", over=lambda s: range(3), node=cut()).compile(), "cut[0]"),
    "subgraph": (lambda: graph(S).subgraph("s", graph(S).then(cut()).compile()).compile(), "s/cut"),
    "nested": (lambda: graph(S).parallel([parallel_node("p", [cut(), say("y")]), say("z")]).compile(), "cut"),
}


def never(id: str = "never") -> Node[S]:
    async def run(ctx: NodeContext[S]) -> None:
        await asyncio.sleep(1000)

    return node(id, run)


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_foreign_cancellation_fails_the_node_and_the_run(shape: str) -> None:
    build, node_id = SHAPES[shape]
    journal = MemoryJournal()
    text = await failed(build(), node_id, journal=journal, execution_id=RUN)
    assert text == f"{node_id}: {REASON}"
    assert journal.list()[0].status == "failed"
    assert node_id in [record.node_id for record in journal.records(RUN) if record.status is RunStatus.FAILED]


async def test_a_blocking_tool_that_raises_a_cancellation_fails_its_node() -> None:
    def run() -> None:
        raise asyncio.CancelledError

    text = await failed(graph(S).tool("t", run=run).compile(), "t")
    assert "the function raised CancelledError" in text


READERS: dict[str, Callable[[Any], GraphBuilder[S]]] = {
    "if-1": lambda reads: graph(S).then(say("a")).if_(reads, then=[say("b")]),
    "loop-1": lambda reads: graph(S).loop([say("a")], until=reads),
    "m": lambda reads: graph(S).map("m", over=reads, node=say("a")),
    "parallel-1": lambda reads: graph(S).parallel({"a": say("a")}, merge=reads),
    "a": lambda reads: graph(S).then(fail("a", on_error=reads)),
}


@pytest.mark.parametrize("node_id", READERS)
async def test_a_function_that_reads_a_cancelled_task_fails_its_node(node_id: str) -> None:
    helper = asyncio.create_task(asyncio.sleep(1000))
    helper.cancel()
    await asyncio.wait([helper])

    def reads(*_: Any) -> None:
        helper.result()

    await failed(READERS[node_id](reads).compile(), node_id)


async def test_any_takes_another_branch() -> None:
    compiled = graph(S).parallel([cut(), say("b")], strategy="any").compile()
    assert (await ended(compiled)).state.log == ["b"]


async def test_a_foreign_cancellation_is_retried_and_handled_like_any_failure() -> None:
    attempts: list[int] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            await cancelled_helper()
        return {"log": ["again"]}

    assert (await ended(graph(S).node("n", run, retry=Retry(0, jitter=False)).compile())).state.log == ["again"]
    assert attempts == [1, 2]

    def skip(error: Exception, ctx: Any) -> Skip:
        return Skip({"log": [type(error).__name__]})

    skipped = graph(S).then(cut(on_error=skip)).compile()
    assert (await ended(skipped)).state.log == ["NodeError"]
    caught = graph(S).then(cut()).catch(say("caught")).compile()
    result = await within(caught.run())
    assert (result.status, result.state.log) == (RunStatus.FAILED, ["caught"])


async def test_a_task_of_a_task_loop_fails_and_the_others_continue(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    TaskList(tasks=[Task(id=str(number), title="t") for number in (1, 2)]).write(path)

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.item.id == "1":
            await cancelled_helper()
        return {"log": [ctx.item.id]}

    compiled = workflow_graph(S).task_loop("tasks", tasks_path=str(path), task_nodes=[node("work", work)]).compile()
    result = await within(compiled.run())
    assert result.status is RunStatus.BLOCKED
    assert [str(task.status) for task in TaskList.read(path).tasks] == ["failed", "completed"]
    assert REASON in str(result.error)


@pytest.mark.parametrize("shape", ["branch", "bounded", "edges"])
async def test_a_branch_whose_task_is_cancelled_from_outside_has_failed(shape: str) -> None:
    begun = asyncio.Event()
    tasks: list[Any] = []

    async def run(ctx: NodeContext[S]) -> None:
        tasks.append(asyncio.current_task())
        begun.set()
        await asyncio.sleep(1000)

    stuck = node("stuck", run)
    built: Any = graph(S).parallel([stuck, say("b")], max_concurrency=1 if shape == "bounded" else 4).compile()
    if shape == "edges":
        nodes = [say("a"), stuck, say("b"), say("end")]
        config = GraphConfig(
            start_node="a", nodes=nodes, state=S,
            edges=[Edge("a", "stuck"), Edge("a", "b"), Edge("stuck", "end"), Edge("b", "end")],
        )  # fmt: skip
        built = compile_graph(config)
    async with running(built.run()) as task:
        await within(begun.wait())
        tasks[0].cancel()
        result: RunResult[S] = await asyncio.wait_for(asyncio.shield(task), LIMIT)
    assert (result.status, str(result.error)) == (RunStatus.FAILED, f"stuck: {REASON}")


async def test_a_cancelled_run_is_still_cancelled() -> None:
    begun = asyncio.Event()

    async def run(ctx: NodeContext[S]) -> None:
        begun.set()
        await asyncio.sleep(1000)

    journal = MemoryJournal()
    for place, built in {"plain": graph(S).node("n", run), "branch": graph(S).parallel([node("n", run)])}.items():
        begun.clear()
        async with running(built.compile().run(journal=journal, execution_id=place)) as task:
            await within(begun.wait())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
    assert [info.status for info in journal.list()] == ["cancelled", "cancelled"]


async def test_a_run_in_a_task_that_was_cancelled_before_reports_its_own_failures() -> None:
    """A host may swallow a cancellation and start another run in the same task."""

    async def host() -> RunStatus:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            return (await graph(S).then(cut()).compile().run()).status
        raise AssertionError

    async with running(host()) as task:
        await asyncio.sleep(0)
        task.cancel()
        assert await asyncio.wait_for(asyncio.shield(task), LIMIT) is RunStatus.FAILED


async def test_a_time_limit_is_still_a_time_limit() -> None:
    async def tool() -> None:
        await asyncio.sleep(1000)

    text = await failed(graph(S).then(tool_node("t", tool, timeout=0.01)).compile(), "t")
    assert text == "t: TimeoutError: timed out after 0.01 s"


async def test_a_coroutine_that_comes_after_the_time_limit_is_closed() -> None:
    late = asyncio.sleep(1000)
    limit_passed = threading.Event()

    def tool() -> Coroutine[Any, Any, None]:
        limit_passed.wait(LIMIT)
        return late

    await failed(graph(S).then(tool_node("t", tool, timeout=0.01)).compile(), "t")
    limit_passed.set()
    await eventually(lambda: inspect.getcoroutinestate(late) == inspect.CORO_CLOSED)
