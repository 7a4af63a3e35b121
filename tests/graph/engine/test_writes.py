"""Branches that write the same field are refused by `compile`, or at the join."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from atomic.graph import GraphBuilder, GraphError, Node, NodeContext, NodeResult, RunStatus, Skip, graph, node
from tests.graph.engine.small import S, ended, failed, say

Function = Callable[[NodeContext[S]], Awaitable[Any]]


async def write(ctx: NodeContext[S]) -> dict[str, Any]:
    return {"text": ctx.node_id}


def writer(id: str, **options: Any) -> Node[S]:
    return node(id, write, **options)


def problems_of(builder: GraphBuilder[Any]) -> list[tuple[str, str]]:
    """Return what `compile` reports about a graph."""
    try:
        builder.compile()
    except GraphError as error:
        return [(problem.node_id, problem.message) for problem in error.problems]
    return []


def beside_writer(*branch: Any, **options: Any) -> GraphBuilder[S]:
    """Return a parallel of this branch and one that writes `text`."""
    return graph(S).parallel({"this": list(branch), "other": writer("other")}, id="both", **options)


def test_compile_refuses_two_branches_that_return_the_same_field() -> None:
    builder = graph(S).parallel([writer("left"), writer("right")], id="both")
    assert problems_of(builder) == [
        ("both", "'left' and 'right' both write 'text', which has no reducer; give it one, or a merge function")
    ]


async def write_several(ctx: NodeContext[S]) -> dict[str, Any]:
    return {"count": 1, "text": "x", "total": 1, "log": ["x"], "outputs": {"x": 1}}


def test_each_field_is_reported_once_with_its_first_two_writers() -> None:
    branches = {
        "a": [node("a1", write_several), writer("a2")],
        "b": [writer("b1"), writer("b2")],
        "c": [node("c1", write_several)],
    }
    found = problems_of(graph(S).parallel(branches, id="p"))
    assert [(node_id, message.partition(",")[0]) for node_id, message in found] == [
        ("p", "'a1' and 'b1' both write 'text'"),
        ("p", "'a1' and 'c1' both write 'count'"),
    ]


def test_nested_parallels_and_other_problems_are_reported_together() -> None:
    inner = graph(S).parallel([writer("b"), writer("c")], id="inner")
    builder = graph(S).loop(graph(S).parallel([say("a"), inner], id="outer"), until=lambda s: True).then(say("a/b"))
    assert {node_id for node_id, _ in problems_of(builder)} == {"inner", "a/b"}


class Callee:
    async def __call__(self, ctx: NodeContext[S]) -> dict[str, Any]:
        return {"text": "x"}


async def write_by_call(ctx: NodeContext[S]) -> dict[str, Any]:
    return dict(text=ctx.node_id)  # noqa: C408  # not a literal


async def write_on_both_paths(ctx: NodeContext[S]) -> Any:
    if ctx.state.done:
        return {"text": "done"}
    return NodeResult({"text": "open"})


async def write_with_prefix(prefix: str, ctx: NodeContext[S]) -> dict[str, Any]:
    return {"text": prefix}


@pytest.mark.parametrize(
    "run", [write_by_call, write_on_both_paths, Callee(), functools.partial(write_with_prefix, "x")]
)
async def test_the_join_names_both_nodes_where_compile_cannot_see_the_conflict(run: Function) -> None:
    compiled = graph(S).parallel([node("left", run), writer("right")], id="both").compile()
    text = await failed(compiled, "both")
    for word in ("'left'", "'right'", "'text'"):
        assert word in text


async def write_sometimes(ctx: NodeContext[S]) -> Any:
    if ctx.state.count == 0:
        return None
    return {"text": "x"}


async def write_in_helper(ctx: NodeContext[S]) -> Any:
    async def helper() -> Any:
        return {"text": "x"}

    await helper()


async def return_nothing(ctx: NodeContext[S]) -> None:
    pass


async def jump(ctx: NodeContext[S]) -> NodeResult:
    return NodeResult(goto="last")


def keep_quiet(function: Function) -> Function:
    @functools.wraps(function)
    async def run(ctx: NodeContext[S]) -> None:
        await function(ctx)

    return run


async def do_fail(ctx: NodeContext[S]) -> dict[str, Any]:
    raise ValueError("no")
    return {"text": "x"}


@pytest.mark.parametrize(
    "branch",
    [
        [node("this", write_sometimes)],
        [node("this", write_in_helper)],
        [node("this", return_nothing)],
        [node("this", keep_quiet(write))],
        [node("this", jump), writer("between"), say("last")],
        [node("this", do_fail, on_error=lambda error, ctx: Skip())],
        graph(S).if_(lambda s: s.done, then=writer("this")).items,
    ],
    ids=["sometimes", "helper", "nothing", "wrapped", "jump", "on_error", "if"],
)
async def test_a_node_that_may_not_write_is_not_refused(branch: list[Node[S]]) -> None:
    result = await beside_writer(*branch).compile().run()
    assert result.status is RunStatus.COMPLETED


def merge_nothing(branches: Any, state: S) -> dict[str, Any]:
    return {}


def skip(error: Exception, ctx: NodeContext[S]) -> Skip:
    return Skip()


@pytest.mark.parametrize(
    "options",
    [{"strategy": "race"}, {"strategy": "any"}, {"merge": merge_nothing}, {"on_error": skip}],
    ids=["race", "any", "merge", "on_error"],
)
async def test_a_parallel_that_can_succeed_is_not_refused(options: dict[str, Any]) -> None:
    await ended(beside_writer(writer("this"), **options).compile())


async def test_two_parallels_in_sequence_do_not_conflict() -> None:
    one = graph(S).parallel([writer("a"), say("b")]).parallel([writer("c"), say("d")])
    assert (await ended(one.compile())).state.text == "c"
