"""Where a run really forks: what branches, items, tasks and subgraphs have in common.

Branches work on values of their own and are merged in the order of declaration, never of arrival. What joins
them is known by construction for the composites; branches made by edges wait where another may still arrive.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol, cast

import msgspec

from atomic.errors import AtomicError
from atomic.graph.attempts import UNASKED_ATTEMPTS, ask_on_error, check_recovery
from atomic.graph.control import Abort, Goto, Retry, Skip, Suspend
from atomic.graph.crew import Crew
from atomic.graph.errors import NodeError, StateError
from atomic.graph.failures import as_node_error
from atomic.graph.journal import JoinedBody, OpenedBody, RowKind, encode_row
from atomic.graph.program import ForkOp, Program
from atomic.graph.run import Entry, Place, Step, encode_update, quote
from atomic.graph.state import Values, encode_value
from atomic.graph.token import Resumed, Token


class Branching(Protocol):
    """Something that a token has opened and will join."""

    async def next_step(self) -> Step[Any] | None: ...

    def suspended(self) -> list[Suspend]: ...

    async def join(self) -> Step[Any] | None: ...

    def close_questions(self) -> None:
        """Close the questions of branches that wait: the others have decided."""
        ...

    def done_so_far(self) -> list[Entry]:
        """What the branches have done, for somebody who looks; they may not have met yet."""
        ...

    def kept(self) -> list[Entry]:
        """All that the branches have done, for the node that catches their failure."""
        ...

    async def cancel(self) -> None: ...


class Fork(Crew, ABC):
    """The scopes of one composite. Workers take them in order, at most `limit` at once."""

    decides_early = True  # whether a branch that ends well can be the end of the others
    sign = ":"  # "@" in the path of items: their steps are not counted

    def __init__(self, token: Token, op: ForkOp, *, limit: int) -> None:
        super().__init__()
        self.token, self.op, self.limit = token, op, limit
        self.run, self.place = token.run, token.place
        self.node_id = self.place.public_id(op.id)
        self.children: dict[str, Token] = {}
        self.errors: dict[str, NodeError] = {}
        self._inside = self.place.inner("|")
        self._inside.model = op.model or self.place.model
        self._inside.crew = self
        self._recorded = self.run.pen is not None or self.run.past is not None
        self._open()
        self._timer: asyncio.TimerHandle | None = None
        self._timed_out = False
        self._started = False

    def _open(self) -> None:
        run, past = self.run, self.run.past
        self.opened = past.open_fork(self.place.path, self.node_id) if past is not None else None
        self.inherits = self.token.resumed
        self.token.resumed = None
        if self.opened is None:
            count = run.counts[self.node_id] = run.counts.get(self.node_id, 0) + 1
            self.key = f"{self.node_id}#{count}"
        else:
            self.key = self.opened.fork
            run.counts[self.node_id] = int(self.key.rpartition("#")[2])

    def note_opened(
        self,
        *,
        items: list[Any] | None = None,
        plain: bool = True,
        values: Values | None = None,
        reducers: dict[str, str] | None = None,
    ) -> None:
        if self.run.pen is None or self.opened is not None:
            return
        token = self.token
        try:
            plain_items = None if items is None else msgspec.Raw(encode_value(items, "items"))
            plain_values = None if values is None else msgspec.Raw(encode_value(values, "state"))
        except StateError as error:
            raise as_node_error(self.node_id, error) from error
        body = OpenedBody(
            self.place.path, self.key, token.loops_of(self.op), token.follows,
            cast("Any", plain_items), plain, cast("Any", plain_values), reducers, token.ways,
        )  # fmt: skip
        self.run.pen.later(encode_row(RowKind.OPENED, body))

    def child_path(self, name: str) -> str:
        return f"{self.place.path}|{self.key}{self.sign}{quote(name)}"

    def child(
        self,
        name: str,
        program: Program,
        values: Values,
        *,
        item: Any = None,
        index: int | None = None,
        suffix: str | None = None,
    ) -> Token:
        """The token of a branch: fresh, or as the journal left it. What is not given is as around the fork."""
        if suffix is None and not self._recorded:
            place = self._inside  # nothing in it is the branch's own
        else:
            place = self._inside.inner(self.child_path(name) if self._recorded else "|")
        if suffix is not None:
            place.item, place.index, place.suffix, place.qualified, place.counted = item, index, suffix, True, False
        token = self.token_at(place, program, values)
        token.updated = token.updated or self.token.updated
        self.children[name] = token
        return token

    def token_at(self, place: Place, program: Program, values: Values) -> Token:
        past = self.run.past
        if past is not None and past.knows(place.path):
            from atomic.graph.restore import restore_token  # only a run that is taken up needs it

            return restore_token(past, self.run, place, program, values, trail=[], errors=self.token.errors)
        token = Token(self.run, place, program, values, pc=program.entry, trail=[])
        token.errors = self.token.errors
        token.resumed = Resumed.WRITTEN if self._recorded else None
        return token

    # running -----------------------------------------------------------------------------------------------

    @abstractmethod
    def names(self) -> Iterator[str]:
        """The branches, in the order in which they may start."""

    @abstractmethod
    def make(self, name: str) -> Token:
        """The token of a branch that starts now."""

    @abstractmethod
    def count(self) -> int:
        """How many branches there are."""

    def begin(self) -> None:
        self._started = True
        if self.run.pen is not None:
            self.run.pen.shared += 1
        if self.op.timeout is not None:
            self._timer = asyncio.get_running_loop().call_later(self.op.timeout, self._time_out)
        count = self.count()
        if self.limit and self.limit < count:
            names = self.names()
            for _ in range(self.limit):
                self.spawn(self.work(names), self.node_id)
        else:
            for name in self.names():
                self.spawn(self.alone(name, self.make(name)), name)

    def _time_out(self) -> None:
        self._timed_out = True
        self.decide()

    async def work(self, names: Iterator[str]) -> None:
        """A worker: takes the next branch until there is none."""
        with self:
            for name in names:
                await self.walk(name, self.make(name))
                if self._decided:
                    return

    async def alone(self, name: str, token: Token) -> None:
        """A branch with a task of its own."""
        with self:
            try:
                while (step := await token.advance()) is not None:
                    self.put(step)
                if self.decides_early and not token.suspended:
                    self.ended(name)
            except NodeError as error:
                await self.lose(name, error)
                self.ended(name)
            except asyncio.CancelledError as error:
                await token.cancel()
                if self.ending:
                    raise
                await self.lose(name, token.cut_off(error))
                self.ended(name)

    async def walk(self, name: str, token: Token) -> None:
        """Walk one branch to its end and see what that means for the others."""
        try:
            while (step := await token.advance()) is not None:
                self.put(step)
        except NodeError as error:
            await self.lose(name, error)
        except asyncio.CancelledError as error:
            await token.cancel()
            if self.ending:
                raise
            await self.lose(name, token.cut_off(error))
        if not token.suspended:
            self.ended(name)

    async def lose(self, name: str, error: NodeError) -> None:
        """Note that a branch has failed for good."""
        self.errors[name] = error

    def ended(self, name: str) -> None:
        """A branch is through, or failed."""
        if name in self.errors:
            self.decide()

    async def next_step(self) -> Step[Any] | None:
        if not self._started:
            self.begin()
        try:
            step = await super().next_step()
        except BaseException:
            self._over()
            raise
        if step is None:
            self._over()
        return step

    def _over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._started and self.run.pen is not None:
            self.run.pen.shared -= 1
        self._started = False

    async def cancel(self) -> None:
        try:
            await super().cancel()
        finally:
            for child in self.children.values():
                if child.branching is not None:  # else it has started nothing, and there may be thousands
                    await child.cancel()

    def suspended(self) -> list[Suspend]:
        if self._decided:
            return []
        return [suspend for child in self.children.values() for suspend in child.suspended]

    def close_questions(self) -> None:
        self.run.close_suspended(self.children.values())

    def done_so_far(self) -> list[Entry]:
        return [entry for child in self.children.values() for entry in child.done_so_far()]

    def kept(self) -> list[Entry]:
        return [entry for child in self.children.values() for entry in child.all_done()]

    # joining -----------------------------------------------------------------------------------------------

    async def join(self) -> Step[Any] | None:
        token = self.token
        try:
            if self._timed_out:
                raise as_node_error(self.node_id, TimeoutError(f"timed out after {self.op.timeout:g} s"))
            if (failure := self.failure()) is not None:
                raise failure
            self.merge()
        except NodeError as error:
            await self._failed(error)
            return None
        token.last, token.after, token.ways, token.tries = self.key, None, None, 0
        token.updated = max([token.updated, *(child.updated for child in self.children.values())])
        if self.run.pen is not None:
            await self.run.pen.settle(sync=False)  # what follows begins now, and a kill must not hide that
        token.go_behind(self.op)
        return None

    def failure(self) -> NodeError | None:
        return next(iter(self.errors.values()), None)

    @abstractmethod
    def merge(self) -> None:
        """Bring what the branches did into the token that opened them. Raises NodeError."""

    def merge_entries(self, entries: Sequence[Entry]) -> None:
        """Take what the branches did. Raises NodeError where a reducer fails."""
        kept = dict(self.token.values)
        try:
            self.token.take(entries)
        except StateError as error:
            self.token.values = kept
            raise as_node_error(self.node_id, error) from error

    def note_joined(
        self, branches: Iterable[str], update: Values | None = None, goto: tuple[str, ...] | None = None
    ) -> None:
        if self.run.pen is None:
            return
        encoded = None if update is None else bytes(encode_update(update))
        body = JoinedBody(self.place.path, self.key, tuple(branches), encoded, goto)
        self.run.pen.later(encode_row(RowKind.JOINED, body))

    async def _failed(self, error: NodeError) -> None:
        """Ask `on_error` of the composite; without an answer the failure goes on."""
        on_error = self.op.node.on_error
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        answer = await ask_on_error(on_error, cause, self.token, _view(self)) if on_error is not None else None
        match answer:
            case Skip(update):
                self._handled(self._checked(update), None)
            case Goto(target):
                self._check_recovery(target)
                self._handled({}, (target,))
            case Retry(delay=delay) if self.token.tries + 1 < UNASKED_ATTEMPTS:
                self.token.tries += 1
                self.note_joined((), {}, (self.op.id,))
                await asyncio.sleep(delay)
            case Abort(error=given) if given is not None:
                raise as_node_error(
                    self.node_id, given if isinstance(given, Exception) else AtomicError(given)
                ) from error
            case _:
                raise error

    def _checked(self, update: Any) -> Values:
        try:
            return self.token.spec.convert(update) if update else {}
        except StateError as error:
            raise as_node_error(self.node_id, error) from error

    def _check_recovery(self, target: str) -> None:
        try:
            check_recovery(self.token, target)
        except AtomicError as error:
            raise as_node_error(self.node_id, error) from error

    def _handled(self, update: Values, goto: tuple[str, ...] | None) -> None:
        self.note_joined((), update, goto)
        self.merge_entries([Entry(self.node_id, self.op.id, update)])
        self.token.last, self.token.after, self.token.ways, self.token.tries = self.key, None, None, 0
        self.token.go_behind(self.op, goto)


def _view(fork: Fork) -> Any:
    """A composite has no step of its own; its `on_error` sees the state before it."""
    from atomic.graph.context import StepContext

    return StepContext(fork.token, cast("Any", fork.op), 0, 1)


def conflict_in(trails: Iterable[Sequence[Entry]], replaced: frozenset[str]) -> tuple[str, str, str] | None:
    """Two nodes of different branches that write one field which has no reducer: (field, node, node)."""
    writers: dict[str, tuple[int, str]] = {}
    for branch, trail in enumerate(trails):
        for entry in trail:
            for name in entry.update:
                if name in replaced:
                    first, node_id = writers.setdefault(name, (branch, entry.node_id))
                    if first != branch:
                        return name, node_id, entry.node_id
    return None


def conflict_error(node_id: str, conflict: tuple[str, str, str]) -> NodeError:
    name, first, second = conflict
    return NodeError(
        node_id, f"'{first}' and '{second}' both write '{name}', which has no reducer; give it one, or a merge function"
    )
