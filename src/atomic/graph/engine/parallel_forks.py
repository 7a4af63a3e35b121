"""The branches of a parallel, with the strategies all, race and any."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from atomic.graph.engine.attempts import FAILURES, as_node_error, error_raised_by
from atomic.graph.engine.errors import NodeError, StateError
from atomic.graph.engine.forks import Fork, conflict_error, conflict_in
from atomic.graph.engine.journal import ErrorBody, LostBody, RowKind, encode_row
from atomic.graph.engine.node import ParallelBody
from atomic.graph.engine.program import ForkOp
from atomic.graph.engine.run import Entry, error_body
from atomic.graph.engine.token import Token


class ParallelFork(Fork):
    """Named branches, and a strategy that decides which of them count."""

    def __init__(self, token: Token, op: ForkOp, body: ParallelBody) -> None:
        super().__init__(token, op, limit=op.limit)
        self.set_limit(body.max_concurrency)
        self.body = body
        self.decides_early = body.strategy != "all"
        self.winner: str | None = None
        self._recorded_names = self._read_names()
        self.note_opened()

    def _read_names(self) -> dict[str, str]:
        """Return the recorded names of branches that were renamed since."""
        history = self.run.history
        program = self.token.program
        if history is None or self.opened is None or not program.renamed:
            return {}
        begun = history.branches_of(f"{self.scope.path}|{self.key}:")
        return {now: name for name in begun if (now := program.branch_name(self.op, name)) is not None}

    def child_path(self, name: str) -> str:
        return super().child_path(self._recorded_names.get(name, name))

    def names(self) -> Iterable[str]:
        return [name for name in self.op.branches if name not in self.errors]

    def begin(self) -> None:
        self._restore_lost()
        super().begin()

    def _restore_lost(self) -> None:
        """Keep branches failed that failed before the run stopped, while another may
        succeed.
        """
        if self.run.history is None:
            return
        lost = self.run.history.lost_branches(self.scope.path, self.key)
        for name in self.op.branches:
            error = lost.get(self._recorded_names.get(name, name))
            if error is not None:
                self.make(name)  # a catch node still sees its updates
                self.errors[name] = error

    async def fail_branch(self, name: str, error: NodeError) -> None:
        await super().fail_branch(name, error)
        writer = self.run.writer
        if writer is None or self.body.strategy != "any":
            return
        is_last = len(self.errors) == len(self.op.branches)
        recorded = self._recorded_names.get(name, name)
        body = LostBody(self.scope.path, self.key, recorded, cast("ErrorBody", error_body(error)), is_last)
        await writer.write(encode_row(RowKind.LOST, body))

    def make(self, name: str) -> Token:
        program = self.op.branches[name]
        outer = self.token
        if self._recorded or outer.errors:
            return self.child(name, program, outer.values)
        # Like `child`, but faster: a scope that all branches share, and nothing to restore.
        token = self.children[name] = Token(
            self.run, self._inside, program, outer.values, pc=program.entry, trail=[], borrowed=True,
            updated=outer.updated,
        )  # fmt: skip
        return token

    def ended(self, name: str) -> None:
        failed = name in self.errors
        strategy = self.body.strategy
        if strategy == "all":
            if failed:
                self.decide()
        elif strategy == "race" or not failed:
            self.winner = self.winner or name
            self.decide()

    def entries(self, *, kept: bool = False) -> list[Entry]:
        if not kept and (self.body.merge is not None or self.body.strategy != "all"):
            return []  # known only after the join
        named = [self.children[name] for name in self.op.branches if name in self.children]
        return [entry for child in named for entry in child.entries(kept=kept)]

    def failure(self) -> NodeError | None:
        if self.body.strategy == "race":
            return self.errors.get(self.winner or "")
        if self.body.strategy == "any":
            if self.winner is not None:
                return None
            reasons = "; ".join(f"{name}: {self.errors[name]}" for name in self.op.branches if name in self.errors)
            return NodeError(self.node_id, f"all branches failed: {reasons}")
        return super().failure()

    def merge(self) -> None:
        names = [self.winner] if self.winner is not None else list(self.op.branches)
        if self.body.merge is not None:
            self._merge_by_function(names)
            return
        trails = [self.children[name].trail or () for name in names]
        if (conflict := conflict_in(trails, self.token.spec)) is not None:
            raise conflict_error(self.node_id, conflict, self.token.spec)
        self.note_joined([self._recorded_names.get(name, name) for name in names])
        self.merge_entries([entry for trail in trails for entry in trail])

    def _merge_by_function(self, names: list[str]) -> None:
        states = {name: self.children[name].state for name in names}
        try:
            update = cast("Any", self.body.merge)(states, self.token.state)
            checked = self.token.spec.convert(update) if update else {}
        except StateError as error:
            raise as_node_error(self.node_id, error) from error
        except FAILURES as error:  # the author's function; anything it raises fails the node
            raise error_raised_by("merge", self.node_id, error) from error
        self.note_joined((), checked)
        self.merge_entries([Entry(self.node_id, self.op.id, checked)])
