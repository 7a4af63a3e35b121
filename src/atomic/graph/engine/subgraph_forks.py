"""A graph inside a node."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from atomic.base.errors import AtomicError
from atomic.graph.engine.attempts import FAILURES, as_node_error, error_raised_by
from atomic.graph.engine.author_functions import call
from atomic.graph.engine.called_graphs import resolve_graph
from atomic.graph.engine.control import Event, RunStatus
from atomic.graph.engine.errors import NodeError, StateError
from atomic.graph.engine.forks import Fork
from atomic.graph.engine.journal import RowKind, StepBody, encode_row
from atomic.graph.engine.node import SubgraphBody
from atomic.graph.engine.nodes import mapping_of
from atomic.graph.engine.program import ForkOp, breakpoint_problem
from atomic.graph.engine.run import Entry, Scope, Step, encode_update
from atomic.graph.engine.state import Overwrite, Values
from atomic.graph.engine.token import Token

_OWN_FIELDS = frozenset({"execution_id", "last_updated", "outputs"})


class SubgraphFork(Fork):
    """One branch with its own state, and a record when it has ended."""

    is_concurrent = False

    def __init__(self, token: Token, op: ForkOp, body: SubgraphBody) -> None:
        super().__init__(token, op, limit=1)
        self.body = body
        self.began = time.time()
        self._clock = time.perf_counter()
        self.follows = token.follows
        self.more: list[Values] = []
        self.graph = self._resolve()
        self.breakpoints = self._breakpoints()
        self.values = self._first_values()
        step_id = self.run.step_id(self.node_id, int(self.key.rpartition("#")[2]))
        self.run.report_event(self.node_id, Event("started", {"step_id": step_id, "attempt": 1}))

    def _resolve(self) -> Any:
        """Return the graph, which may be given by its name. Raise NodeError for a circle."""
        try:
            return resolve_graph(self.run, self.scope, self.body.graph)
        except AtomicError as error:
            raise as_node_error(self.node_id, error) from error

    def _breakpoints(self) -> frozenset[str]:
        """Return where the run pauses in the graph. Raise NodeError if the graph has no such node."""
        outside = [path for path in self.scope.breakpoints if path.startswith(f"{self.op.id}/")]
        inside = frozenset(path.partition("/")[2] for path in outside)
        if isinstance(self.body.graph, str):
            for path in sorted(inside):
                if (problem := breakpoint_problem(self.graph.program, path)) is not None:
                    raise NodeError(self.node_id, f"pause_before: {problem}")
        return inside | frozenset(self.graph.options.pause_before)

    def _first_values(self) -> Values:
        spec = self.graph.program.spec
        if self.opened is not None and self.opened.values is not None:
            from atomic.graph.engine.code_changes import check_reducers  # only a resumed run needs it

            try:
                check_reducers(self.opened.reducers or {}, spec, in_subgraph=True)
            except StateError as error:
                raise as_node_error(self.node_id, error) from error
            return spec.start(self.opened.values, self.run.execution_id)
        try:
            if self.body.input_mapper is not None:
                given: Any = call(self.body.input_mapper, self.token.state, item=self.scope.item)
            else:
                shared = spec.fields.keys() & self.token.spec.fields.keys() - _OWN_FIELDS
                given = {name: self.token.values[name] for name in spec.fields if name in shared}
            values = spec.start(given, self.run.execution_id)
        except StateError as error:
            raise as_node_error(self.node_id, error) from error
        except FAILURES as error:  # the author's function; anything it raises fails the node
            raise error_raised_by("input_mapper", self.node_id, error) from error
        self.note_opened(values=values, reducers=spec.reducer_identities())
        return values

    def _changes(self, child: Token) -> tuple[Values, list[Values]]:
        """Return the changes of shared fields: a joined update, and single updates.

        Updates of a built-in reducer can be joined before the parent applies them.
        Updates of an author's reducer cannot: each is applied separately.
        """
        joined: Values = {}
        single: list[Values] = []
        for entry in child.trail or ():
            for name, value in entry.update.items():
                ours = self.token.spec.fields.get(name)
                theirs = child.spec.fields[name]
                if ours is None or name in _OWN_FIELDS:
                    continue
                if ours.reduce is None:
                    joined[name] = child.values[name]
                elif isinstance(value, Overwrite):
                    joined[name] = value
                    single = [other for other in single if name not in other]
                elif name in joined and isinstance(joined[name], Overwrite):
                    joined[name] = Overwrite(ours.reduce(joined[name].value, value))
                elif ours.extends_like(theirs):
                    joined[name] = ours.reduce(joined[name], value) if name in joined else value
                else:
                    single.append({name: value})
        return joined, single

    def names(self) -> Iterable[str]:
        return ("",)

    def make(self, name: str) -> Token:
        outer = self.scope
        scope = Scope(
            path=self.child_path(name),
            prefix=f"{self.node_id}/",
            model=self.op.model or self.graph.options.model or outer.model,
            item=outer.item,
            index=outer.index,
            counted=outer.counted,
            names=(*outer.names, self.graph.options.name),
            breakpoints=self.breakpoints,
        )
        scope.branches = self
        token = self.children[name] = self.token_at(scope, self.graph.program, self.values)
        if token.resumed is not None and not token.last:
            token.resumed = self.inherits  # its first step begins together with the node
        return token

    def merge(self) -> None:
        update, self.more = self._output()
        self.merge_entries([Entry(self.node_id, self.op.id, change) for change in (update, *self.more)])
        self.update = update

    def _output(self) -> tuple[Values, list[Values]]:
        child = self.children[""]
        spec = self.token.spec
        try:
            if self.body.output_mapper is not None:
                result = call(self.body.output_mapper, child.state, self.token.state, item=self.scope.item)
                update = mapping_of(result, "output_mapper")
                return spec.convert(update or {}), []
            final = {**child.values, "last_updated": ""}  # a time would make equal states different
            joined, single = self._changes(child)
            return spec.convert({**joined, "outputs": {self.op.id: final}}), [spec.convert(one) for one in single]
        except AtomicError as error:
            raise as_node_error(self.node_id, error) from error
        except FAILURES as error:  # the author's function; anything it raises fails the node
            raise error_raised_by("output_mapper", self.node_id, error) from error

    def entries(self, *, kept: bool = False) -> list[Entry]:
        return []  # the parent sees nothing before the end

    async def join(self) -> Step[Any] | None:
        self.update: Values | None = None
        await super().join()
        if self.update is None:  # it failed, and on_error handled that
            return None
        return await self._record(self.update)

    async def _record(self, update: Values) -> Step[Any] | None:
        run = self.run
        seconds = time.perf_counter() - self._clock
        n = int(self.key.rpartition("#")[2])
        run.steps += 1
        self.token.updated = time.time()
        if run.writer is not None:
            body = StepBody(
                self.scope.path, self.node_id, n, "completed", encode_update(update), 1, self.began, seconds,
                self.token.loops_of(self.op), None, self.follows, self.op.model,
                more=tuple(bytes(encode_update(one)) for one in self.more),
            )  # fmt: skip
            await run.writer.write(encode_row(RowKind.STEP, body, step=run.steps))
        if not run.listening:
            return None
        step_id = run.step_id(self.node_id, n)
        model = self.op.model or self.scope.model
        return Step(self.node_id, step_id, self.token.state, update, RunStatus.COMPLETED, None, seconds, 1, model)
