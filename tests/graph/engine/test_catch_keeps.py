"""`.catch` after failed branches sees and keeps their updates, so it can undo them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from atomic.workflows import (
    END,
    CompiledGraph,
    GraphBuilder,
    Node,
    NodeContext,
    NodeResult,
    RunStatus,
    graph,
    node,
    parallel_node,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, fail, say, within

BOOKED = ["flight", "hotel"]


def book(id: str) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": [id], "outputs": {id: f"{id} booked"}}

    return node(id, run)


def late_failure(id: str = "car") -> Node[S]:
    """Fails when the other branches are through."""

    async def run(ctx: NodeContext[S]) -> None:
        for _ in range(50):
            await asyncio.sleep(0)
        raise ValueError("no car")

    return node(id, run)


def compensating(seen: list[Any], goto: str | None) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> NodeResult:
        booked = [ctx.output_of(name) for name in BOOKED]
        seen.append((list(ctx.state.log), booked))
        return NodeResult({"log": ["undone"]}, goto=goto)

    return node("undo", run)


def branches(**options: Any) -> GraphBuilder[S]:
    parts = {"flight": book("flight"), "hotel": [book("hotel"), late_failure()]}
    return graph(S).then(say("a")).parallel(parts, **options)


def nothing(branches: Any, state: Any) -> dict[str, Any]:
    return {}


FORKS: dict[str, Callable[[], GraphBuilder[S]]] = {
    "all": branches,
    "merge": lambda: branches(merge=nothing),
    "one at a time": lambda: branches(max_concurrency=1),
    "nested": lambda: graph(S).then(say("a")).parallel(
        {"in": parallel_node("p", [book("flight"), say("x")]), "out": [book("hotel"), late_failure()]}, merge=nothing
    ),
    "any": lambda: graph(S).then(say("a")).parallel(
        {"f": [book("flight"), fail("f")], "h": [book("hotel"), late_failure()]}, strategy="any"
    ),
}  # fmt: skip


@pytest.mark.parametrize("shape", FORKS)
@pytest.mark.parametrize("goto", [None, "behind"])
async def test_the_catching_node_sees_the_updates_of_the_branches(shape: str, goto: str | None) -> None:
    seen: list[Any] = []
    compiled = FORKS[shape]().then(say("behind")).catch(compensating(seen, goto)).compile()
    journal = KeptJournal()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    ((log, booked),) = seen
    assert booked == ["flight booked", "hotel booked"]
    assert [word for word in log if word in BOOKED] == BOOKED  # in the order of declaration
    behind = ["behind"] if goto else []
    assert result.state.log == [*log, "undone", *behind]
    assert result.status is (RunStatus.COMPLETED if goto else RunStatus.FAILED)
    assert compiled.load(journal, RUN) == result.state
    without = FORKS[shape]().then(say("behind")).catch(compensating([], goto)).compile()
    assert (await within(without.run())).state.log == result.state.log


@pytest.mark.parametrize("shape", FORKS)
async def test_cut_anywhere_the_run_ends_with_the_same_state(shape: str) -> None:
    compiled = FORKS[shape]().then(say("behind")).catch(compensating([], "behind")).compile()
    journal = KeptJournal()
    whole = await within(compiled.run(journal=journal, execution_id=RUN))
    for rows in range(len(journal.rows(RUN))):
        result = await within(compiled.resume(journal.cut(RUN, rows), RUN))
        assert result.state == whole.state, rows


async def test_retrying_a_caught_run_applies_each_update_once() -> None:
    healthy: list[int] = []
    seen: list[Any] = []

    async def flaky(ctx: NodeContext[S]) -> dict[str, Any]:
        for _ in range(50):
            await asyncio.sleep(0)
        if not healthy:
            raise ValueError("no")
        return {"log": ["car"]}

    parts = {"flight": book("flight"), "car": node("car", flaky)}
    compiled = graph(S).parallel(parts).catch(compensating(seen, None)).compile()
    journal = KeptJournal()
    for _ in range(2):
        result = await within(
            compiled.run(journal=journal, execution_id=RUN) if not seen else compiled.resume(journal, RUN)
        )
        assert result.status is RunStatus.FAILED
        assert seen[-1][1] == ["flight booked", None]
        assert compiled.load(journal, RUN) == result.state
    healthy.append(1)
    result = await within(compiled.resume(journal, RUN))
    assert result.status is RunStatus.COMPLETED
    assert sorted(result.state.log) == ["car", "flight", "undone", "undone"]


async def test_a_failed_map_gives_the_outputs_of_finished_items() -> None:
    seen: list[Any] = []

    async def each(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.item == 2:
            for _ in range(50):
                await asyncio.sleep(0)
            raise ValueError("no")
        return {"outputs": {"each": ctx.item * 10}, "total": 1}

    async def undo(ctx: NodeContext[S]) -> NodeResult:
        seen.append((ctx.output_of("m"), ctx.state.total))
        return NodeResult(goto=END)

    compiled = graph(S).map("m", over=lambda s: [1, 2, 3], node=node("each", each)).node("n", each)
    built: CompiledGraph[S] = compiled.catch(node("undo", undo)).compile()
    journal = KeptJournal()
    result = await within(built.run(journal=journal, execution_id=RUN))
    assert (result.status, seen) == (RunStatus.COMPLETED, [([10, None, 30], 2)])
    for rows in range(len(journal.rows(RUN)) + 1):
        cut = journal.cut(RUN, rows)
        assert (await within(built.resume(cut, RUN))).state == result.state, rows


async def test_a_goto_to_finished_branches_runs_them_again() -> None:
    tries: list[int] = []

    async def flaky(ctx: NodeContext[S]) -> dict[str, Any]:
        tries.append(1)
        for _ in range(50):
            await asyncio.sleep(0)
        if len(tries) == 1:
            raise ValueError("no")
        return {"log": ["car"]}

    def built() -> CompiledGraph[S]:
        again = compensating([], "p")
        return graph(S).parallel([book("flight"), node("car", flaky)], id="p").then(say("end")).catch(again).compile()

    journal = KeptJournal()
    whole = await within(built().run(journal=journal, execution_id=RUN))
    assert whole.state.log == ["flight", "undone", "flight", "car", "end"]
    undone = [record.node_id for record in journal.records(RUN)].index("undo")
    for rows in range(len(journal.rows(RUN))):
        cut = journal.cut(RUN, rows)
        if len(cut.records(RUN)) <= undone:
            continue  # what failed before is tried again and succeeds now
        assert (await within(built().resume(cut, RUN))).state == whole.state, rows
