"""Concurrent branches: joins, winners, cancellation and limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from atomic.graph.engine.node import Strategy
from atomic.workflows import (
    Edge,
    GraphConfig,
    GraphError,
    MemoryJournal,
    Node,
    NodeContext,
    Question,
    RunStatus,
    ask_user_node,
    compile_graph,
    graph,
    node,
    parallel_node,
    tool_node,
)
from tests.graph.engine.small import (
    RUN,
    S,
    ended,
    fail,
    failed,
    kill_when,
    run_ready_tasks,
    say,
    wait_for,
    within,
    write,
)
from tests.support.processes import is_alive
from tests.support.waits import eventually

# Join once


def chain(name: str, length: int) -> list[Node[S]]:
    return [say(f"{name}{place}") for place in range(length)]


async def test_branches_of_1_3_and_7_nodes_meet_once() -> None:
    branches = {name: graph(S).then(chain(name, length)) for name, length in (("a", 1), ("b", 3), ("c", 7))}
    compiled = graph(S).parallel(branches).then(say("join")).compile()
    expected = ["a0", *(f"b{n}" for n in range(3)), *(f"c{n}" for n in range(7)), "join"]
    assert (await ended(compiled)).state.log == expected


async def test_branches_of_1_3_and_7_nodes_made_by_edges_meet_once() -> None:
    branches = [chain("a", 1), chain("b", 3), chain("c", 7)]
    edges = [Edge("start", branch[0].id) for branch in branches]
    for branch in branches:
        ids = [*(node.id for node in branch), "join"]
        edges += [Edge(one, other) for one, other in pairwise(ids)]
    nodes = [say("start"), *(node for branch in branches for node in branch), say("join")]
    compiled = compile_graph(GraphConfig(start_node="start", nodes=nodes, edges=edges, state=S))
    expected = ["start", "a0", *(f"b{n}" for n in range(3)), *(f"c{n}" for n in range(7)), "join"]
    assert (await ended(compiled)).state.log == expected


async def test_results_are_merged_in_the_order_of_declaration_not_of_arrival() -> None:
    second = asyncio.Event()
    third = asyncio.Event()

    async def last(ctx: NodeContext[S]) -> dict[str, Any]:
        third.set()
        return {"log": ["c"], "outputs": {"x": "c"}}

    async def middle(ctx: NodeContext[S]) -> dict[str, Any]:
        await within(third.wait())
        second.set()
        return {"log": ["b"], "outputs": {"x": "b"}}

    compiled = graph(S).parallel({"a": wait_for("a", second), "b": node("b", middle), "c": node("c", last)}).compile()
    state = (await ended(compiled)).state
    assert (state.log, state.outputs) == (["a", "b", "c"], {"x": "c"})


async def test_branches_are_real_concurrency() -> None:
    here = asyncio.Event()
    there = asyncio.Event()

    async def ping(ctx: NodeContext[S]) -> None:
        here.set()
        await within(there.wait())

    async def pong(ctx: NodeContext[S]) -> None:
        await within(here.wait())
        there.set()

    await ended(graph(S).parallel([node("ping", ping), node("pong", pong)]).compile())


async def test_branches_do_not_see_each_other() -> None:
    first = asyncio.Event()

    async def one(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": ["one"]}

    async def told(ctx: NodeContext[S]) -> None:
        first.set()

    async def other(ctx: NodeContext[S]) -> dict[str, Any]:
        await within(first.wait())
        assert ctx.state.log == ["before"]
        return {"log": ["other"]}

    async def later(ctx: NodeContext[S]) -> None:
        assert ctx.state.log == ["before", "other"]

    compiled = (
        graph(S)
        .then(say("before"))
        .parallel([graph(S).node("one", one).node("told", told), graph(S).node("other", other).node("later", later)])
    )
    assert (await ended(compiled.compile())).state.log == ["before", "one", "other"]


# Merging


async def test_only_the_merge_function_decides() -> None:
    def merge(branches: Mapping[str, S], state: S) -> dict[str, Any]:
        assert list(branches) == ["x", "y"]
        assert state.log == ["before"]
        return {"text": branches["x"].text + branches["y"].text, "total": len(branches["y"].log)}

    compiled = (
        graph(S)
        .then(say("before"))
        .parallel({"x": write("a", text="1", log=["a"]), "y": write("b", text="2", log=["b"])}, merge=merge)
        .compile()
    )
    state = (await ended(compiled)).state
    assert (state.text, state.total, state.log) == ("12", 2, ["before"])


@pytest.mark.parametrize("shape", ["parallel", "edges"])
async def test_two_branches_that_write_one_field_are_an_error_that_names_both(shape: str) -> None:
    nodes = [write("left", text="1"), write("right", text="2")]
    try:
        if shape == "parallel":
            compiled = graph(S).parallel(nodes, id="both").then(say("join")).compile()
        else:
            edges = [Edge("start", "left"), Edge("start", "right"), Edge("left", "join"), Edge("right", "join")]
            config = GraphConfig(start_node="start", nodes=[say("start"), *nodes, say("join")], edges=edges, state=S)
            compiled = compile_graph(config)
    except GraphError as error:  # where compile can detect it
        text = str(error)
    else:
        result = await within(compiled.run({"text": "before"}))
        assert result.status is RunStatus.FAILED
        text = str(result.error)
    assert "'left'" in text
    assert "'right'" in text
    assert "'text'" in text


async def test_two_items_that_write_one_field_are_an_error_that_names_both() -> None:
    compiled = graph(S).map("m", over=lambda s: [1, 2], node=write("n", text="x")).compile()
    text = await failed(compiled, "m")
    assert "'n[0]'" in text
    assert "'n[1]'" in text


async def test_one_branch_may_write_a_field_as_often_as_it_likes() -> None:
    twice = graph(S).then(write("a", text="1")).then(write("b", text="2"))
    compiled = graph(S).parallel([twice, say("c")]).then(write("d", text="3")).compile()
    assert (await ended(compiled)).state.text == "3"


async def test_writers_of_one_field_in_two_parallels_do_not_conflict() -> None:
    one = graph(S).parallel([write("a", text="1"), say("b")], id="one")
    compiled = one.parallel([write("c", text="2"), say("d")], id="two").compile()
    assert (await ended(compiled)).state.text == "2"


async def test_writers_in_nested_branches_are_a_conflict() -> None:
    inner = graph(S).parallel([say("b"), write("c", text="2")], id="inner")
    result = await within(graph(S).parallel([write("a", text="1"), inner], id="outer").compile().run())
    text = str(result.error)
    assert text.startswith("outer: ")
    assert "'a'" in text
    assert "'c'" in text


# All, race, any


class Loser:
    """Return a branch that hangs with a child process and reports its clean-up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cleaned = False

    @property
    def pid_file(self) -> Path:
        return self.folder / "pid"

    @property
    def started(self) -> bool:
        return self.pid_file.exists() and bool(self.pid_file.read_text().strip())

    async def run(self, ctx: NodeContext[S]) -> None:
        try:
            script = f"echo $$ > {self.pid_file}.new && mv {self.pid_file}.new {self.pid_file} && exec sleep 1000"
            await ctx.exec("sh", "-c", script)
        finally:
            await asyncio.sleep(0)
            self.cleaned = True

    def assert_gone(self) -> None:
        assert self.cleaned
        assert not is_alive(int(self.pid_file.read_text()))


def when_started(loser: Loser, id: str, *, fails: bool = False) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        await eventually(lambda: loser.started)
        if fails:
            raise ValueError("broken")
        return {"log": [id]}

    return node(id, run)


@pytest.mark.parametrize("strategy", ["race", "any"])
async def test_losers_are_cancelled_awaited_and_their_processes_end(strategy: Strategy, tmp_path: Path) -> None:
    loser = Loser(tmp_path)
    branches = {"slow": node("slow", loser.run), "fast": when_started(loser, "fast")}

    async def check(ctx: NodeContext[S]) -> dict[str, Any]:
        loser.assert_gone()
        return {"log": ["behind"]}

    compiled = graph(S).parallel(branches, strategy=strategy).node("behind", check).compile()
    assert (await ended(compiled)).state.log == ["fast", "behind"]


async def test_a_failure_cancels_the_others(tmp_path: Path) -> None:
    loser = Loser(tmp_path)
    compiled = graph(S).parallel({"slow": node("slow", loser.run), "bad": when_started(loser, "bad", fails=True)})
    assert "broken" in await failed(compiled.compile(), "bad")
    loser.assert_gone()


async def test_cancelling_a_run_ends_all_branches_and_their_processes(tmp_path: Path) -> None:
    loser = Loser(tmp_path)
    task = asyncio.create_task(graph(S).parallel([node("slow", loser.run), say("b")]).compile().run())
    await eventually(lambda: loser.started)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    loser.assert_gone()


async def test_race_is_decided_by_the_first_to_end_even_by_failing() -> None:
    never = asyncio.Event()
    compiled = graph(S).parallel({"a": wait_for("a", never), "b": fail("b")}, strategy="race").compile()
    assert "broken" in await failed(compiled, "b")


async def test_race_takes_the_winner_only() -> None:
    never = asyncio.Event()
    slow = graph(S).then(write("before", total=100)).then(wait_for("slow", never))
    compiled = graph(S).parallel({"slow": slow, "fast": write("fast", total=1)}, strategy="race").compile()
    assert (await ended(compiled)).state.total == 1


async def test_any_takes_the_first_success() -> None:
    never = asyncio.Event()
    branches = {"bad": fail("bad"), "slow": wait_for("slow", never), "good": say("good")}
    assert (await ended(graph(S).parallel(branches, strategy="any").compile())).state.log == ["good"]


async def test_any_fails_with_every_reason_when_all_failed() -> None:
    branches = {"x": fail("a", "reason one"), "y": fail("b", "reason two")}
    text = await failed(graph(S).parallel(branches, strategy="any", id="p").compile(), "p")
    for part in ("'a'" if "'a'" in text else "a", "reason one", "reason two"):
        assert part in text


def counted(id: str, runs: list[str], *, fails: bool = False) -> Node[S]:
    """Return a node that records its execution and may fail."""

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        runs.append(id)
        if fails:
            raise ValueError(f"{id} is broken")
        return {"log": [id]}

    return node(id, run)


@pytest.mark.parametrize("limit", [0, 1])
async def test_a_failed_branch_of_any_does_not_run_again_while_another_waits(limit: int) -> None:
    journal = MemoryJournal()
    runs = list[str]()
    failing = [counted("before", runs), counted("bad", runs, fails=True)]
    asking: list[Node[S]] = [ask_user_node("q", "Go on?"), ask_user_node("r", "Really?")]
    branches = {"bad": failing, "good": asking}
    compiled = graph(S).parallel(branches, strategy="any", max_concurrency=limit).then(say("next")).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, runs) == (RunStatus.PAUSED, ["before", "bad"])
    for answers in (None, {"q": "yes"}, None):
        result = await within(compiled.resume(journal, RUN, answers=answers))
        assert (result.status, runs) == (RunStatus.PAUSED, ["before", "bad"])
    copy = journal.fork(RUN)
    for id in (RUN, copy):
        result = await within(compiled.resume(journal, id, answers={"r": "yes"}))
        assert (result.status, result.state.log, runs) == (RunStatus.COMPLETED, ["next"], ["before", "bad"])


async def test_any_names_failures_before_a_pause_and_a_resume_retries_all() -> None:
    journal = MemoryJournal()
    runs = list[str]()
    broken = [True]

    async def asks(ctx: NodeContext[S]) -> dict[str, Any]:
        answer = await ctx.ask(Question("Go on?", id="q"))
        if broken:
            raise ValueError(f"{answer} is no answer")
        return {"log": [str(answer)]}

    branches = {"bad": counted("bad", runs, fails=True), "asks": node("asks", asks)}
    compiled = graph(S).parallel(branches, strategy="any", id="p").compile()
    assert (await within(compiled.run(journal=journal, execution_id=RUN))).status is RunStatus.PAUSED
    result = await within(compiled.resume(journal, RUN, answers={"q": "no"}))
    text = "p: all branches failed: bad: bad: ValueError: bad is broken; asks: asks: ValueError: no is no answer"
    assert (result.status, str(result.error), runs) == (RunStatus.FAILED, text, ["bad"])
    result = await within(compiled.resume(journal, RUN))  # the failed parallel is retried as a whole
    assert (result.status, runs) == (RunStatus.FAILED, ["bad", "bad"])
    broken.clear()
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log, runs) == (RunStatus.COMPLETED, ["no"], ["bad", "bad", "bad"])


async def test_a_killed_any_does_not_run_its_failed_branch_again() -> None:
    runs = list[str]()
    reached = asyncio.Event()

    async def slow(ctx: NodeContext[S]) -> dict[str, Any]:
        while "bad" not in runs:
            await asyncio.sleep(0)
        if ctx.attempt == 1:
            await run_ready_tasks()
            reached.set()
            await asyncio.Event().wait()
        return {"log": ["slow"]}

    branches = {"bad": counted("bad", runs, fails=True), "slow": node("slow", slow)}
    compiled = graph(S).parallel(branches, strategy="any").compile()
    journal = await kill_when(compiled, reached)
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log, runs) == (RunStatus.COMPLETED, ["slow"], ["bad"])


async def test_race_with_a_merge_function_gets_the_winner() -> None:
    never = asyncio.Event()
    compiled = graph(S).parallel(
        {"slow": wait_for("slow", never), "fast": say("fast")},
        strategy="race",
        merge=lambda branches, state: {"text": ",".join(branches)},
    )
    assert (await ended(compiled.compile())).state.text == "fast"


async def test_the_winner_of_a_race_stays_the_winner() -> None:
    """A decided race is not run again, even if another branch would be faster."""
    never = asyncio.Event()
    compiled = graph(S).parallel({"slow": wait_for("slow", never), "fast": say("fast")}, strategy="race")
    journal = MemoryJournal()
    graph_ = compiled.then(fail("later")).compile()
    await within(graph_.run(journal=journal, execution_id=RUN))
    never.set()
    result = await within(graph_.resume(journal, RUN))
    assert result.state.log == ["fast"]


async def test_losers_that_catch_the_cancellation_are_still_awaited() -> None:
    cleaned: list[str] = []

    async def stubborn(ctx: NodeContext[S]) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            for _ in range(5):
                await asyncio.sleep(0)
            cleaned.append("stubborn")

    async def fast(ctx: NodeContext[S]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"log": ["fast"]}

    compiled = graph(S).parallel([node("stubborn", stubborn), node("fast", fast)], strategy="race").compile()
    assert (await ended(compiled)).state.log == ["fast"]
    assert cleaned == ["stubborn"]


# How many at once


class Crowd:
    """Counts concurrent executions, and holds them until enough have arrived."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.inside = 0
        self.most = 0
        self.full = asyncio.Event()

    async def run(self, ctx: NodeContext[S]) -> None:
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside >= self.size:
            self.full.set()
        await within(self.full.wait())
        for _ in range(3):
            await asyncio.sleep(0)
        self.inside -= 1


@pytest.mark.parametrize(("option", "of_graph", "size"), [(2, 4, 2), (None, 4, 4), (None, 3, 3), (0, 1, 12), (1, 4, 1)])
@pytest.mark.parametrize("shape", ["parallel", "map"])
async def test_no_more_than_max_concurrency_run_at_once(
    shape: str, option: int | None, of_graph: int, size: int
) -> None:
    crowd = Crowd(size)
    builder = graph(S)
    if shape == "parallel":
        builder = builder.parallel([node(f"n{number}", crowd.run) for number in range(12)], max_concurrency=option)
    else:
        builder = builder.map("m", over=lambda s: range(12), node=node("n", crowd.run), max_concurrency=option)
    await ended(builder.compile(max_concurrency=of_graph))
    assert crowd.most == size


async def test_four_branches_run_at_once_by_default() -> None:
    crowd = Crowd(4)
    await ended(graph(S).map("m", over=lambda s: range(12), node=node("n", crowd.run)).compile())
    assert crowd.most == 4


async def test_branches_made_by_edges_are_bounded_by_the_graph() -> None:
    crowd = Crowd(2)
    names = [f"n{number}" for number in range(6)]
    config = GraphConfig(
        start_node="start",
        nodes=[say("start"), *(node(name, crowd.run) for name in names)],
        edges=[Edge("start", name) for name in names],
        state=S,
        max_concurrency=2,
    )
    await ended(compile_graph(config))
    assert crowd.most == 2


async def test_nesting_cannot_deadlock() -> None:
    def nested(depth: int, name: str) -> Node[S]:
        if depth == 0:
            return say(name)
        branches = [nested(depth - 1, f"{name}{number}") for number in range(2)]
        return parallel_node(f"p{name}", branches, max_concurrency=1)

    mapped = graph(S).map("m", over=lambda s: [1, 2], node=nested(3, "x"), max_concurrency=1)
    assert len((await ended(mapped.compile(max_concurrency=1))).state.log) == 16


async def test_each_parallel_has_a_bound_of_its_own() -> None:
    """Two concurrent maps that may each run two items run four at a time."""
    crowd = Crowd(4)
    maps = [
        graph(S).map(f"m{number}", over=lambda s: range(6), node=node(f"n{number}", crowd.run), max_concurrency=2)
        for number in range(2)
    ]
    await ended(graph(S).parallel(maps, max_concurrency=2).compile(max_concurrency=1))
    assert crowd.most == 4


async def test_a_blocking_tool_in_every_branch_does_not_stop_the_loop() -> None:
    branches: dict[str, Node[S]] = {f"b{n}": tool_node(f"t{n}", lambda: sum(range(1000))) for n in range(20)}
    state = (await ended(graph(S).parallel(branches, max_concurrency=0).compile())).state
    assert len(state.outputs) == 20


async def test_branches_of_a_list_are_named_after_their_nodes() -> None:
    seen: list[str] = []

    def merge(branches: Mapping[str, S], state: S) -> dict[str, Any]:
        seen.extend(branches)
        return {}

    await ended(graph(S).parallel([say("a"), graph(S).then(say("b")).then(say("c"))], merge=merge).compile())
    assert seen == ["a", "b"]
