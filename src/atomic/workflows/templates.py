"""Builders for common shapes of workflows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from atomic.base.errors import AtomicError
from atomic.graph.engine.author_functions import AuthorFunctions
from atomic.graph.engine.node import Block, Condition, Limit, LoopBody, Node, NodeKind, NodeLike, Over, Sequel
from atomic.graph.engine.nodes import block_of
from atomic.graph.engine.state import StateT
from atomic.tasks import TaskList, TaskStatus
from atomic.workflows.builder import WorkflowBuilder, graph


def sequential(state: type[StateT], nodes: Sequence[NodeLike[StateT]]) -> WorkflowBuilder[StateT]:
    """Run nodes one after the other."""
    return graph(state).then(nodes)


def map_reduce(
    state: type[StateT],
    *,
    splitter: Over[StateT],
    worker: Sequel[StateT],
    merger: Sequel[StateT],
    id: str = "map",
    max_concurrency: Limit[StateT] | None = None,
) -> WorkflowBuilder[StateT]:
    """Run a worker for each item of the splitter, then the merger.

    The merger finds the results in `outputs[id]`.
    """
    return graph(state).map(id, splitter, worker, max_concurrency=max_concurrency).then(merger)


def review_cycle(
    state: type[StateT],
    *,
    executor: Sequel[StateT],
    reviewer: Sequel[StateT],
    fixer: Sequel[StateT],
    until: Condition[StateT],
    max_iterations: int = 5,
) -> WorkflowBuilder[StateT]:
    """Execute, then review and fix until the review passes. A review is always last."""
    fix = block_of(fixer)
    review = block_of(reviewer)
    both = Block((*fix.nodes, *review.nodes), fix.catcher or review.catcher)
    functions = AuthorFunctions()
    body = LoopBody(both, functions.require("until", until), max_iterations, enter_at=len(fix.nodes))
    loop: Node[StateT, Any] = Node(
        id="", kind=NodeKind.LOOP, body=body, problems=functions.problems, of_item=functions.of_item
    )
    return graph(state).then(executor).then(loop)


def task_loop(
    state: type[StateT],
    *,
    decomposer: Sequel[StateT],
    worker: Sequel[StateT],
    reviewer: Sequel[StateT] | None = None,
    until: Condition[StateT] | None = None,
    max_iterations: int = 100,
) -> WorkflowBuilder[StateT]:
    """Let the decomposer make tasks, then alternate worker and reviewer until all are
    done.

    The loop ends when all of `state.tasks` are done, or when `until` holds. For a list
    in a file, with dependencies and several workers, use `task_loop_node`.
    """
    turn = graph(state).then(worker)
    if reviewer is not None:
        turn = turn.then(reviewer)
    loop = graph(state).loop(turn, until=until or _all_tasks_done, max_iterations=max_iterations)
    return graph(state).then(decomposer).then(loop)


def _all_tasks_done(state: Any) -> bool:
    """Return whether all tasks are done.

    Raise AtomicError if nothing can run before that.
    """
    tasks = TaskList(state.tasks)
    left = [task for task in tasks.tasks if task.status not in (TaskStatus.COMPLETED, TaskStatus.SKIPPED)]
    running = [task for task in left if task.status is TaskStatus.IN_PROGRESS]
    if left and not running and not tasks.ready():
        waiting = tasks.waiting()
        raise AtomicError("nothing can run: " + "; ".join(f"{t.id}: {waiting.get(t.id, t.status.value)}" for t in left))
    return not left
