"""The results of `run` and `stream`, and the limits of a run."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import pytest

from atomic.graph.engine.active_run import Mode
from atomic.workflows import (
    AtomicError,
    Edge,
    GraphConfig,
    MemoryJournal,
    Node,
    NodeContext,
    RunStatus,
    StreamEvent,
    compile_graph,
    graph,
    map_node,
    node,
    parallel_node,
    subgraph_node,
)
from tests.graph.engine.small import RUN, S, ended, fail, failed, run_ready_tasks, say, within, write
from tests.support.waits import eventually


async def test_a_result_has_the_status_of_the_run() -> None:
    result = await within(graph(S).then(say("a")).then(say("b")).compile().run(execution_id=RUN))
    assert result.state.log == ["a", "b"]
    assert (result.status, result.error, result.steps) == ("completed", None, 2)
    assert (list(result.questions), result.execution_id) == ([], RUN)


def test_there_are_five_ways_to_end() -> None:
    assert set(RunStatus) == {"completed", "failed", "cancelled", "paused", "blocked"}


async def test_run_never_raises_an_exception_of_a_node() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise RuntimeError("even its text fails")

    async def odd(ctx: NodeContext[S]) -> None:
        raise OddError

    result = await within(graph(S).node("n", odd).compile().run())
    assert result.status is RunStatus.FAILED
    assert str(result.error).startswith("n: ")


@pytest.mark.parametrize(
    "error", [KeyError("key"), ValueError(), StopIteration("x"), AssertionError(), OSError(2, "no")]
)
async def test_every_exception_becomes_a_failure_with_its_type(error: Exception) -> None:
    async def run(ctx: NodeContext[S]) -> None:
        raise error

    def tool() -> None:
        raise error

    kind = "StopIteration" if isinstance(error, StopIteration) else type(error).__name__
    assert kind in await failed(graph(S).node("n", run).compile(), "n: ")
    assert kind in await failed(graph(S).tool("n", run=tool).compile(), "n: ")


async def test_a_failure_has_its_cause() -> None:
    result = await within(graph(S).then(fail("n")).compile().run())
    assert result.error is not None
    assert isinstance(result.error.__cause__, ValueError)


# Streams


async def test_a_stream_gives_each_step_as_it_finishes() -> None:
    go = asyncio.Event()

    async def later(ctx: NodeContext[S]) -> dict[str, Any]:
        await within(go.wait())
        return {"log": ["b"]}

    seen: list[tuple[Any, ...]] = []
    async for step in graph(S).then(say("a")).node("b", later).compile().stream():
        go.set()  # the second step waits until the stream has yielded the first
        seen.append((step.node_id, step.state.log, dict(step.update or {}), step.status, step.error, step.attempt))
        assert step.seconds >= 0
        assert list(step.events) == []
    assert seen == [
        ("a", ["a"], {"log": ["a"]}, "completed", None, 1),
        ("b", ["a", "b"], {"log": ["b"]}, "completed", None, 1),
    ]


async def test_a_stream_yields_a_failure_as_a_step() -> None:
    *_, last = [step async for step in graph(S).then(say("a")).then(fail("n")).compile().stream()]
    assert (last.node_id, last.status, last.update) == ("n", RunStatus.FAILED, None)
    assert str(last.error).startswith("n: ")
    assert last.state.log == ["a"]


async def test_a_stream_of_a_parallel_gives_steps_as_they_come() -> None:
    go = asyncio.Event()

    async def slow(ctx: NodeContext[S]) -> None:
        await within(go.wait())

    ids: list[str] = []
    async for step in graph(S).parallel([node("slow", slow), say("fast")]).compile().stream():
        ids.append(step.node_id)
        go.set()
    assert ids == ["fast", "slow"]


async def streamed(*modes: Mode) -> list[StreamEvent]:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        ctx.emit("note", 1)
        return {"text": "x"}

    compiled = graph(S).node("a", run).node("quiet", _nothing).compile()
    return [event async for event in compiled.stream(modes=list(modes))]


async def _nothing(ctx: NodeContext[S]) -> None: ...


async def test_modes_are_streamed_per_step_in_their_order() -> None:
    events = await streamed("updates", "events", "debug", "values")
    assert [(event.mode, event.node_id) for event in events] == [
        ("updates", "a"),
        ("events", "a"),
        ("debug", "a"),
        ("values", "a"),
        ("debug", "quiet"),
        ("values", "quiet"),
    ]
    assert events[0].data == {"text": "x"}
    assert (events[1].data.type, events[1].data.data) == ("note", 1)
    assert events[3].data.text == "x"


async def test_the_order_of_modes_is_the_callers() -> None:
    assert [event.mode for event in await streamed("values", "updates")] == ["values", "updates", "values"]


async def test_steps_without_an_update_are_not_streamed_as_updates() -> None:
    assert [event.node_id for event in await streamed("updates")] == ["a"]


def test_an_unknown_mode_is_refused_with_the_nearest() -> None:
    compiled = graph(S).then(say("a")).compile()
    with pytest.raises(AtomicError, match="updates"):
        compiled.stream(modes=cast("Any", ["update"]))


async def test_a_slow_reader_loses_nothing() -> None:
    names = [f"n{number}" for number in range(50)]
    seen: list[str] = []
    async for step in graph(S).parallel([say(name) for name in names]).compile().stream():
        await asyncio.sleep(0)
        seen.append(step.node_id)
    assert sorted(seen) == sorted(names)


async def test_leaving_a_stream_in_the_middle_cancels_the_run() -> None:
    cleaned = asyncio.Event()

    async def slow(ctx: NodeContext[S]) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            cleaned.set()

    journal = MemoryJournal()
    async for step in graph(S).then(say("a")).node("slow", slow).compile().stream(journal=journal):
        assert step.node_id == "a"
        break
    async for _ in graph(S).parallel([say("a"), node("slow", slow)]).compile().stream(journal=journal):
        break
    await within(cleaned.wait())
    await eventually(lambda: [info.status for info in journal.list()] == ["cancelled", "cancelled"])


async def test_many_runs_at_once_do_not_touch_each_other() -> None:
    journal = MemoryJournal()
    compiled = graph(S).parallel([write("x", total=1), write("y", total=2)]).then(say("z")).compile()
    results = await asyncio.gather(*(compiled.run({"count": n}, journal=journal) for n in range(50)))
    assert [result.state.count for result in results] == list(range(50))
    assert {result.state.total for result in results} == {3}
    assert len({result.execution_id for result in results}) == 50


async def test_resuming_can_be_streamed_too() -> None:
    journal = MemoryJournal()
    broken = True

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        if broken:
            raise ValueError("not yet")
        return {"log": ["n"]}

    compiled = graph(S).then(say("a")).node("n", run).then(say("b")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    broken = False
    assert [step.node_id async for step in compiled.resume_stream(journal, RUN)] == ["n", "b"]
    modes = [event async for event in compiled.resume_stream(journal, RUN, modes=["updates"])]
    assert modes == []  # completed: nothing runs


# Bounds


async def test_more_steps_than_max_steps_fail_with_the_number() -> None:
    ran: list[str] = []
    builder = graph(S)
    for name in "abc":
        builder = builder.tool(name, run=partial(ran.append, name))
    await ended(builder.compile(max_steps=3))
    ran.clear()
    text = await failed(builder.compile(max_steps=2), "c")
    assert "2" in text
    assert "max_steps" in text
    assert ran == ["a", "b"]


async def test_max_steps_is_1000_by_default() -> None:
    loop = graph(S).loop([write("n", total=1)], until=lambda s: s.total == 1001, max_iterations=0)
    assert "1000" in (await failed(loop.compile(), "n")).replace(",", "")
    assert (await ended(loop.compile(max_steps=0))).state.total == 1001


async def test_steps_inside_of_maps_are_not_counted() -> None:
    compiled = graph(S).then(say("a")).map("m", over=lambda s: range(50), node=say("n")).then(say("b"))
    await ended(compiled.compile(max_steps=2))


async def test_steps_of_branches_and_subgraphs_are_counted() -> None:
    branches = graph(S).parallel([say("a"), say("b"), say("c")])
    assert "max_steps" in str((await within(branches.compile(max_steps=2).run())).error)
    child = graph(S).then(say("a")).then(say("b")).then(say("c")).compile()
    assert "max_steps" in str((await within(graph(S).subgraph("sub", child).compile(max_steps=2).run())).error)


async def test_a_resume_does_not_start_counting_again() -> None:
    broken = True

    async def run(ctx: NodeContext[S]) -> None:
        if broken:
            raise ValueError("not yet")

    journal = MemoryJournal()
    builder = graph(S).then(say("a")).then(say("b")).node("n", run).then(say("c"))
    compiled = builder.compile(max_steps=3)
    await within(compiled.run(journal=journal, execution_id=RUN))
    broken = False
    result = await within(compiled.resume(journal, RUN))
    assert str(result.error).startswith("c: ")
    assert "3" in str(result.error)


async def test_a_long_run_lets_others_work() -> None:
    turns = 0
    over = False

    async def count() -> None:
        nonlocal turns
        while not over:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(count())
    compiled = graph(S).loop([write("n", total=1)], until=lambda s: s.total == 5000, max_iterations=0)
    await ended(compiled.compile(max_steps=0))
    over = True
    await beside
    assert turns >= 10


@pytest.mark.parametrize("shape", ["if", "loop", "parallel", "map", "subgraph"])
async def test_shapes_nest_deeply(shape: str) -> None:
    builder = graph(S).then(say("core"))
    for level in range(50):
        match shape:
            case "if":
                builder = graph(S).if_(lambda s: True, then=builder)
            case "loop":
                builder = graph(S).loop(builder, until=lambda s: True)
            case "parallel":
                builder = graph(S).parallel({"x": builder})
            case "map":
                builder = graph(S).map(f"m{level}", over=lambda s: [1], node=builder)
            case _:
                builder = graph(S).subgraph(f"g{level}", builder.compile())
    journal = MemoryJournal()
    compiled = builder.compile()
    assert (await ended(compiled, journal=journal, execution_id=RUN)).state.log == ["core"]
    assert compiled.load(journal, RUN).log == ["core"]


async def test_a_long_chain_does_not_recurse() -> None:
    compiled = graph(S).then([say(f"n{number}") for number in range(2000)]).compile(max_steps=0)
    assert len((await ended(compiled)).state.log) == 2000


# Edges


def edges(*edges: Edge, nodes: str = "abcdefg", **options: Any) -> Any:
    used = {name for edge in edges for name in (edge.from_, edge.to)}
    chosen = [say(name) for name in nodes if name in used]
    return compile_graph(GraphConfig(start_node="a", nodes=chosen, edges=list(edges), state=S, **options))


async def test_the_first_conditional_edge_that_holds_is_taken() -> None:
    compiled = edges(
        Edge("a", "b"),
        Edge("a", "c", condition=lambda s: s.count > 1),
        Edge("a", "d", condition=lambda s: s.count > 0),
    )
    assert (await ended(compiled, {"count": 2})).state.log == ["a", "c"]
    assert (await ended(compiled, {"count": 1})).state.log == ["a", "d"]
    assert (await ended(compiled)).state.log == ["a", "b"]


async def test_a_node_without_a_true_condition_fails() -> None:
    text = await failed(edges(Edge("a", "b", condition=lambda s: False)), "a: ")
    assert "no edge from 'a' matched" in text


async def test_a_node_without_edges_ends_the_graph() -> None:
    assert (await ended(edges(Edge("a", "b"), Edge("b", "c")))).state.log == ["a", "b", "c"]


async def test_edges_without_condition_are_branches_that_join_where_they_meet() -> None:
    compiled = edges(
        Edge("a", "b"), Edge("a", "c"), Edge("b", "d"), Edge("c", "d"), Edge("d", "e"), Edge("d", "f"),
        Edge("e", "g"), Edge("f", "g"),
    )  # fmt: skip
    assert (await ended(compiled)).state.log == ["a", "b", "c", "d", "e", "f", "g"]


async def test_a_join_does_not_wait_for_a_branch_that_leads_elsewhere() -> None:
    compiled = edges(
        Edge("a", "b"), Edge("a", "c"), Edge("b", "d"),
        Edge("c", "e", condition=lambda s: True), Edge("c", "d"), Edge("d", "f"),
    )  # fmt: skip
    assert sorted((await ended(compiled)).state.log) == ["a", "b", "c", "d", "e", "f"]


async def test_a_cycle_is_repeated_up_to_its_limit() -> None:
    again = Edge("b", "a", condition=lambda s: s.log.count("b") < 4)
    compiled = edges(Edge("a", "b"), again, Edge("b", "c"), max_iterations=3)
    assert (await ended(compiled)).state.log == ["a", "b"] * 4 + ["c"]
    tight = edges(Edge("a", "b"), again, Edge("b", "c"), max_iterations=2)
    result = await within(tight.run())
    assert result.status is RunStatus.FAILED
    assert "2" in str(result.error)
    assert result.state.log == ["a", "b"] * 3


async def test_a_cycle_that_is_entered_from_outside_starts_from_zero() -> None:
    compiled = edges(
        Edge("a", "b"),
        Edge("b", "b", condition=lambda s: s.log.count("b") % 3 != 0),
        Edge("b", "c"),
        Edge("c", "a", condition=lambda s: s.log.count("c") < 2),
        Edge("c", "d"),
        max_iterations=2,
    )
    assert (await ended(compiled)).state.log == ["a", "b", "b", "b", "c"] * 2 + ["d"]


async def test_a_join_after_a_node_that_leads_to_itself_runs_once() -> None:
    first = asyncio.Event()

    async def slow(ctx: NodeContext[S]) -> dict[str, Any]:
        await within(first.wait())
        return {"log": ["slow"]}

    async def quick(ctx: NodeContext[S]) -> dict[str, Any]:
        first.set()
        return {"log": ["quick"]}

    config = GraphConfig(
        start_node="a",
        nodes=[say("a"), node("quick", quick), node("slow", slow), say("join")],
        edges=[
            Edge("a", "quick"),
            Edge("a", "slow"),
            Edge("quick", "join"),
            Edge("slow", "slow", condition=lambda s: False),
            Edge("slow", "join"),
        ],
        state=S,
        max_iterations=3,
    )
    assert (await ended(compile_graph(config))).state.log == ["a", "quick", "slow", "join"]


@pytest.mark.parametrize("first", ["lint", "test"])
@pytest.mark.parametrize("failing", [("lint", "test"), ("lint",), ("test",)])
async def test_branches_that_lead_back_join_where_they_came_from(first: str, failing: tuple[str, ...]) -> None:
    ended_first = asyncio.Event()

    def check(id: str) -> Node[S]:
        async def run(ctx: NodeContext[S]) -> dict[str, Any]:
            if ctx.state.log.count("plan") == 1:
                if id != first:
                    await within(ended_first.wait())
                    await run_ready_tasks()
                ended_first.set()
            return {"log": [id]}

        return node(id, run)

    def again(id: str) -> Edge:
        return Edge(id, "plan", condition=lambda s: id in failing and s.log.count("plan") < 2)

    config = GraphConfig(
        start_node="plan",
        nodes=[say("plan"), check("lint"), check("test"), say("done")],
        edges=[
            Edge("plan", "lint"),
            Edge("plan", "test"),
            again("lint"),
            again("test"),
            Edge("lint", "done"),
            Edge("test", "done"),
        ],
        state=S,
        max_iterations=3,
    )
    log = (await ended(compile_graph(config))).state.log
    assert (log.count("plan"), log.count("lint"), log.count("test"), log.count("done")) == (2, 2, 2, 1)
    if len(failing) == 2:
        assert log == ["plan", "lint", "test", "plan", "lint", "test", "done"]


@pytest.mark.parametrize("rounds", [1, 2])
async def test_an_inner_cycle_in_one_branch_does_not_hurt_the_join(rounds: int) -> None:
    names = ["start", "head", "short", "long", "again", "last", "join", "tail", "end"]
    ways = ["start head", "head short", "head long", "short join", "long again", "again last", "last join", "join tail"]
    config = GraphConfig(
        start_node="start",
        nodes=[say(name) for name in names],
        edges=[
            *(Edge(*way.split()) for way in ways),
            Edge("last", "again", condition=lambda s: s.log.count("last") % 2 != 0),
            Edge("tail", "head", condition=lambda s: s.log.count("tail") < rounds),
            Edge("tail", "end"),
        ],
        state=S,
        max_iterations=3,
    )
    body = ["head", "short", "long", "again", "last", "again", "last", "join", "tail"]
    assert (await ended(compile_graph(config))).state.log == ["start", *body * rounds, "end"]


async def test_branches_inside_a_cycle_join_once_each_time() -> None:
    compiled = edges(
        Edge("a", "b"), Edge("a", "c"), Edge("b", "d"), Edge("c", "d"),
        Edge("d", "a", condition=lambda s: s.log.count("d") < 3), Edge("d", "e"), max_iterations=5,
    )  # fmt: skip
    assert (await ended(compiled)).state.log == ["a", "b", "c", "d"] * 3 + ["e"]


async def test_edges_may_lead_to_and_from_composites() -> None:
    nodes: list[Node[S]] = [
        parallel_node("p", [say("x"), say("y")]),
        map_node("m", over=lambda s: [1, 2], node=say("z")),
        subgraph_node("g", graph(S).then(say("w")).compile()),
        say("end"),
    ]
    config = GraphConfig(
        start_node="p",
        nodes=nodes,
        edges=[Edge("p", "m"), Edge("p", "g"), Edge("m", "end"), Edge("g", "end")],
        state=S,
    )
    assert (await ended(compile_graph(config))).state.log == ["x", "y", "z", "z", "w", "end"]
