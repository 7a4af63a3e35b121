"""Sort what a node raised into failures, pauses and cancellations.

A node may use `asyncio.gather` and `asyncio.TaskGroup`, so it can raise a group of
exceptions.
"""

from __future__ import annotations

import asyncio
from typing import cast

from atomic.base.errors import AtomicError
from atomic.graph.engine.control import Suspend
from atomic.graph.engine.errors import NodeError, StateError
from atomic.graph.engine.state import describe_error

# What a plain function of the author may raise. Nothing can cancel it while it runs, so
# all of these are failures.
FAILURES = (Exception, SystemExit, asyncio.CancelledError)


def sort_raised(error: BaseException) -> tuple[list[Suspend], BaseException | None]:
    """Split what a node raised into its pauses and its failure. Groups are taken apart.

    A group with one failure becomes that failure; a group with several stays a group. A
    cancellation next to something else is its consequence and is left out. Raises
    KeyboardInterrupt and GeneratorExit, which are never failures of a node.
    """
    leaves = _leaves(error)
    for leaf in leaves:
        if isinstance(leaf, (KeyboardInterrupt, GeneratorExit)):
            raise leaf
    pauses = [leaf for leaf in leaves if isinstance(leaf, Suspend)]
    others = [leaf for leaf in leaves if not isinstance(leaf, Suspend)]
    failures = [leaf for leaf in others if not isinstance(leaf, asyncio.CancelledError)]
    if not failures and not pauses:
        return [], others[0]
    if len(failures) > 1:
        return pauses, BaseExceptionGroup("several failures", failures)
    return pauses, failures[0] if failures else None


def _leaves(error: BaseException) -> list[BaseException]:
    """Return all exceptions in a group and its nested groups; of a plain exception, itself."""
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    inner = cast("BaseExceptionGroup[BaseException]", error).exceptions
    return [leaf for part in inner for leaf in _leaves(part)]


def as_node_error(node_id: str, error: BaseException) -> NodeError:
    """Return a failure as a NodeError of the node where it happened."""
    if isinstance(error, NodeError):
        return error
    kind = type(error).__name__
    if isinstance(error, StateError):
        result = NodeError(node_id, error.reason, kind="StateError", path=error.path)
    elif isinstance(error, AtomicError):
        result = NodeError(node_id, str(error), kind=kind)
    elif isinstance(error, asyncio.CancelledError):
        text = "something that the node waited for was cancelled, but the run was not"
        result = NodeError(node_id, f"{describe_error(error)}: {text}", kind=kind)
    elif isinstance(error, BaseExceptionGroup):
        leaves = _leaves(cast("BaseException", error))
        reasons = "; ".join(describe_error(leaf) for leaf in leaves)
        result = NodeError(node_id, f"{len(leaves)} failures: {reasons}", kind=kind)
    else:
        result = NodeError(node_id, describe_error(error), kind=kind)
    result.__cause__ = error
    return result
