"""The features, nodes, tools and workflows that a graph or a workflow function uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

from atomic.graph import FunctionWorkflow, Node, NodeKind
from atomic.graph.engine.node import Block, SubgraphBody, blocks_in
from atomic.tasks import Task
from atomic.workflows.code_names import AGENT_CALLS, QUESTIONS, graphs_of, names_of
from atomic.workflows.definition import Capabilities, Runnable


def capabilities_of(graph: Runnable) -> Capabilities:
    """Return the features that a graph uses, not counting workflows that it calls by
    name.

    Agent nodes use sub-agents. A loop over tasks, or a state with a `tasks` field, uses
    a task list. Ask and wait nodes use questions. Of a function, the names in its code
    count: `flow.agent` is a sub-agent, `flow.ask` a question.
    """
    if isinstance(graph, FunctionWorkflow):
        names = names_of(graph)
        can = Capabilities(
            subagents=not names.isdisjoint(AGENT_CALLS),
            task_list=_has_tasks(graph.state_type),
            questions=not names.isdisjoint(QUESTIONS),
        )
        for inner in graphs_of(graph):
            can = can.joined(capabilities_of(inner))
        return can
    kinds = {node.kind for node in all_nodes(graph)}
    return Capabilities(
        subagents=NodeKind.AGENT in kinds,
        task_list=NodeKind.TASKS in kinds or _has_tasks(graph.state_type),
        questions=not kinds.isdisjoint((NodeKind.ASK, NodeKind.WAIT)),
    )


def references_of(graph: Runnable) -> list[tuple[str, str]]:
    """Return the nodes that call workflows by name, each with that name."""
    bodies = ((node.id, node.body) for node in all_nodes(graph))
    return [(id, body.graph) for id, body in bodies if isinstance(body, SubgraphBody) and isinstance(body.graph, str)]


def is_isolated(graph: Runnable) -> bool:
    """Return whether a node works in its own copy of the project."""
    if isinstance(graph, FunctionWorkflow):
        return "isolated" in names_of(graph) or any(is_isolated(inner) for inner in graphs_of(graph))
    return any(node.isolated for node in all_nodes(graph))


def tools_of(graph: Runnable) -> list[tuple[str, str]]:
    """Return the nodes that call custom tools by name, each with that name."""
    return [(node.id, node.tool) for node in all_nodes(graph) if node.tool]


def all_nodes(graph: Runnable) -> Iterator[Node[Any, Any]]:
    """Yield the nodes of a graph, including nested ones."""
    yield from _nodes(graph.block)


def _nodes(block: Block) -> Iterator[Node[Any, Any]]:
    for node in (*block.nodes, *((block.catcher,) if block.catcher else ())):
        yield node
        for inner in blocks_in(node):
            yield from _nodes(inner)
        if isinstance(node.body, SubgraphBody) and not isinstance(node.body.graph, str):
            yield from _nodes(node.body.graph.block)


def _has_tasks(state: type[Any]) -> bool:
    try:
        hint = get_type_hints(state).get("tasks")
    except (NameError, TypeError):  # an annotation for type checkers only
        return False
    return any(isinstance(part, type) and issubclass(part, Task) for part in _parts(hint))


def _parts(hint: Any) -> Iterator[Any]:
    yield hint
    for inner in get_args(hint):
        yield from _parts(inner)
