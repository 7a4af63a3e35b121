"""A bad graph never starts, and an exception in an author's function fails its node."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from typing import Annotated, Any, cast

import msgspec
import pytest

from atomic.workflows import (
    END,
    Edge,
    GraphBuilder,
    GraphConfig,
    GraphError,
    MemoryJournal,
    Node,
    NodeContext,
    NodeResult,
    Retry,
    RunStatus,
    State,
    ask_user_node,
    compile_graph,
    decision_node,
    graph,
    map_node,
    node,
    parallel_node,
    reducers,
    subgraph_node,
    tool_node,
    wait_node,
)
from tests.graph.engine.small import RUN, S, fail, failed, say, within

# Compiling


def problems_of(build: Callable[[], Any]) -> list[tuple[str, str]]:
    with pytest.raises(GraphError) as caught:
        build()
    for problem in caught.value.problems:
        assert problem.message in str(caught.value)
    return [(problem.node_id, problem.message) for problem in caught.value.problems]


def config(*edges: Edge, start: str = "a", nodes: str = "abcd", **options: Any) -> GraphConfig[S]:
    return GraphConfig(start_node=start, nodes=[say(name) for name in nodes], edges=edges, state=S, **options)


@pytest.mark.parametrize(
    ("bad", "node_id", "words"),
    [
        (config(start="x", nodes="a"), "", "'x'"),
        (config(Edge("a", "x"), nodes="a"), "a", "'x'"),
        (config(Edge("x", "a"), nodes="a"), "x", "'x'"),
        (config(nodes="aa"), "a", "duplicate"),
        (config(Edge("a", "b"), nodes="abc"), "c", "cannot be reached"),
        (config(Edge("a", "b"), Edge("b", "a"), Edge("b", END), nodes="ab"), "a", "max_iterations"),
        (config(Edge("a", "b"), Edge("b", "a"), nodes="ab", max_iterations=3), "", "no way on"),
        (config(Edge("a", "b"), nodes="ab", max_steps=-1), "", "max_steps"),
        (config(Edge("a", "b"), nodes="ab", max_concurrency=-1), "", "max_concurrency"),
        (config(Edge("a", "b"), nodes="ab", max_iterations=-1), "", "max_iterations"),
        (config(Edge("a", "b"), nodes="ab", state_version=0), "", "state_version"),
        (config(Edge("a", "b"), nodes="ab", timeout=-1), "", "timeout"),
    ],
)
def test_each_mistake_in_a_config_is_named(bad: GraphConfig[S], node_id: str, words: str) -> None:
    found = problems_of(lambda: compile_graph(bad))
    assert any((not node_id or at == node_id) and words in message for at, message in found), found


def test_all_problems_are_listed_at_once() -> None:
    bad = GraphConfig(
        start_node="strat",
        nodes=[
            say("start"),
            say("start"),
            say("lonely"),
            decision_node("d", [(lambda s: True, "nowhere")]),
            parallel_node("p", {}, strategy=cast("Any", "al")),
            say("n", timeout=-1),
            say("m", retry=Retry(attempts=0)),
        ],
        edges=[Edge("start", "d"), Edge("start", "p"), Edge("start", "n"), Edge("n", "m"), Edge("m", "end")],
        state=S,
    )
    found = problems_of(lambda: compile_graph(bad))
    text = "\n".join(f"{node_id}: {message}" for node_id, message in found)
    for word in ("'strat'", "duplicate", "'nowhere'", '"al"', "at least one branch", "timeout", "attempts", "'end'"):
        assert word in text, text
    assert {"start", "d", "p", "n", "m"} <= {node_id for node_id, _ in found}


def test_builder_methods_never_raise_compile_does() -> None:
    builder = graph(S).tool("a", run=lambda: 1).tool("a", run=lambda: 2)
    builder = builder.loop([], until=lambda s: True, max_iterations=-1)
    builder = builder.parallel({}).parallel([], strategy=cast("Any", "nope"))
    builder = builder.decision("d", routes=[])
    builder = builder.then(cast("Any", "not a node"))
    builder = builder.map("m", over=lambda s: [], node=[])
    found = problems_of(builder.compile)
    assert len(found) >= 7


@pytest.mark.parametrize(
    ("build", "node_id", "words"),
    [
        (lambda: graph(S), "", "no nodes"),
        (lambda: graph(S).then(say("a/b")), "a/b", "'/'"),
        (lambda: graph(S).then(say("a[0]")), "a[0]", "'['"),
        (lambda: graph(S).loop([say("a")], until=lambda s: True, max_iterations=-1), "loop-1", "max_iterations"),
        (lambda: graph(S).loop([], until=lambda s: True), "loop-1", "no nodes"),
        (lambda: graph(S).parallel({"x": []}), "parallel-1", "'x'"),
        (lambda: graph(S).parallel([say("a")], strategy=cast("Any", "rcae")), "parallel-1", '"race"'),
        (lambda: graph(S).parallel([say("a")], max_concurrency=-2), "parallel-1", "max_concurrency"),
        (lambda: graph(S).parallel([say("a")], merge=cast("Any", "all")), "parallel-1", "merge"),
        (lambda: graph(S).parallel([say("a")], timeout=0), "parallel-1", "timeout"),
        (lambda: graph(S).map("m", over=lambda s: [], node=say("a"), max_concurrency=-2), "m", "max_concurrency"),
        (lambda: graph(S).map("m", over=cast("Any", [1, 2]), node=say("a")), "m", "over"),
        (lambda: graph(S).tool("t", run=cast("Any", 7)), "t", "run"),
        (lambda: graph(S).tool("t", run=lambda: 1, args=cast("Any", [1])), "t", "args"),
        (lambda: graph(S).if_(cast("Any", True), then=[say("a")]), "if-1", "condition"),
        (lambda: graph(S).loop([say("a")], until=cast("Any", None)), "loop-1", "until"),
        (lambda: graph(S).then(say("a")).then(say("a")), "a", "duplicate"),
        (lambda: graph(S).parallel([say("a"), graph(S).then(say("b")).then(say("a"))]), "a", "duplicate"),
        (lambda: graph(S).then(say("a")).catch(say("a")), "a", "duplicate"),
        (lambda: graph(S).decision("d", [(lambda s: True, END)]).then(say("b")), "b", "cannot be reached"),
        (lambda: graph(S).then(say("a", timeout=0)), "a", "timeout"),
        (lambda: graph(S).then(say("a", retry=Retry(-1))), "a", "delay"),
        (lambda: graph(S).then(say("a", retry=Retry(attempts=0))), "a", "attempts"),
        (lambda: graph(S).subgraph("g", cast("Any", graph(S).then(say("a")))), "g", "compile"),
    ],
)
def test_each_mistake_in_a_chain_is_named(build: Callable[[], GraphBuilder[S]], node_id: str, words: str) -> None:
    found = problems_of(lambda: build().compile())
    assert any(at == node_id and words in message for at, message in found), found


@pytest.mark.parametrize("options", [{"max_steps": -1}, {"max_concurrency": -1}, {"state_version": 0}, {"timeout": 0}])
def test_bad_options_of_a_graph_are_refused(options: dict[str, Any]) -> None:
    ((_, message),) = problems_of(lambda: graph(S).then(say("a")).compile(**options))
    assert next(iter(options)) in message


@pytest.mark.parametrize(
    "make",
    [
        lambda: cast("Any", ask_user_node)("q", "?", recovery=True),
        lambda: cast("Any", wait_node)("w", "?", retry=Retry()),
        lambda: cast("Any", decision_node)("d", [], model="m"),
        lambda: cast("Any", tool_node)("t", lambda: 1, model="m"),
        lambda: cast("Any", node)("n", None, args={}),
        lambda: cast("Any", parallel_node)("p", [], retry=Retry()),
    ],
)
def test_an_option_that_has_no_effect_is_refused(make: Callable[[], Any]) -> None:
    """The call or the graph refuses it; no option is accepted and ignored."""
    try:
        made = make()
    except TypeError:
        return
    problems_of(lambda: graph(S).then(made).compile())


class NoState(msgspec.Struct):
    a: int = 0


class Unreadable(State):
    a: "Nowhere" = None  # noqa: F821, UP037  # pyright: ignore[reportUndefinedVariable]  # that is the mistake


def test_a_class_that_is_not_a_state_is_named() -> None:
    ((_, message),) = problems_of(lambda: graph(cast("Any", NoState)).then(cast("Any", say("a"))).compile())
    assert "State" in message
    found = problems_of(lambda: graph(Unreadable).then(cast("Any", say("a"))).compile())
    assert "Nowhere" in found[0][1]


async def test_a_recovery_node_needs_no_edge() -> None:
    bad = GraphConfig(
        start_node="a", nodes=[say("a"), say("b", recovery=True), say("c")], edges=[Edge("b", "c")], state=S
    )
    await within(compile_graph(bad).run())


def test_a_message_names_the_problem_the_place_and_the_fix() -> None:
    with pytest.raises(GraphError) as caught:
        compile_graph(config(Edge("a", "revew"), nodes="a", name="mine"))
    assert '"mine"' in str(caught.value)
    with_near = GraphConfig(start_node="a", nodes=[say("a"), say("review")], edges=[Edge("a", "revew")], state=S)
    assert any("review" in message for _, message in problems_of(lambda: compile_graph(with_near)))


# Functions that raise


def explode(*args: Any) -> Any:
    raise KeyError("boom")


def exploding_reducer(current: Any, update: Any) -> Any:
    raise KeyError("boom")


class Fragile(S):
    fragile: Annotated[int, exploding_reducer] = 0


def touch(id: str) -> Node[Fragile]:
    async def run(ctx: NodeContext[Fragile]) -> dict[str, Any]:
        return {"fragile": 1, "log": [id]}

    return node(id, run)


CHILD = graph(S).then(say("x")).compile()

EXPLOSIONS: dict[str, tuple[str, Callable[[], Any]]] = {
    "condition of an if": ("if-1", lambda: graph(S).if_(explode, then=[say("a")])),
    "condition of an else_if": (
        "if-1",
        lambda: graph(S).if_(lambda s: False, then=[say("a")], else_if=[(explode, [say("b")])]),
    ),
    "until": ("loop-1", lambda: graph(S).loop([say("a")], until=explode)),
    "route": ("d", lambda: graph(S).decision("d", [(explode, END)])),
    "reducer": ("n", lambda: graph(Fragile).then(touch("n"))),
    "reducer in a branch": ("n", lambda: graph(Fragile).parallel([touch("n"), cast("Any", say("b"))])),
    "output_mapper": ("t", lambda: graph(S).tool("t", run=lambda: 1, output_mapper=explode)),
    "args": ("t", lambda: graph(S).tool("t", run=lambda: 1, args=explode)),
    "merge": ("parallel-1", lambda: graph(S).parallel([say("a")], merge=explode)),
    "over": ("m", lambda: graph(S).map("m", over=explode, node=say("a"))),
    "input_mapper": ("g", lambda: graph(S).subgraph("g", CHILD, input_mapper=explode)),
    "output_mapper of a subgraph": ("g", lambda: graph(S).subgraph("g", CHILD, output_mapper=explode)),
    "on_error": ("n", lambda: graph(S).then(fail("n", on_error=explode))),
    "on_error of a composite": ("parallel-1", lambda: graph(S).parallel([fail("n")], on_error=explode)),
    "retry_on": ("n", lambda: graph(S).then(fail("n", retry=Retry(0, retry_on=explode)))),
    "question": ("q", lambda: graph(S).ask_user("q", explode)),
    "prompt": ("wait-1", lambda: graph(S).wait(explode)),
    "auto_approve": ("wait-1", lambda: graph(S).wait("?", auto_approve=explode)),
}


@pytest.mark.parametrize("what", EXPLOSIONS)
@pytest.mark.parametrize("journaled", [False, True])
async def test_an_exception_in_a_function_of_the_author_is_a_clear_failure(what: str, journaled: bool) -> None:
    node_id, build = EXPLOSIONS[what]
    journal = MemoryJournal() if journaled else None
    compiled = build().compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert result.status is RunStatus.FAILED
    text = str(result.error)
    assert text.startswith(node_id), text
    assert "boom" in text
    if journal is not None:
        assert journal.list()[0].status == "failed"
        assert (await within(compiled.resume(journal, RUN))).status is RunStatus.FAILED


async def test_an_exception_in_the_condition_of_an_edge_names_its_node() -> None:
    compiled = compile_graph(config(Edge("a", "b", condition=explode), Edge("a", "c"), nodes="abc"))
    text = await failed(compiled, "a: ")
    assert "boom" in text


def add_below_two(current: int, update: int) -> int:
    if current + update == 2:
        raise ZeroDivisionError
    return current + update


class Picky(S):
    """Return two updates that are valid separately and conflict together."""

    picky: Annotated[int, add_below_two] = 0


@pytest.mark.parametrize("shape", ["parallel", "map", "edges"])
async def test_a_reducer_that_fails_where_branches_join_names_the_place(shape: str) -> None:
    async def run(ctx: NodeContext[Picky]) -> dict[str, Any]:
        return {"picky": 1}

    ends: dict[str, Any] = {
        "parallel": graph(Picky).parallel([node("x", run), node("y", run)], id="join"),
        "map": graph(Picky).map("join", over=lambda s: [1, 2], node=node("x", run)),
    }
    if shape == "edges":
        names = ("x", "y")
        compiled = compile_graph(
            GraphConfig(
                start_node="start",
                nodes=[cast("Any", say("start")), node("x", run), node("y", run), cast("Any", say("join"))],
                edges=[*(Edge("start", name) for name in names), *(Edge(name, "join") for name in names)],
                state=Picky,
            )
        )
    else:
        compiled = ends[shape].compile()
    text = await failed(compiled, "join")
    assert "picky" in text
    assert "ZeroDivisionError" in text


@pytest.mark.parametrize(
    "build",
    [
        lambda: graph(S).tool("n", run=lambda: 1, output_mapper=lambda result, state: {"nope": 1}),
        lambda: graph(S).parallel([say("a")], id="n", merge=lambda branches, state: {"nope": 1}),
        lambda: graph(S).subgraph("n", CHILD, input_mapper=lambda s: {"nope": 1}),
        lambda: graph(S).subgraph("n", CHILD, output_mapper=lambda end, s: {"nope": 1}),
    ],
)
async def test_an_unknown_field_names_node_and_field_wherever_it_comes_from(build: Callable[[], Any]) -> None:
    await failed(build().compile(), "n, nope: ")


@pytest.mark.parametrize(
    "build",
    [
        lambda: graph(S).tool("n", run=lambda: 1, output_mapper=lambda result, state: cast("Any", 7)),
        lambda: graph(S).tool("n", run=lambda: 1, args=lambda s: cast("Any", 7)),
        lambda: graph(S).parallel([say("a")], id="n", merge=lambda branches, state: cast("Any", 7)),
        lambda: graph(S).subgraph("n", CHILD, input_mapper=lambda s: cast("Any", 7)),
        lambda: graph(S).subgraph("n", CHILD, output_mapper=lambda end, s: cast("Any", 7)),
        lambda: graph(S).map("n", over=lambda s: cast("Any", 7), node=say("a")),
        lambda: graph(S).map("n", over=lambda s: [object()], node=say("a")),
    ],
)
async def test_a_function_that_answers_something_else_is_a_clear_failure(build: Callable[[], Any]) -> None:
    await failed(build().compile(), "n", journal=MemoryJournal())


async def test_a_node_fails_if_its_update_cannot_be_recorded() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"outputs": {"x": {"deep": [1, object()]}}}

    text = await failed(graph(S).node("n", run).compile(), "n, outputs.x.deep[1]: ")
    assert "object" in text


async def test_a_reducer_gone_wrong_leaves_the_state_as_it_was() -> None:
    result = await within(graph(Fragile).then(cast("Any", say("a"))).then(touch("n")).compile().run())
    assert (result.state.log, result.state.fragile) == (["a"], 0)


def test_reducers_of_a_field_are_found_among_other_annotations() -> None:
    class Extras(State):
        a: Annotated[int, "a comment", msgspec.Meta(ge=0), reducers.sum] = 0

    async def run(ctx: NodeContext[Extras]) -> dict[str, Any]:
        return {"a": 1}

    graph(Extras).node("n", run).compile()


def test_nodes_given_twice_are_reported() -> None:
    same = say("a")
    found = problems_of(lambda: graph(S).then(same).then(same).compile())
    assert found[0][0] == "a"


def test_a_map_and_a_subgraph_are_nodes_of_a_config() -> None:
    nodes: list[Node[S]] = [map_node("m", over=lambda s: [1], node=say("x")), subgraph_node("g", CHILD)]
    compile_graph(GraphConfig(start_node="m", nodes=nodes, edges=[Edge("m", "g")], state=S))


async def later(*args: Any) -> Any:
    return [1]


ASYNC_WHERE_IT_CANNOT_BE: dict[str, Callable[[], Any]] = {
    "condition": lambda: graph(S).if_(cast("Any", later), then=[say("a")]),
    "else_if": lambda: graph(S).if_(lambda s: False, then=[say("a")], else_if=[(cast("Any", later), [say("b")])]),
    "until": lambda: graph(S).loop([say("a")], until=cast("Any", later)),
    "route": lambda: graph(S).decision("d", [(cast("Any", later), END)]),
    "merge": lambda: graph(S).parallel([say("a")], merge=cast("Any", later)),
    "over": lambda: graph(S).map("m", over=cast("Any", later), node=say("a")),
    "args": lambda: graph(S).tool("t", run=lambda: 1, args=cast("Any", later)),
    "output_mapper": lambda: graph(S).tool("t", run=lambda: 1, output_mapper=cast("Any", later)),
    "input_mapper": lambda: graph(S).subgraph("g", CHILD, input_mapper=cast("Any", later)),
    "output_mapper of a subgraph": lambda: graph(S).subgraph("g", CHILD, output_mapper=cast("Any", later)),
    "auto_approve": lambda: graph(S).wait("?", auto_approve=cast("Any", later)),
}


@pytest.mark.parametrize("what", ASYNC_WHERE_IT_CANNOT_BE)
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
async def test_an_async_function_is_refused_where_a_plain_one_is_needed(what: str) -> None:
    """A coroutine is true, so a condition that is not awaited would always hold."""
    text = await failure_of(ASYNC_WHERE_IT_CANNOT_BE[what]())
    # Python warns when it collects the coroutine: let that happen in this test.
    gc.collect()
    assert "async" in text or "coroutine" in text


async def failure_of(builder: GraphBuilder[S]) -> str:
    """Return the message of `compile`, or of the run if `compile` cannot detect it."""
    try:
        compiled = builder.compile()
    except GraphError as error:
        return str(error)
    result = await within(compiled.run())
    assert result.status is RunStatus.FAILED
    return str(result.error)


@pytest.mark.parametrize(
    "answer",
    [
        NodeResult(update=cast("Any", 7)),
        NodeResult(goto=cast("Any", 7)),
        NodeResult(goto=cast("Any", [7])),
        NodeResult(goto=()),
        NodeResult(signals=cast("Any", 7)),
        NodeResult(signals=cast("Any", [7])),
        NodeResult(signals="checkpoint"),
        {7: "x"},
    ],
    ids=repr,
)
async def test_a_malformed_result_is_a_clear_failure(answer: Any) -> None:
    async def run(ctx: NodeContext[S]) -> Any:
        return answer

    await failed(graph(S).node("n", run).compile(), "n")


def test_a_repeated_edge_is_reported_or_counts_once() -> None:
    twice = config(Edge("a", "b"), Edge("a", "b"), nodes="ab")
    try:
        compiled = compile_graph(twice)
    except GraphError:
        return
    assert asyncio.run(compiled.run()).state.log == ["a", "b"]
