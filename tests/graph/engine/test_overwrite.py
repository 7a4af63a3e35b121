"""`Overwrite` in an update: the field is replaced past its reducer, in every place where updates go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from atomic.workflows import (
    CompiledGraph,
    Edge,
    GraphConfig,
    MemoryJournal,
    NodeContext,
    NodeResult,
    Overwrite,
    RunStatus,
    Signal,
    Skip,
    SqliteJournal,
    State,
    ask_user_node,
    compile_graph,
    graph,
    node,
    parallel_node,
    subgraph_node,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, ended, fail, failed, say, within, write


async def after_each_row(graph: CompiledGraph[Any], expected: Any, *, snapshots: bool = False) -> None:
    """Run the graph, then resume it after a kill at each row, with the same result."""
    journal = KeptJournal()
    assert (await ended(graph, journal=journal, execution_id=RUN)).state == expected
    assert graph.load(journal, RUN) == expected
    for rows in range(len(journal.rows(RUN))):
        cut = journal.cut(RUN, rows, snapshots=snapshots)
        result = await within(graph.resume(cut, RUN))
        assert result.state == expected, f"after {rows} rows"
        assert graph.load(cut, RUN) == expected, f"after {rows} rows"


async def test_a_field_is_replaced_past_its_reducer_and_grows_again() -> None:
    flow = graph(S).then([say("a"), say("b"), write("c", log=Overwrite(["new"]), total=Overwrite(7)), say("d")])
    flow = flow.then(write("e", total=2)).compile()
    state = (await ended(flow)).state
    assert (state.log, state.total) == (["new", "d"], 9)
    await after_each_row(flow, S(log=["new", "d"], total=9, execution_id=RUN))


async def test_a_field_without_a_reducer_may_be_overwritten() -> None:
    await after_each_row(graph(S).then(write("a", text=Overwrite("x"))).compile(), S(text="x", execution_id=RUN))


async def test_snapshots_and_earlier_states_have_the_new_value() -> None:
    async def checkpoint(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": Overwrite(["kept"])}, signals=[Signal("checkpoint")])

    flow = graph(S).then([say("a"), node("b", checkpoint), say("c")]).compile()
    await after_each_row(flow, S(log=["kept", "c"], execution_id=RUN), snapshots=True)
    journal = MemoryJournal()
    await ended(flow, journal=journal, execution_id=RUN)
    assert [flow.load(journal, RUN, at=step).log for step in range(4)] == [[], ["a"], ["kept"], ["kept", "c"]]


async def test_sqlite_keeps_it_and_records_are_plain_data(tmp_path: Path) -> None:
    flow = graph(S).then([say("a"), write("b", log=Overwrite(["new"])), ask_user_node("q", "go?"), say("c")]).compile()
    with SqliteJournal(tmp_path / "runs.db") as journal:
        await within(flow.run(journal=journal, execution_id=RUN))
    with SqliteJournal(tmp_path / "runs.db") as journal:
        assert [record.update for record in journal.records(RUN)] == [{"log": ["a"]}, {"log": ["new"]}]
        fork = journal.fork(RUN, at=2)
        assert flow.load(journal, fork).log == ["new"]
        result = await within(flow.resume(journal, RUN, answers={"q": "yes"}))
    assert result.state.log == ["new", "c"]


async def test_two_branches_that_overwrite_one_field_conflict() -> None:
    branches = [write("a", log=Overwrite(["a"])), write("b", log=Overwrite(["b"]))]
    text = await failed(graph(S).then(parallel_node("p", branches)).compile(), "p")
    assert text == "p: 'a' and 'b' both write 'log', and Overwrite allows only one branch to write it"
    branches = [write("a", log=Overwrite(["a"])), say("b")]
    text = await failed(graph(S).then(parallel_node("p", branches)).compile(), "p")
    assert text == "p: 'a' and 'b' both write 'log', and Overwrite allows only one branch to write it"


async def test_one_branch_that_overwrites_a_field_joins() -> None:
    branches = [write("a", log=Overwrite(["a"])), write("b", total=3)]
    flow = graph(S).then([say("first"), parallel_node("p", branches), say("last")]).compile()
    await after_each_row(flow, S(log=["a", "last"], total=3, execution_id=RUN))


async def test_branches_of_edges_and_items_of_a_map_follow_the_same_rule() -> None:
    nodes = [say("s"), write("a", log=Overwrite(["a"])), write("b", log=Overwrite(["b"])), say("e")]
    ways = [("s", "a"), ("s", "b"), ("a", "e"), ("b", "e")]
    flow = compile_graph(GraphConfig(start_node="s", nodes=nodes, edges=ways, state=S))
    assert "'a' and 'b' both write 'log', and Overwrite allows" in await failed(flow, "e")
    nodes[2] = write("b", total=1)
    flow = compile_graph(GraphConfig(start_node="s", nodes=nodes, edges=ways, state=S))
    await after_each_row(flow, S(log=["a", "e"], total=1, execution_id=RUN))

    over = graph(S).map("m", lambda s: [1, 2], write("one", log=Overwrite(["x"]))).compile()
    assert "'one[0]' and 'one[1]' both write 'log'" in await failed(over, "m")
    over = graph(S).map("m", lambda s: [1], write("one", log=Overwrite(["x"]))).compile()
    await after_each_row(over, S(log=["x"], outputs={"m": [None]}, execution_id=RUN))


async def test_a_chain_after_a_fork_may_overwrite_twice() -> None:
    """Both writers are on one line, so they do not conflict."""
    nodes = [
        say("s"),
        write("a", log=Overwrite(["a"])),
        write("a2", log=Overwrite(["a2"])),
        write("b", total=1),
        say("e"),
    ]
    ways = [("s", "a"), ("a", "a2"), ("s", "b"), ("a2", "e"), Edge("b", "e")]
    flow = compile_graph(GraphConfig(start_node="s", nodes=nodes, edges=ways, state=S))
    await after_each_row(flow, S(log=["a2", "e"], total=1, execution_id=RUN))


async def test_a_subgraph_overwrites_a_shared_field() -> None:
    child = graph(S).then([say("x"), write("y", log=Overwrite(["only"])), say("z")]).compile()
    flow = graph(S).then([say("a"), subgraph_node("sub", child), say("b")]).compile()
    result = await ended(flow)
    assert result.state.log == ["only", "z", "b"]
    journal = KeptJournal()
    await ended(flow, journal=journal, execution_id=RUN)
    for rows in range(len(journal.rows(RUN))):
        cut = journal.cut(RUN, rows)
        assert (await within(flow.resume(cut, RUN))).state.log == ["only", "z", "b"], f"after {rows} rows"


def added(current: list[str], update: list[str]) -> list[str]:
    return [*current, *update]


class Words(State):
    names: Annotated[list[str], added] = []


async def test_a_subgraph_overwrites_a_field_with_an_authors_reducer() -> None:
    async def run(ctx: NodeContext[Words]) -> dict[str, Any]:
        return {"names": Overwrite([ctx.node_id])}

    async def more(ctx: NodeContext[Words]) -> dict[str, Any]:
        return {"names": ["more"]}

    child = graph(Words).node("x", more).node("y", run).node("z", more).compile()
    flow = graph(Words).node("a", more).subgraph("sub", child).compile()
    await after_each_row(
        flow,
        Words(
            names=["sub/y", "more"],
            execution_id=RUN,
            outputs=(await ended(flow)).state.outputs
            | {"sub": {"execution_id": RUN, "last_updated": "", "names": ["sub/y", "more"], "outputs": {}}},
        ),
    )


async def test_mappers_merge_functions_and_handled_failures_may_overwrite() -> None:
    flow = (
        graph(S)
        .then(say("a"))
        .tool("t", lambda: 1, output_mapper=lambda result, state: {"log": Overwrite(["t"])})
        .then(fail("f", on_error=lambda error, ctx: Skip({"total": Overwrite(5)})))
        .parallel([say("x"), say("y")], id="p", merge=lambda branches, state: {"log": Overwrite(sorted(branches))})
        .compile()
    )
    await after_each_row(flow, S(log=["x", "y"], total=5, outputs={}, execution_id=RUN))


async def test_migrated_data_has_the_overwritten_value() -> None:
    flow = graph(S).then([say("a"), write("b", log=Overwrite(["new"])), ask_user_node("q", "go?")])
    journal = MemoryJournal()
    await within(flow.compile().run(journal=journal, execution_id=RUN))
    newer = flow.compile(state_version=2, migrate_state=lambda old, version: {**old, "text": ",".join(old["log"])})
    result = await within(newer.resume(journal, RUN, answers={"q": "yes"}))
    assert (result.status, result.state.text) == (RunStatus.COMPLETED, "new")


async def test_input_may_hold_one_and_a_wrong_value_is_named() -> None:
    flow = graph(S).then(write("a", log=Overwrite("text"))).compile()
    assert await failed(flow, "a") == "a, log: Expected `array`, got `str`"
    assert (await ended(graph(S).then(say("a")).compile(), {"log": Overwrite(["in"])})).state.log == ["in", "a"]
    flow = graph(S).then(write("a", lgo=Overwrite([]))).compile()
    assert "S has no such field (did you mean" in await failed(flow, "a")


async def test_it_replaces_whole_fields_only() -> None:
    flow = graph(S).then(write("a", outputs={"x": Overwrite(1)})).compile()
    assert "a value of type Overwrite cannot be recorded" in await failed(flow, "a")


async def test_a_stream_shows_the_update_as_it_is() -> None:
    flow = graph(S).then(write("a", log=Overwrite(["x"]))).compile()
    steps = [step async for step in flow.stream()]
    assert [step.update for step in steps] == [{"log": Overwrite(["x"])}]
    assert repr(Overwrite(["x"])) == "Overwrite(['x'])"
