"""Begin what a composite node stands for."""

from __future__ import annotations

from atomic.graph.forks import Branching
from atomic.graph.map_forks import MapFork
from atomic.graph.node import MapBody, ParallelBody, SubgraphBody, TasksBody
from atomic.graph.parallel_forks import ParallelFork
from atomic.graph.program import ForkOp
from atomic.graph.subgraphs import SubgraphFork
from atomic.graph.task_forks import TasksFork
from atomic.graph.token import Token


def open_fork(token: Token, op: ForkOp) -> Branching:
    """The scopes of a composite: new ones, or those that the journal says had begun."""
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
            raise TypeError(f"{op.id} is no fork")
