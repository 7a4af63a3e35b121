"""`pause_before`: the run pauses before these nodes, and a resume goes past them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atomic.tasks import Task, TaskList
from atomic.workflows import (
    CompiledGraph,
    GraphConfig,
    GraphError,
    Journal,
    MemoryJournal,
    Node,
    NodeContext,
    NodeResult,
    RunStatus,
    SqliteJournal,
    compile_graph,
    graph,
    map_node,
    node,
    parallel_node,
    subgraph_node,
    task_loop_node,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, failed, say, within
from tests.runs.small_runtime import runtime_with_workflows


async def stops_of(
    flow: CompiledGraph[Any], journal: Journal | None = None, deps: Any = None, most: int = 20
) -> tuple[list[str], Any]:
    """Run a graph and resume it until it ends; return before which nodes it has paused, and the end."""
    journal = journal or MemoryJournal()
    stops: list[str] = []
    result = await within(flow.run(journal=journal, execution_id=RUN, deps=deps))
    while result.status is RunStatus.PAUSED and len(stops) < most:
        assert set(result.codes) == {"breakpoint"}
        stops.append(str(result.error).replace(": the run pauses before this node", ""))
        result = await within(flow.resume(journal, RUN, deps=deps))
    return stops, result


async def test_a_run_pauses_before_a_node_and_a_resume_goes_past_it(tmp_path: Path) -> None:
    flow = graph(S).then([say("build"), say("deploy"), say("tell")]).compile(pause_before=["deploy"])
    with SqliteJournal(tmp_path / "runs.db") as journal:
        result = await within(flow.run(journal=journal, execution_id=RUN))
        assert (result.status, result.codes, result.state.log) == (RunStatus.PAUSED, ("breakpoint",), ["build"])
        assert str(result.error) == "deploy: the run pauses before this node"
        assert [info.status for info in journal.list()] == ["paused"]
        result = await within(flow.resume(journal, RUN))
        assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["build", "deploy", "tell"])
        assert [record.attempt for record in journal.records(RUN)] == [1, 1, 1]


async def test_several_nodes_the_first_one_and_each_visit_of_a_loop() -> None:
    flow = graph(S).then([say("a"), say("b"), say("c")]).compile(pause_before=["a", "c"])
    stops, result = await stops_of(flow)
    assert (stops, result.state.log) == (["a", "c"], ["a", "b", "c"])

    loop = graph(S).loop([say("a"), say("b")], until=lambda s: len(s.log) > 5).compile(pause_before=["b"])
    stops, result = await stops_of(loop)
    assert (stops, len(result.state.log)) == (["b"] * 3, 6)


async def test_an_edited_state_is_what_the_node_sees() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": [ctx.state.text]}

    flow = graph(S).then([say("a"), node("deploy", run)]).compile(pause_before=["deploy"])
    journal = MemoryJournal()
    await within(flow.run(journal=journal, execution_id=RUN))
    result = await within(flow.resume(journal, RUN, update={"text": "edited"}))
    assert result.state.log == ["a", "edited"]


async def test_nodes_in_branches_maps_and_edges() -> None:
    branches = {"x": graph(S).then([say("x1"), say("x2")]), "y": say("y")}
    stops, result = await stops_of(graph(S).then(parallel_node("p", branches)).compile(pause_before=["x2", "y"]))
    assert (stops, result.state.log) == (["x2; y"], ["x1", "x2", "y"])

    items: Node[S] = map_node("m", lambda s: [1, 2, 3], graph(S).then([say("one"), say("two")]), max_concurrency=1)
    stops, result = await stops_of(graph(S).then(items).compile(pause_before=["two"]))
    assert (stops, result.state.log) == (["two[0]; two[1]; two[2]"], ["one", "two"] * 3)

    nodes = [say("s"), say("a"), say("b"), say("e")]
    ways = [("s", "a"), ("s", "b"), ("a", "e"), ("b", "e")]
    flow = compile_graph(GraphConfig(start_node="s", nodes=nodes, edges=ways, state=S, pause_before=["b", "e"]))
    stops, result = await stops_of(flow)
    assert (stops, result.state.log) == (["b", "e"], ["s", "a", "b", "e"])


async def test_whole_composites() -> None:
    child = graph(S).then([say("in")]).compile()
    flow = (
        graph(S)
        .then([say("a"), parallel_node("p", [say("x"), say("y")]), map_node("m", lambda s: [1], say("i"))])
        .then(subgraph_node("sub", child))
        .compile(pause_before=["p", "m", "sub"])
    )
    stops, result = await stops_of(flow)
    assert (stops, result.state.log) == (["p", "m", "sub"], ["a", "x", "y", "i", "in"])


async def test_paths_into_subgraphs_and_workflows_by_name() -> None:
    inner = graph(S).then([say("x"), say("y")]).compile("inner")
    middle = graph(S).then([subgraph_node("deep", inner), say("z")]).compile("middle")
    over: Node[S] = map_node("m", lambda s: [1, 2], subgraph_node("outer", middle), max_concurrency=1)
    stops, result = await stops_of(graph(S).then(over).compile(pause_before=["outer/deep/y"]))
    assert stops == ["outer[0]/deep/y; outer[1]/deep/y"]
    assert result.state.log == ["x", "y", "z"] * 2

    flow = graph(S).then(subgraph_node("named", "inner")).compile(pause_before=["named/y"])
    stops, result = await stops_of(flow, deps=runtime_with_workflows(inner=inner))
    assert (stops, result.state.log) == (["named/y"], ["x", "y"])
    wrong = graph(S).then(subgraph_node("named", "inner")).compile(pause_before=["named/yy"])
    text = await failed(wrong, "named", deps=runtime_with_workflows(inner=inner))
    assert text == "named: pause_before: there is no node 'yy' (did you mean \"y\"?)"


async def test_a_subgraph_keeps_its_own() -> None:
    child = graph(S).then([say("x"), say("y")]).compile(pause_before=["y"])
    stops, result = await stops_of(graph(S).then([subgraph_node("sub", child), say("z")]).compile())
    assert (stops, result.state.log) == (["sub/y"], ["x", "y", "z"])


async def test_a_goto_leads_to_one(tmp_path: Path) -> None:
    async def jump(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult(goto="c")

    flow = graph(S).then([node("a", jump), say("b"), say("c")]).compile(pause_before=["b", "c"])
    stops, result = await stops_of(flow)
    assert (stops, result.state.log) == (["c"], ["c"])


async def test_tasks_pause_before_their_first_and_later_nodes(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    for place in ("first", "second"):
        TaskList([Task("1", "one"), Task("2", "two")]).write(str(path))
        loop: Node[S] = task_loop_node("loop", tasks_path=str(path), task_nodes=[say("first"), say("second")])
        stops, result = await stops_of(graph(S).then(loop).compile(pause_before=[place]))
        assert (stops, result.state.log) == ([f"{place}[1]", f"{place}[2]"], ["first", "second"] * 2)


async def test_a_node_that_failed_after_its_breakpoint_is_tried_again_without_a_pause() -> None:
    tries = 0

    async def run(ctx: NodeContext[S]) -> None:
        nonlocal tries
        tries += 1
        if tries == 1:
            raise ValueError("broken")

    flow = graph(S).node("a", run).compile(pause_before=["a"])
    journal = MemoryJournal()
    await within(flow.run(journal=journal, execution_id=RUN))
    assert (await within(flow.resume(journal, RUN))).status is RunStatus.FAILED
    assert (await within(flow.resume(journal, RUN))).status is RunStatus.COMPLETED
    assert [record.attempt for record in journal.records(RUN)] == [1, 2]


async def test_only_a_recorded_pause_counts_as_one() -> None:
    """A run that was killed before its pause was recorded pauses again; one that was killed after it does not."""
    branch = graph(S).then([say("x"), say("y")])
    flow = graph(S).then([say("a"), parallel_node("p", [branch, say("z")]), say("b")]).compile(pause_before=["y", "b"])
    journal = KeptJournal()
    stops, result = await stops_of(flow, journal)
    assert stops == ["y", "b"]
    rows = journal.rows(RUN)
    for count in range(len(rows)):
        cut = journal.cut(RUN, count)
        seen = [row.kind for row in rows[:count]].count(10)  # ENDED
        again: list[str] = []
        now = await within(flow.resume(cut, RUN))
        while now.status is RunStatus.PAUSED:
            again.append(str(now.error).partition(":")[0])
            now = await within(flow.resume(cut, RUN))
        assert now.state == result.state, count
        assert again == ["y", "b"][min(seen, 2) :], count


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["deplo"], "pause_before: there is no node 'deplo' (did you mean \"deploy\"?)"),
        (["sub/yy"], "pause_before: in 'sub': there is no node 'yy' (did you mean \"y\"?)"),
        (["deploy/x"], "pause_before: 'deploy' is not a subgraph, so it has no 'x'"),
        (["loop-1"], "pause_before: 'loop-1' is an if or a loop; name the first node inside it"),
        ("deploy", "pause_before is 'deploy'; give a list of ids: pause_before=[\"deploy\"]"),
        ([7], 'pause_before is [7]; give a list of ids: pause_before=["deploy"]'),
    ],
)
def test_a_wrong_breakpoint_is_a_problem_of_the_graph(given: Any, problem: str) -> None:
    child = graph(S).then([say("y")]).compile()
    flow = graph(S).then([say("deploy"), subgraph_node("sub", child)]).loop(say("i"), until=lambda s: True)
    with pytest.raises(GraphError) as caught:
        flow.compile(pause_before=given)
    assert [str(one) for one in caught.value.problems] == [problem]
