"""Targets that a node declares with goto=: drawings, reachability, joins and refusals."""

from __future__ import annotations

from typing import Any, cast

import pytest

from atomic.workflows import (
    END,
    CompiledGraph,
    Edge,
    GraphConfig,
    GraphError,
    Node,
    NodeContext,
    NodeResult,
    compile_graph,
    graph,
    node,
    subgraph_node,
)
from tests.graph.engine.small import S, ended, failed, say, write


def go(id: str, to: Any, **options: Any) -> Node[S]:
    """Return a node that adds its id to the log and goes there."""

    async def run(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": [id]}, goto=to)

    return node(id, run, **options)


def edges(*nodes: Node[S], ways: Any = (), **options: Any) -> Any:
    return compile_graph(GraphConfig(start_node=nodes[0].id, nodes=nodes, edges=ways, state=S, **options))


async def test_a_hand_off_needs_no_false_edges() -> None:
    flow = edges(go("triage", "refund", goto=["refund", "sales"]), say("refund"), say("sales"))
    assert (await ended(flow)).state.log == ["triage", "refund"]


def test_without_a_declaration_the_targets_cannot_be_reached() -> None:
    with pytest.raises(GraphError, match="refund: cannot be reached"):
        edges(go("triage", "refund"), say("refund"))


def lines_of(flow: CompiledGraph[Any]) -> list[str]:
    return [line.strip() for line in flow.mermaid().splitlines()]


def test_declared_targets_are_drawn() -> None:
    flow = edges(go("triage", "refund", goto=["refund", END]), say("refund"))
    assert {"n2 --> n3", "n2 --> n4"} <= set(lines_of(flow)), flow.mermaid()
    chain = graph(S).then([say("a", goto="c"), say("b"), say("c")]).compile()
    assert {"n2 --> n3", "n2 --> n4", "n3 --> n4"} <= set(lines_of(chain)), chain.mermaid()


async def test_branches_of_a_declared_goto_join_where_they_meet() -> None:
    """The planner chooses two of three; the last node waits for both, also for one that goes there by a goto."""
    flow = edges(
        go("plan", ["a", "b"], goto=["a", "b", "c"]),
        say("a"),
        say("b"),
        say("c"),
        say("b2"),
        go("b3", "join", goto="join"),
        say("join"),
        ways=[("a", "join"), ("b", "b2"), ("b2", "b3"), ("c", "join")],
    )
    result = await ended(flow)
    assert sorted(result.state.log[1:3]) == ["a", "b"]
    assert result.state.log[-1] == "join"
    assert result.state.log.count("join") == 1


async def test_a_goto_that_was_not_declared_fails_with_the_declared_ones() -> None:
    flow = edges(go("a", "d", goto=["b", "c", END]), say("b"), say("c"), say("d"), ways=[("b", "d")])
    assert await failed(flow, "a") == "a: goto 'd': the node does not declare it; goto= has 'b', 'c', END"
    flow = edges(go("a", END, goto="b"), say("b"))
    assert await failed(flow, "a") == "a: goto END: the node does not declare it; goto= has 'b'"


async def test_a_node_without_a_declaration_may_go_anywhere() -> None:
    flow = graph(S).then([go("a", "c"), say("b"), say("c")]).compile()
    assert (await ended(flow)).state.log == ["a", "c"]


async def test_a_node_with_targets_may_also_simply_continue() -> None:
    flow = graph(S).node("a", say("a").run or cast("Any", None), goto="c").then([say("b"), say("c")]).compile()
    assert (await ended(flow)).state.log == ["a", "b", "c"]


def test_a_declared_target_that_does_not_exist_is_a_problem() -> None:
    with pytest.raises(GraphError, match=r"a: route to unknown node 'refnd'.*did you mean \"refund\""):
        edges(say("a", goto="refnd"), say("refund"), ways=[Edge("a", "refund")])


def test_a_cycle_of_declared_targets_needs_a_bound() -> None:
    with pytest.raises(GraphError, match="cycle without a bound"):
        edges(go("a", "b", goto=["b", END]), go("b", "a", goto="a"))


def test_a_wrong_declaration_is_a_problem() -> None:
    with pytest.raises(GraphError, match=r"a: goto takes ids of nodes, not \[7\]"):
        graph(S).then(say("a", goto=[7])).compile()


async def test_declared_targets_hold_in_a_subgraph_of_a_map() -> None:
    inner = graph(S).then([go("a", "c", goto="c"), say("b"), say("c")]).compile()
    flow = graph(S).map("m", lambda s: [1, 2], subgraph_node("sub", inner)).compile()
    assert (await ended(flow)).state.log == ["a", "c", "a", "c"]
    wrong = graph(S).then([go("a", "b", goto="c"), say("b"), write("c")]).compile()
    flow = graph(S).map("m", lambda s: [1], subgraph_node("sub", wrong)).compile()
    assert "goto 'b': the node does not declare it" in await failed(flow, "sub[0]/a")
