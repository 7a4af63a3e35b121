"""Which edges a token takes: after a step, at a condition, around a loop, by a jump.

Loops of a builder have a counter that starts at zero when they are entered. Cycles of
edges have one for each first node (`Program.back_edges`), with the limit of the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

from atomic.graph.engine.attempts import FAILURES, error_raised_by
from atomic.graph.engine.author_functions import OfItem
from atomic.graph.engine.control import END
from atomic.graph.engine.errors import NodeError
from atomic.graph.engine.journal import ALONE
from atomic.graph.engine.program import END_PC, IfOp, LoopOp, Op, RouteOp, UntilOp

if TYPE_CHECKING:
    from atomic.graph.engine.token import Token


def leave(token: Token, op: Op, goto: tuple[str, ...] | None) -> None:
    """Set the position after a node.

    A catch node ends the scope unless it returns a goto.
    """
    program = token.program
    token.cleared = END_PC
    if goto is None:
        token.pc = END_PC if op.pc == program.catcher else op.next
        return
    token.failure = None
    if not token.scope.path:
        token.run.jumps.update((op.id, target) for target in goto)
    targets = [END_PC if target == END else program.by_id[target] for target in goto]
    if len(targets) > 1:
        _take_several(token, op, targets)
    else:
        take_way(token, op, targets[0])


def take_edge(token: Token, op: Op) -> None:
    """Pass an operation that is neither a step nor a fork nor the end of an iteration.

    Raise NodeError.
    """
    if isinstance(op, IfOp):
        for condition, pc in op.branches:
            if condition is None or _holds(token, op, "condition", condition):
                token.pc = pc
                return
    elif isinstance(op, LoopOp):
        token.counters[op.slot] = 0
        token.pc = op.next
    else:
        _follow_edges(token, cast("RouteOp", op))


def _follow_edges(token: Token, op: RouteOp) -> None:
    """Follow the first conditional edge that holds, else all without a condition."""
    for condition, pc in op.conditions:
        if _holds(token, op, "a condition of its edges", condition):
            if len(op.always) > 1:
                token.ways = (ALONE,)
            take_way(token, op, pc)
            return
    if not op.always:
        raise NodeError(token.scope.public_id(op.id), f"no edge from '{op.id}' matched")
    if len(op.always) == 1:
        take_way(token, op, op.always[0])
    else:
        _take_several(token, op, op.always)


def end_iteration(token: Token, op: UntilOp) -> None:
    """Leave a loop or repeat it. Raise NodeError."""
    done = token.counters[op.slot] = token.counters[op.slot] + 1
    if op.until is not None and _holds(token, op, "until", op.until):
        token.pc = op.next
    elif op.max_iterations and done >= op.max_iterations:
        text = f"stopped after {op.max_iterations} iterations, and its condition does not hold"
        token.run.warn(token.scope.public_id(op.id), text)
        token.pc = op.next
    else:
        token.pc = op.again


def _holds(token: Token, op: Op, what: str, condition: Any) -> bool:
    try:
        if type(condition) is OfItem:
            return bool(condition.function(token.state, token.scope.item))
        return bool(condition(token.state))
    except FAILURES as error:  # the author's function; anything it raises fails the node
        raise error_raised_by(what, token.scope.public_id(op.id), error) from error


def take_way(token: Token, source: Op, pc: int) -> None:
    """Go from a node to an operation and count loops and cycles.

    Raise NodeError if a cycle is entered again more often than its limit.
    """
    token.pc = pc
    if pc < 0:
        return
    program = token.program
    target = program.ops[pc]
    if not program.back_edges:
        for slot in target.loops:
            if slot not in source.loops:  # a jump enters this loop from outside
                token.counters[slot] = 0
        return
    slot = program.back_slot(source.id, pc)
    token.came_back = slot
    if slot < 0:
        if target.id in program.slots:  # the cycle is entered from outside
            token.counters[program.slots.index(target.id)] = 0
        return
    token.counters[slot] += 1
    bound = program.max_iterations
    if bound and token.counters[slot] > bound:
        text = f"entered again more often than max_iterations ({bound}) allows"
        raise NodeError(token.scope.public_id(target.id), text)


def _take_several(token: Token, source: Op, ways: Sequence[int]) -> None:
    """Follow several edges at the same time: split into tokens that join again."""
    from atomic.graph.engine.edge_forks import Group  # its branches are tokens, which need this module

    targets = list(dict.fromkeys(ways))
    if token.group is not None:
        token.group.split(token, targets, source)
    else:
        token.open_branches = Group(token, targets, source)
