"""A workflow inside a workflow, found by its name when it is needed."""

from __future__ import annotations

import asyncio
from typing import Any

from atomic.workflows import MemoryJournal, NodeContext, RunStatus, graph
from tests.graph.engine.small import RUN, S, ended, failed, kill_when, say, within
from tests.runs.small_runtime import Runtime, runtime_with_workflows


async def test_a_workflow_is_found_by_its_name_when_the_node_runs() -> None:
    runtime = runtime_with_workflows(review=graph(S).then(say("x")).compile(name="review"))
    compiled = graph(S).subgraph("sub", "review").then(say("a")).compile(name="main")
    assert (await ended(compiled, deps=runtime)).state.log == ["x", "a"]


async def test_an_unknown_workflow_is_reported_with_the_nearest_name() -> None:
    runtime = runtime_with_workflows(review=graph(S).then(say("x")).compile(name="review"))
    text = await failed(graph(S).subgraph("sub", "revew").compile(), "sub: ", deps=runtime)
    assert '"review"' in text


async def test_without_workflows_the_error_names_the_fix() -> None:
    assert "deps" in await failed(graph(S).subgraph("sub", "review").compile(), "sub: ")


async def test_a_cycle_is_an_error_that_names_its_workflows() -> None:
    a = graph(S).then(say("in-a")).subgraph("to-b", "b").compile(name="a")
    b = graph(S).then(say("in-b")).subgraph("to-a", "a").compile(name="b")
    text = await failed(a, "to-b/to-a: ", deps=runtime_with_workflows(a=a, b=b))
    assert "a -> b -> a" in text


async def test_a_workflow_that_calls_itself_is_a_cycle_too() -> None:
    a = graph(S).then(say("in-a")).subgraph("again", "a").compile(name="a")
    assert "a -> a" in await failed(a, "again: ", deps=runtime_with_workflows(a=a))


async def test_a_cycle_through_a_branch_and_a_map_is_found() -> None:
    a = graph(S).parallel({"x": graph(S).subgraph("to-b", "b"), "y": say("y")}).compile(name="a")
    b = graph(S).map("m", over=lambda s: [1], node=graph(S).subgraph("to-a", "a")).compile(name="b")
    result = await within(a.run(deps=runtime_with_workflows(a=a, b=b)))
    assert result.status is RunStatus.FAILED
    assert "a -> b -> a" in str(result.error)


async def test_the_same_workflow_twice_is_not_a_cycle() -> None:
    b = graph(S).then(say("x")).compile(name="b")
    a = graph(S).subgraph("one", "b").subgraph("two", "b").compile(name="a")
    c = graph(S).subgraph("a", "a").subgraph("b", "b").compile(name="c")
    assert (await ended(c, deps=runtime_with_workflows(a=a, b=b))).state.log == ["x"] * 3


async def test_a_workflow_by_name_continues_where_it_stopped() -> None:
    begun = asyncio.Event()
    hangs = True
    ran: list[str] = []

    async def slow(ctx: NodeContext[S]) -> dict[str, Any]:
        ran.append(ctx.node_id)
        if hangs:
            begun.set()
            await asyncio.sleep(1000)
        return {"log": ["slow"]}

    def first() -> None:
        ran.append("first")

    class WithDeps:
        """A compiled graph that brings its runtime, for `kill_when`."""

        def __init__(self) -> None:
            self.runtime: Runtime = runtime_with_workflows(
                review=graph(S).tool("first", run=first).node("slow", slow).compile(name="review")
            )
            self.graph = graph(S).subgraph("sub", "review").then(say("a")).compile(name="main")

        def run(self, input: Any, **options: Any) -> Any:
            return self.graph.run(input, deps=self.runtime, **options)

    main: Any = WithDeps()
    journal = await kill_when(main, begun)
    hangs = False
    result = await within(main.graph.resume(journal, RUN, deps=main.runtime))
    assert result.state.log == ["slow", "a"]
    assert ran == ["first", "sub/slow", "sub/slow"]


async def test_the_runtime_is_the_same_inside() -> None:
    seen: list[Any] = []

    async def look(ctx: NodeContext[S]) -> None:
        seen.append(ctx.deps)

    runtime = runtime_with_workflows(inner=graph(S).node("look", look).compile(name="inner"))
    await ended(graph(S).subgraph("sub", "inner").compile(), deps=runtime, journal=MemoryJournal())
    assert seen == [runtime]
