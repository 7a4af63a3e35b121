"""Open the scopes of a composite node."""

from __future__ import annotations

from atomic.graph.engine.forks import OpenBranches
from atomic.graph.engine.map_forks import MapFork
from atomic.graph.engine.node import MapBody, ParallelBody, SubgraphBody, TasksBody
from atomic.graph.engine.parallel_forks import ParallelFork
from atomic.graph.engine.program import ForkOp
from atomic.graph.engine.subgraphs import SubgraphFork
from atomic.graph.engine.task_forks import TasksFork
from atomic.graph.engine.token import Token


def open_fork(token: Token, op: ForkOp) -> OpenBranches:
    """Open the scopes of a composite: new ones, or those that the journal has as open."""
    match op.body:
        case ParallelBody():
            return ParallelFork(token, op, op.body)
        case MapBody():
            return MapFork(token, op, op.body)
        case TasksBody():
            return TasksFork(token, op, op.body)
        case SubgraphBody():
            return SubgraphFork(token, op, op.body)
        case _:
            raise TypeError(f"{op.id} is not a fork")
