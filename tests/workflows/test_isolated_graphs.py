"""Options of isolated nodes that cannot work are refused when the graph is built."""

from __future__ import annotations

from typing import Any

import pytest

from atomic.workflows import (
    GraphError,
    Node,
    State,
    SubagentRequest,
    agent_node,
    graph,
    merge_node,
    parallel_subagent_node,
    subagent_node,
)
from atomic.workflows.capabilities import is_isolated


async def find(state: State) -> Any:
    return state


BAD: Any = "yes"
WRONG: list[tuple[Node[State, Any], str]] = [
    (agent_node("a", "p", session="s", isolate=True), 'the session "s" outlives a workspace'),
    (subagent_node("a", agent="x", task="t", isolate=BAD), "isolate takes True, False or a function of the state"),
    (subagent_node("a", agent="x", task="t", isolate=find), "isolate must be a plain function; it is async"),
    (merge_node("a", results=[]), "results is empty"),
    (merge_node("a", results="login"), "results takes a list of ids"),
    (merge_node("a", results=["lo"]), "reads the output of the unknown node 'lo'"),
    (merge_node("a", results=find), "results must be a plain function; it is async"),
    (merge_node("a", results=["login"], on_conflict=BAD), 'on_conflict takes "fail" or "continue"'),
    (merge_node("a", results=["login"], check_timeout="long"), "check_timeout is 'long'"),
    (merge_node("a", results=["login"], fixer="x", fixes=0), "fixes takes a whole number from 1"),
]


@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=[said for _, said in WRONG])
def test_a_wrong_option_is_refused(wrong: Node[State, Any], said: str) -> None:
    login: Node[State, Any] = subagent_node("login", agent="x", task="t", isolate=True)
    with pytest.raises(GraphError) as refused:
        graph(State).then(login).then(wrong).compile()
    assert said in str(refused.value)


def test_a_graph_knows_whether_it_needs_copies_of_the_project() -> None:
    requests = [SubagentRequest("x", "t"), SubagentRequest("x", "t", isolate=True)]
    isolated: list[Node[State, Any]] = [
        agent_node("a", "p", isolate=True),
        subagent_node("a", agent="x", task="t", isolate=True),
        parallel_subagent_node("a", agents=requests),
        parallel_subagent_node("a", agents=lambda state: requests, isolate=True),
    ]
    assert [is_isolated(graph(State).then(one).compile()) for one in isolated] == [True] * 4
    assert not is_isolated(graph(State).agent("a", "p").parallel_subagent("b", agents=requests[:1]).compile())
