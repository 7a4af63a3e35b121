"""The arguments and results of a node's function, and calls of tools."""

from __future__ import annotations

import asyncio
import functools
import sys
import threading
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from atomic.workflows import (
    END,
    Edge,
    GraphConfig,
    GraphError,
    MemoryJournal,
    Node,
    NodeContext,
    NodeResult,
    RunStatus,
    Signal,
    compile_graph,
    decision_node,
    graph,
    node,
    tool_node,
)
from tests.graph.engine.small import RUN, S, ended, fail, failed, say, within, write
from tests.support.processes import is_alive
from tests.support.waits import eventually

# Answers


@pytest.mark.parametrize("answer", [NodeResult(update={"text": "x"}), NodeResult({"text": "x"}), {"text": "x"}])
async def test_a_node_answers_a_result_or_a_mapping(answer: Any) -> None:
    async def run(ctx: NodeContext[S]) -> Any:
        return answer

    assert (await ended(graph(S).node("n", run).compile())).state.text == "x"


@pytest.mark.parametrize("answer", [None, NodeResult(), {}])
async def test_a_node_may_answer_nothing(answer: Any) -> None:
    async def run(ctx: NodeContext[S]) -> Any:
        return answer

    result = await ended(graph(S).node("n", run).compile(), {"text": "x"})
    assert (result.state.text, result.steps) == ("x", 1)


@pytest.mark.parametrize("answer", [7, "text", ["a"], S()])
async def test_any_other_answer_fails_the_node_clearly(answer: Any) -> None:
    async def run(ctx: NodeContext[S]) -> Any:
        return answer

    assert "NodeResult" in await failed(graph(S).node("n", run).compile(), "n: returned ")


def test_a_sync_function_is_refused_as_a_node() -> None:
    with pytest.raises(GraphError) as caught:
        graph(S).node("n", cast("Any", lambda ctx: None)).compile()  # pyright: ignore[reportUnknownLambdaType]
    (problem,) = caught.value.problems
    assert problem.node_id == "n"
    assert "tool_node" in problem.message


# The context


async def test_the_context_knows_its_step() -> None:
    seen: list[tuple[Any, ...]] = []

    async def run(ctx: NodeContext[S, str]) -> None:
        seen.append((ctx.node_id, ctx.attempt, ctx.deps, ctx.item, ctx.index, ctx.model, list(ctx.errors)))
        assert ctx.state.text == "x"

    await ended(graph(S).node("n", run).compile(), {"text": "x"}, deps="the runtime")
    assert seen == [("n", 1, "the runtime", None, None, None, [])]


async def test_the_text_of_a_context_does_not_show_the_whole_run() -> None:
    seen: list[str] = []

    async def run(ctx: NodeContext[S]) -> None:
        seen.append(repr(ctx))

    await ended(graph(S).node("a", run).compile())
    assert seen[0].endswith(">")
    assert len(seen[0]) < 100


async def test_every_step_shares_a_unique_id_with_its_record_and_its_events() -> None:
    ids: list[str] = []

    async def run(ctx: NodeContext[S]) -> None:
        ids.append(ctx.step_id)

    journal = MemoryJournal()
    compiled = graph(S).loop([node("n", run), node("m", run)], until=lambda s: False, max_iterations=3).compile()
    streamed = [step.step_id async for step in compiled.stream(journal=journal, execution_id=RUN)]
    assert len(set(ids)) == 6
    assert streamed == ids == [record.step_id for record in journal.records(RUN)]


async def test_two_runs_share_no_step_id() -> None:
    ids: list[str] = []

    async def run(ctx: NodeContext[S]) -> None:
        ids.append(ctx.step_id)

    compiled = graph(S).node("n", run).compile()
    await ended(compiled)
    await ended(compiled)
    assert len(set(ids)) == 2


async def test_output_of_returns_the_output_of_a_node() -> None:
    seen: list[Any] = []

    async def look(ctx: NodeContext[S]) -> None:
        seen.extend([ctx.output_of("t"), ctx.output_of("nobody")])

    await ended(graph(S).tool("t", run=lambda: 42).node("look", look).compile())
    assert seen == [42, None]


async def test_events_of_a_node_belong_to_its_step() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        ctx.emit("progress", {"percent": 50})
        ctx.emit("progress", {"percent": 100})

    (step,) = [step async for step in graph(S).node("n", run).compile().stream()]
    assert [(event.type, event.data) for event in step.events] == [
        ("progress", {"percent": 50}),
        ("progress", {"percent": 100}),
    ]


async def test_a_node_gets_the_result_of_a_program() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        done = await ctx.exec("sh", "-c", "cat; echo err >&2; exit 3", input="in")
        return {"text": done.stdout, "log": [done.stderr.strip()], "count": done.exit_code}

    state = (await ended(graph(S).node("n", run).compile())).state
    assert (state.text, state.log, state.count) == ("in", ["err"], 3)


async def test_a_program_that_does_not_exist_fails_its_node() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        await ctx.exec("no-such-program-anywhere")

    assert "no-such-program-anywhere" in await failed(graph(S).node("n", run).compile(), "n")


async def test_a_program_ends_with_the_step_that_started_it(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    async def run(ctx: NodeContext[S]) -> None:
        beside = asyncio.create_task(ctx.exec("sh", "-c", f"echo $$ > {pid_file}; exec sleep 1000"))
        await eventually(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
        assert not beside.done()

    def look() -> bool:
        return is_alive(int(pid_file.read_text()))

    state = (await ended(graph(S).node("n", run).tool("look", run=look).compile())).state
    assert state.outputs == {"look": False}


# Models


def model_node(id: str, seen: dict[str, str | None], model: str | None = None) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> None:
        seen[ctx.node_id] = ctx.model

    return node(id, run, model=model)


async def test_a_model_is_the_nodes_own_then_the_parents_then_the_graphs() -> None:
    seen: dict[str, str | None] = {}
    child = graph(S).then(model_node("x", seen)).then(model_node("y", seen, "own")).compile(model="child")
    plain = graph(S).then(model_node("x", seen)).compile()
    compiled = (
        graph(S)
        .then(model_node("default", seen))
        .then(model_node("own", seen, "own"))
        .then(model_node("inherits", seen, "inherit"))
        .parallel({"a": model_node("in-parallel", seen), "b": model_node("other", seen, "inherit")}, model="parent")
        .map("m", over=lambda s: [1], node=model_node("item", seen), model="mapped")
        .subgraph("sub", child, model="parent")
        .subgraph("sub2", child)
        .subgraph("sub3", plain)
        .compile(model="graph")
    )
    await ended(compiled)
    assert seen == {
        "default": "graph",
        "own": "own",
        "inherits": "graph",
        "in-parallel": "parent",
        "other": "parent",
        "item[0]": "mapped",
        "sub/x": "parent",
        "sub/y": "own",
        "sub2/x": "child",
        "sub2/y": "own",
        "sub3/x": "graph",
    }


async def test_the_model_of_a_run_beats_the_graphs_default() -> None:
    seen: dict[str, str | None] = {}
    compiled = graph(S).then(model_node("n", seen)).then(model_node("own", seen, "own")).compile(model="graph")
    steps = [step async for step in compiled.stream(model="run")]
    assert seen == {"n": "run", "own": "own"}
    assert [step.model for step in steps] == ["run", "own"]


# Tools


async def test_a_tool_is_called_with_its_args() -> None:
    def add(a: int, b: int) -> int:
        return a + b

    compiled = (
        graph(S)
        .tool("fixed", run=add, args={"a": 1, "b": 2})
        .tool("asked", run=add, args=lambda s: {"a": s.count, "b": s.outputs["fixed"]})
        .compile()
    )
    assert (await ended(compiled, {"count": 40})).state.outputs == {"fixed": 3, "asked": 43}


async def test_a_tool_without_args_gets_the_state_or_nothing() -> None:
    def with_state(state: S) -> str:
        return state.text

    def with_default(state: Any = None) -> str:
        return type(state).__name__

    compiled = (
        graph(S)
        .tool("state", run=with_state)
        .tool("nothing", run=lambda: "none")
        .tool("default", run=with_default)
        .compile()
    )
    assert (await ended(compiled, {"text": "x"})).state.outputs == {"state": "x", "nothing": "none", "default": "S"}


async def test_a_tool_without_args_gets_the_item_inside_a_map() -> None:
    def double(item: int) -> int:
        return 2 * item

    compiled = graph(S).map("m", over=lambda s: [0, 1, 2], node=tool_node("double", double)).compile()
    assert (await ended(compiled)).state.outputs["m"] == [0, 2, 4]


async def test_a_tool_receives_an_item_of_none() -> None:
    compiled = graph(S).map("m", over=lambda s: [None], node=tool_node("t", repr)).compile()
    assert (await ended(compiled)).state.outputs["m"] == ["None"]


class Adder:
    def __init__(self, by: int) -> None:
        self.by = by

    def __call__(self, state: S) -> int:
        return state.count + self.by

    def method(self, state: S) -> int:
        return state.count + self.by

    async def async_method(self, state: S) -> int:
        return state.count + self.by


class AsyncAdder(Adder):
    async def __call__(self, state: S) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        return state.count + self.by


def _add(by: int, state: S) -> int:
    return state.count + by


async def _add_async(by: int, state: S) -> int:
    return state.count + by


def _add_later(state: S) -> Any:
    return _add_async(1, state)


@pytest.mark.parametrize(
    "function",
    [
        Adder(1),
        AsyncAdder(1),
        Adder(1).method,
        Adder(1).async_method,
        functools.partial(_add, 1),
        functools.partial(_add_async, 1),
        _add_later,
    ],
)
async def test_anything_that_can_be_called_is_a_tool(function: Any) -> None:
    assert (await ended(graph(S).tool("t", run=function).compile(), {"count": 1})).state.outputs == {"t": 2}


async def test_sync_tools_run_in_a_thread_and_async_ones_in_the_loop() -> None:
    threads: dict[str, int] = {}

    def sync() -> None:
        threads["sync"] = threading.get_ident()

    async def in_loop() -> None:
        threads["async"] = threading.get_ident()

    await ended(graph(S).tool("s", run=sync).tool("a", run=in_loop).compile())
    assert threads["sync"] != threading.get_ident()
    assert threads["async"] == threading.get_ident()


async def test_a_sync_tool_that_blocks_does_not_stop_other_branches() -> None:
    free = threading.Event()
    blocked = threading.Event()

    def block() -> None:
        blocked.set()
        assert free.wait(30)

    async def release(ctx: NodeContext[S]) -> None:
        while not blocked.is_set():
            await asyncio.sleep(0)
        free.set()

    await ended(graph(S).parallel({"tool": tool_node("block", block), "node": node("free", release)}).compile())


async def test_many_blocking_tools_run_at_once() -> None:
    everybody = threading.Barrier(40)

    def meet(item: int) -> None:
        everybody.wait(30)

    compiled = graph(S).map("m", over=lambda s: range(40), node=tool_node("t", meet), max_concurrency=0)
    await ended(compiled.compile())


async def test_a_tool_that_exits_only_fails() -> None:
    def leave() -> None:
        sys.exit(3)

    async def leave_async() -> None:
        sys.exit(3)

    for function in (leave, leave_async):
        assert "3" in await failed(graph(S).tool("t", run=function).compile(), "t: ")


async def test_an_output_mapper_decides_where_the_result_goes() -> None:
    compiled = graph(S).tool("t", run=lambda: 41, output_mapper=lambda result, state: {"count": result + state.count})
    state = (await ended(compiled.compile(), {"count": 1})).state
    assert (state.count, state.outputs) == (42, {})


class Numbers(msgspec.Struct):
    a: int
    b: int = 1


async def test_a_schema_checks_arguments_and_results() -> None:
    def add(a: int, b: int) -> dict[str, int]:
        return {"a": a + b}

    good = graph(S).tool("t", run=add, args={"a": 1}, input_schema=Numbers, output_schema=Numbers).compile()
    assert (await ended(good)).state.outputs["t"] == {"a": 2, "b": 1}
    bad_in = graph(S).tool("t", run=add, args={"a": "1"}, input_schema=Numbers).compile()
    assert "a" in await failed(bad_in, "t")
    bad_out = graph(S).tool("t", run=lambda: {"b": 1}, output_schema=Numbers).compile()
    assert "a" in await failed(bad_out, "t")


def test_a_schema_for_args_that_are_not_there_is_refused() -> None:
    with pytest.raises(GraphError, match=r"t: .*args"):
        graph(S).tool("t", run=lambda: 1, input_schema=Numbers).compile()


# Decisions and goto


def routed(fallback: str | None = None) -> Any:
    return (
        graph(S)
        .decision("d", routes=[(lambda s: s.count > 1, "many"), (lambda s: s.count > 0, "one")], fallback=fallback)
        .then(say("one"))
        .then(say("many"))
        .compile()
    )


@pytest.mark.parametrize(("count", "log"), [(2, ["many"]), (1, ["one", "many"]), (0, [])])
async def test_the_first_route_that_holds_is_taken(count: int, log: list[str]) -> None:
    assert (await ended(routed(fallback=END), {"count": count})).state.log == log


async def test_no_route_and_no_fallback_is_a_failure_not_silence() -> None:
    assert "no edge from 'd' matched" in await failed(routed(), "d")


def jump(id: str, target: Any) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": [id]}, goto=target)

    return node(id, run)


async def test_goto_overrides_the_next_node() -> None:
    nodes = [jump("a", "c"), say("b"), say("c"), jump("d", END), say("e")]
    edges = [Edge("a", "b"), Edge("b", "c"), Edge("c", "d"), Edge("d", "e")]
    config = GraphConfig(start_node="a", nodes=nodes, edges=edges, state=S)
    for compiled in (compile_graph(config), graph(S).then(nodes).compile()):
        assert (await ended(compiled)).state.log == ["a", "c", "d"]


async def test_going_to_the_end_is_recorded() -> None:
    caught = graph(S).then(fail("n")).then(say("b")).catch(jump("report", END))
    built = {
        "goto": graph(S).then(jump("a", END)).then(say("b")),
        "route": graph(S).then(say("a")).decision("d", [(lambda s: True, END)], fallback="b").then(say("b")),
        "catch": caught,
    }
    for name, builder in built.items():
        journal = MemoryJournal()
        compiled = builder.compile()
        result = await ended(compiled, journal=journal, execution_id=RUN)
        assert result.state.log == (["report"] if name == "catch" else ["a"])
        assert compiled.load(journal, RUN) == result.state
        assert (await compiled.resume(journal, RUN)).state == result.state


async def test_goto_leaves_a_loop() -> None:
    compiled = graph(S).loop([say("a"), jump("b", "out"), say("c")], until=lambda s: False).then(say("out")).compile()
    assert (await ended(compiled)).state.log == ["a", "b", "out"]


async def test_goto_leaves_nested_loops() -> None:
    inner = graph(S).loop([say("a"), jump("b", "out")], until=lambda s: False, id="inner")
    compiled = graph(S).loop(inner, until=lambda s: False, id="outer").then(say("out")).compile()
    assert (await ended(compiled)).state.log == ["a", "b", "out"]


async def test_goto_several_runs_them_at_once_and_joins_them() -> None:
    config = GraphConfig(
        start_node="a",
        nodes=[jump("a", ("b", "c")), say("b"), say("c"), say("d"), say("join")],
        edges=[*(Edge("a", name) for name in "bcd"), *(Edge(name, "join") for name in "bcd")],
        state=S,
    )
    assert (await ended(compile_graph(config))).state.log == ["a", "b", "c", "join"]


async def test_goto_several_in_a_chain_joins_where_one_leads_to_the_other() -> None:
    compiled = graph(S).then([jump("a", ("b", "d")), say("b"), say("c"), say("d"), say("e")]).compile()
    assert (await ended(compiled)).state.log == ["a", "b", "c", "d", "e"]


async def test_goto_very_many_joins_them_once() -> None:
    names = [f"n{number}" for number in range(40)]
    config = GraphConfig(
        start_node="a",
        nodes=[jump("a", names), *(say(name) for name in names), say("join")],
        edges=[
            *(Edge("a", name, condition=lambda s: False) for name in names),
            Edge("a", END),
            *(Edge(name, "join") for name in names),
        ],
        state=S,
    )
    assert (await ended(compile_graph(config))).state.log == ["a", *names, "join"]


async def test_goto_an_unknown_node_fails_and_names_the_nearest() -> None:
    text = await failed(graph(S).then(jump("a", "revew")).then(say("review")).compile(), "a")
    assert "revew" in text
    assert "review" in text


@pytest.mark.parametrize("shape", ["parallel", "map"])
async def test_goto_cannot_leave_a_branch(shape: str) -> None:
    builder = graph(S)
    if shape == "parallel":
        builder = builder.parallel({"x": jump("a", "out"), "y": say("b")})
    else:
        builder = builder.map("m", over=lambda s: [1], node=jump("a", "out"))
    text = await failed(builder.then(say("out")).compile(), "a")
    assert "out" in text


async def test_a_goto_back_is_bounded_by_max_steps() -> None:
    text = await failed(graph(S).then(say("a")).then(jump("b", "a")).compile(max_steps=10), "a")
    assert "10" in text


# Signals


def signalling(id: str, *signals: Signal | str) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": [id]}, signals=signals)

    return node(id, run)


@pytest.mark.parametrize("kind", ["context_window_warning", "debug_report_generated"])
async def test_warnings_reach_the_host(kind: str) -> None:
    compiled = graph(S).then(signalling("n", Signal(kind, "take care", {"percent": 80}))).compile()
    (event,) = [event async for event in compiled.stream(modes=["events"])]
    assert event.node_id == "n"
    assert event.data.type == "warning"
    assert "take care" in str(event.data.data)
    assert event.data.data["percent"] == 80


async def test_an_unknown_signal_fails_the_node() -> None:
    assert "checkpoint" in await failed(graph(S).then(signalling("n", "chekpoint")).compile(), "n")


async def test_a_checkpoint_keeps_a_snapshot() -> None:
    from tests.graph.engine.law_journals import KeptJournal

    journal = KeptJournal()
    compiled = graph(S).then(say("a")).then(signalling("b", "checkpoint")).then(say("c")).compile()
    await ended(compiled, journal=journal, execution_id=RUN)
    assert [steps for _, steps, _ in journal.snapshots] == [2]


async def test_a_failed_step_does_not_crash() -> None:
    result = await within(graph(S).then(fail("n")).then(write("never", text="x")).compile().run())
    assert result.status is RunStatus.FAILED
    assert str(result.error) == "n: ValueError: broken"
    assert result.state.text == ""


def test_decision_targets_are_checked_when_the_graph_is_built() -> None:
    with pytest.raises(GraphError, match=r"d: .*'nowhere'"):
        graph(S).then(decision_node("d", [(lambda s: True, "nowhere")])).compile()
