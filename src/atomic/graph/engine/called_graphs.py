"""A graph that a node's function runs: `await ctx.run(graph, input)`.

Its steps belong to the same run. They have a scope of their own in the journal, which
the visit of the node and the number of the call name, so that a resumed node finds what
its call has finished. Its first state is recorded beside that scope.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.journal import CALL_MARK, OpenedBody, RowKind, encode_row
from atomic.graph.engine.nodes import NOT_A_SUBGRAPH
from atomic.graph.engine.run import GraphCall, Run, Scope
from atomic.graph.engine.run_deps import find_workflow
from atomic.graph.engine.state import State, Values, encode_value
from atomic.graph.engine.token import Resumed, Token

if TYPE_CHECKING:
    from atomic.graph.engine.context import StepContext
    from atomic.graph.engine.run import StepOwner


class _Caller:
    """What a called graph needs of the step that calls it: whether it is cancelled, and its worker."""

    def __init__(self, owner: StepOwner) -> None:
        self._owner = owner
        self._task = asyncio.current_task()
        self._before = 0 if self._task is None else self._task.cancelling()

    @property
    def ending(self) -> bool:
        return self._task is None or self._task.cancelling() > self._before

    def free_worker(self, owner: StepOwner) -> None:
        branches = self._owner.scope.branches
        if branches is not None:
            branches.free_worker(self._owner)

    async def take_worker(self, owner: StepOwner) -> None:
        branches = self._owner.scope.branches
        if branches is not None:
            await branches.take_worker(self._owner)


def resolve_graph(run: Run, scope: Scope, graph: Any) -> Any:
    """Return a graph, which may be given by the name of a workflow.

    Raise AtomicError for a circle or an unknown name.
    """
    if not isinstance(graph, str):
        return graph
    if graph.casefold() in [known.casefold() for known in scope.names]:
        raise AtomicError(f"workflows call each other in a circle: {' -> '.join([*scope.names, graph])}")
    found = find_workflow(run.deps, graph)
    if hasattr(found, "function"):
        raise AtomicError(f'workflow "{graph}" {NOT_A_SUBGRAPH}')
    return found


async def run_graph(
    call: GraphCall, owner: StepOwner, graph: Any, given: Mapping[str, Any] | State | None, number: int
) -> Any:
    """Run a graph inside a step, and return its final state.

    Raise NodeError if it fails, Suspend if it pauses, StateError if the input does not
    fit.
    """
    ctx = call.ctx
    run = owner.run
    graph = resolve_graph(run, owner.scope, graph)
    if hasattr(graph, "function"):
        raise AtomicError(f'workflow "{graph.name}" {NOT_A_SUBGRAPH}')
    if not hasattr(graph, "program"):
        hint = "; give graph(…).compile()" if hasattr(graph, "compile") else ""
        raise AtomicError(f"ctx.run takes a compiled graph or the name of a workflow, not {graph!r:.60}{hint}")
    scope = _scope_of(ctx, owner, graph, number)
    scope.branches = _Caller(owner)
    child = _token_of(run, scope, graph, given)
    if owner.errors:
        child.errors = (*owner.errors, *child.errors)
    call.token = child
    try:
        while (step := await child.advance()) is not None:
            run.put_inner_step(step)
    except asyncio.CancelledError:
        await child.cancel()
        raise
    except BaseException:
        run.close_suspended([child])
        raise
    if child.suspended:
        for pause in child.suspended:
            ctx.hold(pause)
        raise child.suspended[0]
    return child.state


def _scope_of(ctx: StepContext, owner: StepOwner, graph: Any, number: int) -> Scope:
    outer = owner.scope
    node_id = ctx.node_id
    mark = "" if number == 1 else f"[{number - 1}]"
    return Scope(
        path=f"{outer.path}|{node_id}#{ctx.n}{CALL_MARK}{number}",
        prefix=f"{node_id}{mark}/",
        model=ctx.own_model or graph.options.model or outer.model,
        item=outer.item,
        index=outer.index,
        counted=outer.counted,
        names=(*outer.names, graph.options.name),
        breakpoints=frozenset(graph.options.pause_before),
    )


def _token_of(run: Run, scope: Scope, graph: Any, given: Mapping[str, Any] | State | None) -> Token:
    """Return the token of a called graph: a new one, or as the journal has it."""
    spec = graph.program.spec
    history = run.history
    opened = None if history is None else history.called_graph(scope.path)
    if history is not None and opened is not None:
        from atomic.graph.engine.code_changes import check_reducers  # only a resumed run needs it
        from atomic.graph.engine.restore import restore_token

        check_reducers(opened.reducers or {}, spec, in_subgraph=True)
        values: Values = spec.start(opened.values, run.execution_id)
        if history.knows(scope.path):
            return restore_token(history, run, scope, graph.program, values, trail=[])
    else:
        values = spec.start(given, run.execution_id)
        _note_call(run, scope, values, spec.reducer_identities())
    token = Token(run, scope, graph.program, values, pc=graph.program.entry, trail=[])
    if run.writer is not None:
        token.resumed = Resumed.WRITTEN
    return token


def _note_call(run: Run, scope: Scope, values: Values, reducers: dict[str, str]) -> None:
    if run.writer is None:
        return
    first: Any = msgspec.Raw(encode_value(values, "state"))
    body = OpenedBody(f"{scope.path}{CALL_MARK}", f"{scope.prefix}#1", (), values=first, reducers=reducers)
    run.writer.later(encode_row(RowKind.OPENED, body))
