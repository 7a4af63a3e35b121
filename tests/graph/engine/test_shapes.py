"""Ifs, loops, maps, subgraphs and their nesting, as a chain."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

import atomic.workflows
from atomic.workflows import (
    Edge,
    GraphBuilder,
    GraphConfig,
    MemoryJournal,
    Node,
    NodeContext,
    State,
    WorkflowBuilder,
    compile_graph,
    graph,
    node,
    reducers,
    subgraph_node,
    tool_node,
)
from tests.graph.engine.small import RUN, S, ended, failed, say, within, write
from tests.support.waits import eventually

# The chain


async def test_the_first_call_is_the_entry_and_the_graph_ends_after_the_last() -> None:
    assert (await ended(graph(S).then(say("a")).then(say("b")).then(say("c")).compile())).state.log == ["a", "b", "c"]


async def test_builders_never_change() -> None:
    start = graph(S).then(say("a"))
    one = start.then(say("b"))
    other = start.then(say("c"))
    with_catch = start.catch(say("d"))
    assert with_catch is not start
    assert (await ended(start.compile())).state.log == ["a"]
    assert (await ended(one.compile())).state.log == ["a", "b"]
    assert (await ended(other.compile())).state.log == ["a", "c"]


async def test_a_builder_can_replace_a_node_everywhere() -> None:
    pair = graph(S).then(say("a")).then(say("b"))
    compiled = (
        graph(S)
        .then(graph(S).then(say("x")).then(say("y")))
        .if_(lambda s: True, then=graph(S).then(say("c")), else_=pair)
        .loop(graph(S).then(say("d")), until=lambda s: True)
        .parallel([graph(S).then(say("e")).then(say("f")), say("g")])
        .map("m", over=lambda s: [1], node=graph(S).then(say("h")).then(say("i")))
        .compile()
    )
    assert (await ended(compiled)).state.log == ["x", "y", "c", "d", "e", "f", "g", "h", "i"]


async def test_a_compiled_graph_can_be_run_any_number_of_times_at_once() -> None:
    compiled = graph(S).parallel({"a": say("a"), "b": say("b")}).then(say("c")).compile()
    results = [await ended(compiled) for _ in range(3)]
    assert all(result.state.log == ["a", "b", "c"] for result in results)
    assert len({result.execution_id for result in results}) == 3


def described(function: Any) -> tuple[dict[str, Any], dict[str, str], set[str]]:
    """Return the positional parameters with their defaults, the type of each option, and the required options."""
    hints = get_type_hints(function)
    positional: dict[str, Any] = {}
    options: dict[str, str] = {}
    required: set[str] = set()
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            [unpacked] = get_args(hints[name])
            fields = get_origin(unpacked) or unpacked
            options |= {option: str(hint) for option, hint in get_type_hints(fields).items()}
        elif parameter.kind is parameter.KEYWORD_ONLY:
            options[name] = str(hints[name])
            required |= {name} if parameter.default is parameter.empty else set()
        elif name != "self":
            positional[name] = parameter.default
    return positional, options, required


def test_every_factory_is_a_chained_method_with_the_same_arguments() -> None:
    factories = {name: getattr(atomic.workflows, name) for name in atomic.workflows.__all__ if name.endswith("_node")}
    assert len(factories) >= 17
    for name, factory in {"node": node, **factories}.items():
        positional, options, required = described(getattr(WorkflowBuilder, name.removesuffix("_node")))
        if name in ("wait_node", "parallel_node"):  # they get a number where no id is given
            positional = {"id": inspect.Parameter.empty, **positional}
            del options["id"]
        assert (positional, options, required) == described(factory), name


def test_composites_number_themselves() -> None:
    nested = graph(S).if_(lambda s: True, then=[say("a")]).loop([say("b")], until=lambda s: True)
    builder = nested.parallel([say("c")]).wait("go on?").wait("and now?").parallel([say("d")], id="mine")
    ids = builder.compile().node_ids
    assert {"if-1", "loop-1", "parallel-1", "wait-1", "wait-2", "mine"} <= set(ids)


# If


@pytest.mark.parametrize(("count", "log"), [(3, ["then"]), (2, ["elif"]), (1, ["elif2"]), (0, ["else"])])
async def test_the_first_branch_that_holds_is_taken(count: int, log: list[str]) -> None:
    compiled = (
        graph(S)
        .if_(
            lambda s: s.count > 2,
            then=[say("then")],
            else_if=[(lambda s: s.count > 1, [say("elif")]), (lambda s: s.count > 0, [say("elif2")])],
            else_=[say("else")],
        )
        .then(say("behind"))
        .compile()
    )
    assert (await ended(compiled, {"count": count})).state.log == [*log, "behind"]


async def test_an_if_that_does_not_hold_is_skipped() -> None:
    compiled = graph(S).if_(lambda s: False, then=[say("then")]).then(say("behind")).compile()
    assert (await ended(compiled)).state.log == ["behind"]


async def test_conditions_hold_for_any_truthy_value() -> None:
    compiled = graph(S).if_(lambda s: s.log, then=[say("then")]).compile()
    assert (await ended(compiled, {"log": ["x"]})).state.log == ["x", "then"]
    assert (await ended(compiled)).state.log == []


async def test_ifs_loops_parallels_and_maps_are_not_steps() -> None:
    compiled = (
        graph(S)
        .if_(lambda s: True, then=[say("a")])
        .loop([say("b")], until=lambda s: True)
        .parallel([say("c"), say("d")])
        .map("m", over=lambda s: [1, 2], node=say("e"))
        .compile()
    )
    journal = MemoryJournal()
    steps = [step.node_id async for step in compiled.stream(journal=journal, execution_id=RUN)]
    assert sorted(steps) == ["a", "b", "c", "d", "e[0]", "e[1]"]
    assert [record.node_id for record in journal.records(RUN)] == steps
    assert journal.list()[0].steps == 6


# Loops


async def test_until_is_checked_after_each_iteration() -> None:
    asked: list[int] = []

    def until(state: S) -> bool:
        asked.append(state.total)
        return state.total >= 3

    compiled = graph(S).loop([write("n", total=1)], until=until).compile()
    assert (await ended(compiled)).state.total == 3
    assert asked == [1, 2, 3]
    assert (await ended(compiled, {"total": 10})).state.total == 11


async def test_at_its_bound_a_loop_is_left_with_a_warning() -> None:
    compiled = graph(S).loop([say("n")], until=lambda s: False, max_iterations=3, id="again").then(say("b")).compile()
    result = await ended(compiled)
    assert result.state.log == ["n", "n", "n", "b"]
    events = [event async for event in compiled.stream(modes=["events"])]
    (warning,) = [event for event in events if event.data.type == "warning"]
    assert "again" in str(warning.data.data)
    assert "3" in str(warning.data.data)


async def test_a_loop_without_a_number_stops_at_100() -> None:
    compiled = graph(S).loop([write("n", total=1)], until=lambda s: False).compile()
    assert (await ended(compiled)).state.total == 100


async def test_zero_means_no_bound() -> None:
    compiled = graph(S).loop([write("n", total=1)], until=lambda s: s.total == 300, max_iterations=0).compile()
    assert (await ended(compiled)).state.total == 300


async def test_a_loop_that_is_entered_again_starts_from_zero() -> None:
    inner = graph(S).loop([say("i")], until=lambda s: False, max_iterations=2, id="inner")
    compiled = graph(S).loop(inner.then(say("o")), until=lambda s: False, max_iterations=3, id="outer").compile()
    assert (await ended(compiled)).state.log == ["i", "i", "o"] * 3


async def test_a_loop_that_was_left_by_goto_starts_from_zero_when_it_is_entered_again() -> None:
    async def leave(ctx: NodeContext[S]) -> Any:
        left = ctx.state.log.count("left")
        if ctx.state.log.count("i") == 2 and not left:
            return atomic.workflows.NodeResult({"log": ["left"]}, goto="o")
        return None

    inner = graph(S).loop([say("i"), node("leave", leave)], until=lambda s: False, max_iterations=3, id="inner")
    compiled = graph(S).loop(inner.then(say("o")), until=lambda s: False, max_iterations=2, id="outer").compile()
    assert (await ended(compiled)).state.log == ["i", "i", "left", "o", "i", "i", "i", "o"]


async def test_an_iteration_counts_once_however_many_nodes_it_has() -> None:
    body = [say("a"), say("b"), say("c")]
    compiled = graph(S).loop(body, until=lambda s: False, max_iterations=2).compile()
    assert (await ended(compiled)).state.log == ["a", "b", "c"] * 2


async def test_a_parallel_inside_a_loop_inside_an_if() -> None:
    work = graph(S).parallel({"x": graph(S).then(say("x1")).then(say("x2")), "y": say("y")}).then(say("join"))
    loop = graph(S).loop(work, until=lambda s: s.log.count("join") >= 2)
    compiled = graph(S).if_(lambda s: s.done, then=loop, else_=[say("no")]).then(say("end")).compile()
    assert (await ended(compiled, {"done": True})).state.log == ["x1", "x2", "y", "join"] * 2 + ["end"]
    assert (await ended(compiled)).state.log == ["no", "end"]


# Maps


async def test_a_map_gives_each_item_its_place_and_lists_the_outputs_in_item_order() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": [f"{ctx.node_id}={ctx.item}@{ctx.index}"], "outputs": {"item": ctx.item * 10}}

    compiled = graph(S).map("m", over=lambda s: [3, 1, 2], node=node("item", run)).compile()
    state = (await ended(compiled)).state
    assert state.log == ["item[0]=3@0", "item[1]=1@1", "item[2]=2@2"]
    assert state.outputs["m"] == [30, 10, 20]


async def test_a_map_takes_any_iterable() -> None:
    def letters(state: S) -> Any:
        yield from "ab"

    def double(item: str) -> str:
        return item * 2

    compiled = graph(S).map("m", over=letters, node=tool_node("t", double)).compile()
    assert (await ended(compiled)).state.outputs["m"] == ["aa", "bb"]


async def test_a_map_over_nothing_is_an_empty_list() -> None:
    compiled = graph(S).map("m", over=lambda s: [], node=say("n")).then(say("behind")).compile()
    state = (await ended(compiled)).state
    assert (state.outputs["m"], state.log) == ([], ["behind"])


class Job(msgspec.Struct, frozen=True):
    name: str


async def test_items_keep_their_type() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": [ctx.item.name]}

    compiled = graph(S).map("m", over=lambda s: [Job("a"), Job("b")], node=node("n", run)).compile()
    assert (await ended(compiled, journal=MemoryJournal())).state.log == ["a", "b"]


async def test_a_fan_out_of_1000_keeps_its_order() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"total": 1, "outputs": {"n": ctx.item}}

    compiled = graph(S).map("m", over=lambda s: range(1000), node=node("n", run)).then(say("join")).compile()
    for journal in (None, MemoryJournal()):
        state = (await ended(compiled, journal=journal)).state
        assert (state.total, state.outputs["m"], state.log) == (1000, list(range(1000)), ["join"])


async def test_a_fan_out_of_1000_branches_too() -> None:
    branches = {f"b{number}": write(f"n{number}", total=number) for number in range(1000)}
    state = (await ended(graph(S).parallel(branches).then(say("join")).compile(max_steps=0))).state
    assert (state.total, state.log) == (sum(range(1000)), ["join"])


async def test_a_fan_out_of_1000_edges_too() -> None:
    names = [f"n{number}" for number in range(1000)]
    config = GraphConfig(
        start_node="start",
        nodes=[say("start"), *(say(name) for name in names), say("join")],
        edges=[*(Edge("start", name) for name in names), *(Edge(name, "join") for name in names)],
        state=S,
        max_steps=0,
    )
    assert (await ended(compile_graph(config))).state.log == ["start", *names, "join"]


async def test_an_item_that_fails_fails_the_map() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        if ctx.item == 2:
            raise ValueError("no twos")

    text = await failed(graph(S).map("m", over=lambda s: [1, 2, 3], node=node("n", run)).compile(), "n[1]")
    assert "no twos" in text


async def test_maps_nest() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": [ctx.node_id], "outputs": {"n": ctx.item}}

    inner = graph(S).map("inner", over=lambda s: "ab", node=node("n", run))
    state = (await ended(graph(S).map("outer", over=lambda s: [1, 2], node=inner).compile())).state
    assert state.log == ["n[0][0]", "n[0][1]", "n[1][0]", "n[1][1]"]
    assert state.outputs["outer"] == [["a", "b"], ["a", "b"]]


async def test_items_do_not_see_each_other() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        assert ctx.state.log == ["before"]
        return {"log": [str(ctx.item)]}

    compiled = graph(S).then(say("before")).map("m", over=lambda s: range(5), node=node("n", run), max_concurrency=1)
    assert (await ended(compiled.compile())).state.log == ["before", *"01234"]


# Subgraphs


class Child(State):
    text: str = ""
    log: Annotated[list[str], reducers.concat] = []
    own: int = 7


def child_node(id: str) -> Node[Child]:
    async def run(ctx: NodeContext[Child]) -> dict[str, Any]:
        return {"log": [ctx.node_id], "text": ctx.state.text + "!", "own": ctx.state.own + 1}

    return node(id, run)


async def test_fields_of_the_same_name_go_in_and_come_back() -> None:
    child = graph(Child).then(child_node("x")).then(child_node("y")).compile()
    state = (await ended(graph(S).then(say("a")).subgraph("sub", child).compile(), {"text": "hi", "count": 5})).state
    assert (state.text, state.log, state.count) == ("hi!!", ["a", "sub/x", "sub/y"], 5)
    final = state.outputs["sub"]
    assert (final["text"], final["own"], final["log"]) == ("hi!!", 9, ["a", "sub/x", "sub/y"])


async def test_mappers_translate_the_input_and_output_of_a_subgraph() -> None:
    child = graph(Child).then(child_node("x")).compile()
    compiled = graph(S).subgraph(
        "sub",
        child,
        input_mapper=lambda s: {"own": s.count, "text": "in"},
        output_mapper=lambda end, s: {"count": end.own + s.count, "log": [end.text]},
    )
    state = (await ended(compiled.compile(), {"count": 10, "text": "mine"})).state
    assert (state.count, state.text, state.log, state.outputs) == (21, "mine", ["in!"], {})


async def test_a_subgraph_is_a_step_and_so_are_its_nodes() -> None:
    child = graph(Child).then(child_node("x")).compile()
    steps = [step.node_id async for step in graph(S).subgraph("sub", child).compile().stream()]
    assert steps == ["sub/x", "sub"]


async def test_subgraphs_nest() -> None:
    inner = graph(Child).then(child_node("x")).compile()
    middle = graph(Child).subgraph("inner", inner).then(child_node("y")).compile()
    compiled = graph(S).subgraph("outer", middle).map("m", over=lambda s: [1], node=subgraph_node("again", inner))
    assert (await ended(compiled.compile())).state.log == ["outer/inner/x", "outer/y", "again[0]/x"]


def count_updates(current: int, update: int) -> int:
    return current + 1


class Counted(State):
    """The reducer counts updates, whatever they are."""

    updates: Annotated[int, count_updates] = 0


async def test_a_field_comes_back_as_the_subgraph_left_it_whatever_its_reducer() -> None:
    async def run(ctx: NodeContext[Counted]) -> dict[str, Any]:
        return {"updates": 0}

    three = graph(Counted).node("a", run).node("b", run).node("c", run).compile()
    result = await within(graph(Counted).node("before", run).subgraph("sub", three).compile().run())
    assert result.state.outputs["sub"]["updates"] == 4
    assert result.state.updates == 4


async def test_two_runs_with_a_subgraph_are_equal() -> None:
    compiled = graph(S).subgraph("sub", graph(S).then(say("a")).compile()).compile()
    one = (await ended(compiled, execution_id=RUN)).state
    await eventually(lambda: datetime.now(UTC) > datetime.fromisoformat(one.last_updated) + timedelta(milliseconds=2))
    assert (await ended(compiled, execution_id=RUN)).state == one


async def test_a_failing_subgraph_fails_its_node_and_names_the_inner_one() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        raise ValueError("broken")

    child = graph(S).node("x", run).compile()
    assert "broken" in await failed(graph(S).subgraph("sub", child).compile(), "sub/x")


async def test_the_same_subgraph_twice_in_a_loop() -> None:
    child = graph(S).loop([write("n", total=1)], until=lambda s: False, max_iterations=2).compile()
    twice = graph(S).subgraph("one", child).subgraph("two", child)
    compiled = graph(S).loop(twice, until=lambda s: False, max_iterations=3).compile()
    assert (await ended(compiled)).state.total == 12


def test_a_chain_is_typed_as_a_builder() -> None:
    assert isinstance(graph(S).then(say("a")), GraphBuilder)
