"""A task that waits for something gives its worker to another one, and gets one back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.workflows import END, CompiledGraph, NodeContext, NodeResult, RunStatus, graph, node, task_loop_node
from tests.graph.engine.small import S, ended, run_ready_tasks, running, within
from tests.support.waits import eventually
from tests.workflows.test_task_loop import tasks


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.json"


class Merging:
    """Tasks that work, then merge without a worker, and may have to work again."""

    def __init__(self, *, returned: tuple[str, ...] = (), held: tuple[str, ...] = ()) -> None:
        self.returned = [*returned]
        self.may_work = {name: asyncio.Event() for name in held}
        self.may_merge = asyncio.Event()
        self.working: set[str] = set()
        self.merging: set[str] = set()
        self.began: list[str] = []
        self.most = 0

    async def work(self, ctx: NodeContext[S]) -> dict[str, Any]:
        await ctx.take_worker()
        name = ctx.item.id
        self.began.append(name)
        self.working.add(name)
        self.most = max(self.most, len(self.working))
        await asyncio.sleep(0)
        if name in self.may_work:
            await within(self.may_work[name].wait())
        self.working.remove(name)
        return {"log": [f"work {name}"]}

    async def merge(self, ctx: NodeContext[S]) -> NodeResult:
        ctx.free_worker()
        ctx.free_worker()  # once is enough
        name = ctx.item.id
        self.merging.add(name)
        await within(self.may_merge.wait())
        self.merging.remove(name)
        if name in self.returned:
            self.returned.remove(name)
            return NodeResult({"log": [f"return {name}"]}, goto="work")
        return NodeResult({"log": [f"merge {name}"]}, goto=END)

    def graph(self, path: Path, workers: int) -> CompiledGraph[S]:
        nodes = [node("work", self.work), node("merge", self.merge)]
        loop = task_loop_node("tasks", tasks_path=str(path), task_nodes=nodes, max_concurrency=workers)
        return graph(S).then(loop).compile()


async def test_others_work_while_a_task_merges_and_as_many_merge_as_there_are_workers(path: Path) -> None:
    tasks(path, *((str(number), "") for number in range(1, 8)))
    merging = Merging(held=("3", "4"))
    async with running(merging.graph(path, 2).run()) as run:
        await eventually(lambda: merging.working == {"3", "4"})
        assert merging.merging == {"1", "2"}
        merging.may_work["3"].set()
        await eventually(lambda: merging.merging == {"1", "2", "3"})
        await run_ready_tasks()
        assert merging.began == ["1", "2", "3", "4"]  # 3 waits with its worker
        merging.may_work["4"].set()
        merging.may_merge.set()
        assert (await within(asyncio.wait_for(run, None))).status is RunStatus.COMPLETED
    assert (merging.most, sorted(merging.began)) == (2, [str(number) for number in range(1, 8)])


async def test_a_task_that_comes_back_gets_a_worker_before_one_that_has_not_begun(path: Path) -> None:
    tasks(path, *((name, "") for name in "abcd"))
    merging = Merging(returned=("a",), held=("b", "c"))
    async with running(merging.graph(path, 2).run()) as run:
        await eventually(lambda: merging.merging == {"a"} and merging.working == {"b", "c"})
        merging.may_merge.set()
        await eventually(lambda: not merging.merging)
        await run_ready_tasks()
        assert merging.began == ["a", "b", "c"]
        merging.may_work["b"].set()
        await eventually(lambda: len(merging.began) > 3)
        assert merging.began[3] == "a"
        merging.may_work["c"].set()
        assert (await within(asyncio.wait_for(run, None))).status is RunStatus.COMPLETED
    assert merging.most == 2


async def test_one_worker_does_one_task_after_the_other(path: Path) -> None:
    tasks(path, ("1", ""), ("2", ""))
    merging = Merging(returned=("1",))
    merging.may_merge.set()
    state = (await ended(merging.graph(path, 1))).state
    assert state.log == ["work 1", "return 1", "work 1", "merge 1", "work 2", "merge 2"]


@given(
    workers=st.integers(1, 4),
    count=st.integers(1, 8),
    returned=st.lists(st.integers(0, 7), max_size=6),
)
def test_every_task_ends_and_no_more_work_than_there_are_workers(
    tmp_path_factory: pytest.TempPathFactory, workers: int, count: int, returned: list[int]
) -> None:
    path = tasks(tmp_path_factory.mktemp("loop") / "tasks.json", *((str(number), "") for number in range(count)))
    merging = Merging(returned=tuple(map(str, returned)))
    merging.may_merge.set()
    result = asyncio.run(within(merging.graph(path, workers).run()))
    expected = sum(1 for number in returned if number < count) + count
    assert (result.status, len(merging.began)) == (RunStatus.COMPLETED, expected)
    assert merging.most <= workers


async def test_a_task_outside_of_a_loop_has_no_worker_to_free() -> None:
    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        ctx.free_worker()
        await ctx.take_worker()
        return {"log": ["done"]}

    assert (await ended(graph(S).node("work", work).compile())).state.log == ["done"]
