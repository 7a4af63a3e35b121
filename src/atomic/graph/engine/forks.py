"""Branches that run at the same time: the parts that all kinds of them share.

`OpenBranches` runs asyncio tasks and ends all of them. `Fork` opens the scopes of one
composite and joins them; `parallel_forks`, `map_forks`, `task_forks` and
`subgraph_forks` define their branches and how they merge. Branches that edges
make (`edge_forks`) wait where another branch may still arrive.

Branches work on their own values and are merged in the order of declaration, never of
arrival.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.attempts import (
    FAILURES,
    UNASKED_ATTEMPTS,
    as_node_error,
    ask_on_error,
    error_raised_by,
    handle_failure,
)
from atomic.graph.engine.author_functions import call
from atomic.graph.engine.context import StepContext
from atomic.graph.engine.control import Retry, Suspend
from atomic.graph.engine.edges_taken import leave
from atomic.graph.engine.errors import NodeError, StateError, conflict_text
from atomic.graph.engine.journal import JoinedBody, OpenedBody, RowKind, encode_row
from atomic.graph.engine.program import ForkOp, Program
from atomic.graph.engine.run import Entry, Scope, Step, StepOwner, encode_update, quote
from atomic.graph.engine.state import StateSpec, Values, encode_value
from atomic.graph.engine.token import Resumed, Token

if TYPE_CHECKING:
    from atomic.graph.engine.journal_writer import JournalWriter


NodeConflict = tuple[str, str, str]  # a field, and two nodes of different branches that write it


class OpenBranches(ABC):
    """Runs tasks, passes on their finished steps, and ends all of them before it is
    over.
    """

    counts_each = False  # whether each member's end matters, not only the last one's
    is_concurrent = True  # whether several members write to the journal

    def __init__(self, writer: JournalWriter | None) -> None:
        self._writer = writer if self.is_concurrent else None
        self._begun = False
        self._tasks: list[asyncio.Task[None]] = []
        self._working = 0
        loop = asyncio.get_running_loop()
        # Like create_task, but faster: there may be thousands of members.
        plain = loop.get_task_factory() is None
        self._make_task: Callable[..., asyncio.Task[Any]] = (
            partial(asyncio.Task, loop=loop) if plain else loop.create_task
        )
        self._steps: deque[Step[Any]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._fatal: BaseException | None = None
        self._decided = False
        self.ending = False  # set while its members are being cancelled

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Start a member, which does all its work inside `with group`."""
        self._working += 1
        self._tasks.append(self._make_task(work, name=name))  # a given name is faster than asyncio's own

    def __enter__(self) -> None:  # noqa: B027  # nothing to do
        """Start a member's work.

        The group itself is the context manager, because it is faster.
        """

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        """End a member's work. An error that no node can cause ends the group.

        `next_step` raises it.
        """
        self._working -= 1
        is_fatal = error is not None and not isinstance(error, asyncio.CancelledError)
        if is_fatal:
            self._fatal = self._fatal or error
        if not self._working or is_fatal or self.counts_each:
            self._wake()
        return is_fatal

    def free_worker(self, owner: StepOwner) -> None:  # noqa: B027  # only task loops have workers
        """Let another item begin, although that of a token is not over."""

    async def take_worker(self, owner: StepOwner) -> None:  # noqa: B027
        """Wait until a worker is free for the item of a token, if it has none."""

    @property
    def tasks(self) -> Sequence[asyncio.Task[None]]:
        """Return the tasks of all members, also of those that are over."""
        return self._tasks

    @property
    def is_working(self) -> bool:
        return self._working > 0

    @property
    def at_work(self) -> int:
        """Return how many members run a step or wait in one."""
        return self._working

    @abstractmethod
    def members(self) -> Iterable[Token]:
        """Return the tokens of all members."""

    def put(self, step: Step[Any]) -> None:
        self._steps.append(step)
        self._wake()

    def decide(self) -> None:
        """Cancel the remaining members: the result is decided."""
        self._decided = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    @abstractmethod
    def begin(self) -> None:
        """Start the members."""

    def _settled(self) -> None:  # noqa: B027  # few groups need it
        """Act on the end of a task, before the group checks whether it is over."""

    async def next_step(self) -> Step[Any] | None:
        """Return the next finished step of any member, or None when all have ended."""
        try:
            if not self._begun:
                self._begun = True
                if self._writer is not None:
                    self._writer.shared += 1
                self.begin()
            while True:
                if self._steps:
                    return self._steps.popleft()
                if self._fatal is not None or self._decided:
                    break
                self._settled()
                if not self._working:
                    break
                self._waiter = asyncio.get_running_loop().create_future()
                await self._waiter
        except BaseException:
            # Also for a cancellation: no member outlives the group. Raised again.
            await self.cancel()
            raise
        await self.cancel()
        if self._fatal is not None:
            raise self._fatal
        return self._steps.popleft() if self._steps else None

    async def cancel(self) -> None:
        """Cancel all tasks and wait for them.

        Raise a cancellation of this call afterwards.
        """
        self.ending = True
        pending = [task for task in self._tasks if not task.done()]
        if self._working:
            for task in pending:
                task.cancel()
        interrupted: asyncio.CancelledError | None = None
        while pending:
            try:
                _, pending = await asyncio.wait(pending)
            except asyncio.CancelledError as error:
                interrupted = error
        self._tasks.clear()
        if self._begun and self._writer is not None:
            self._writer.shared -= 1
            self._writer = None
        if interrupted is not None:
            raise interrupted

    @abstractmethod
    def suspended(self) -> list[Suspend]:
        """Return the pauses of the members, or nothing if the result is decided."""

    @abstractmethod
    def close_questions(self) -> None:
        """Close the questions of waiting members: the result is decided without them."""

    @abstractmethod
    async def join(self) -> Step[Any] | None:
        """Merge the members into the token that opened them. Raise NodeError."""

    @abstractmethod
    def entries(self, *, kept: bool = False) -> list[Entry]:
        """Return the updates of the members so far, for a reader of the state.

        With `kept` return all of them, for the node that catches a failure.
        """


class Fork(OpenBranches):
    """The scopes of one composite.

    Workers take them in order, at most `limit` at once.
    """

    decides_early = True  # whether the success of one branch can end the others
    sign = ":"  # "@" in the paths of items, whose steps are not counted

    def __init__(self, token: Token, op: ForkOp, *, limit: int) -> None:
        super().__init__(token.run.writer)
        self.token = token
        self.op = op
        self.limit = limit
        self.run = token.run
        self.scope = token.scope
        self.node_id = self.scope.public_id(op.id)
        self.children: dict[str, Token] = {}
        self.errors: dict[str, NodeError] = {}
        self._inside = self.scope.inner("|")
        self._inside.model = op.model or self.scope.model
        self._inside.branches = self
        if self.sign == "@":
            self._inside.qualified = True
            self._inside.counted = False
        self._recorded = self.run.writer is not None or self.run.history is not None
        self._open()
        self._timer: asyncio.TimerHandle | None = None
        self._timed_out = False

    def _open(self) -> None:
        run = self.run
        history = self.run.history
        self.opened = history.open_fork(self.scope.path, self.node_id) if history is not None else None
        self.inherits = self.token.resumed
        self.token.resumed = None
        if self.opened is None:
            count = run.counts[self.node_id] = run.counts.get(self.node_id, 0) + 1
            self.key = f"{self.node_id}#{count}"
        else:
            self.key = self.opened.fork
            run.counts[self.node_id] = int(self.key.rpartition("#")[2])

    def set_limit(self, given: Any) -> None:
        """Take the limit from the state if the author gave a function. Raise NodeError."""
        if given is None or isinstance(given, int):
            return
        try:
            limit = call(given, self.token.state, item=self.scope.item)
        except FAILURES as error:  # the author's function; anything it raises fails the node
            raise error_raised_by("max_concurrency", self.node_id, error) from error
        if not isinstance(limit, int) or isinstance(limit, bool) or limit < 0:
            raise NodeError(
                self.node_id, f"max_concurrency returned {limit!r:.60}; return a whole number, or 0 for no limit"
            )
        self.limit = limit

    def note_opened(
        self,
        *,
        items: list[Any] | None = None,
        plain: bool = True,
        values: Values | None = None,
        reducers: dict[str, str] | None = None,
    ) -> None:
        if self.run.writer is None or self.opened is not None:
            return
        token = self.token
        try:
            plain_items = None if items is None else msgspec.Raw(encode_value(items, "items"))
            plain_values = None if values is None else msgspec.Raw(encode_value(values, "state"))
        except StateError as error:
            raise as_node_error(self.node_id, error) from error
        body = OpenedBody(
            self.scope.path, self.key, token.loops_of(self.op), token.follows,
            cast("Any", plain_items), plain, cast("Any", plain_values), reducers, token.ways,
        )  # fmt: skip
        self.run.writer.later(encode_row(RowKind.OPENED, body))

    def child_path(self, name: str) -> str:
        return f"{self.scope.path}|{self.key}{self.sign}{quote(name)}"

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
        """Return the token of a branch: a new one, or as the journal has it.

        With a suffix it is one of several items. All other values are those around the
        fork.
        """
        scope = self._inside
        if self._recorded:
            scope = scope.inner(self.child_path(name))
        elif suffix is not None:
            scope = scope.inner("|")
        if suffix is not None:
            scope.item = item
            scope.index = index
            scope.suffix = suffix
        token = self.children[name] = self.token_at(scope, program, values)
        if not token.updated:
            token.updated = self.token.updated
        return token

    def token_at(self, scope: Scope, program: Program, values: Values) -> Token:
        history = self.run.history
        if history is not None and history.knows(scope.path):
            from atomic.graph.engine.restore import restore_token  # only a resumed run needs it

            return restore_token(history, self.run, scope, program, dict(values), trail=[], errors=self.token.errors)
        token = Token(self.run, scope, program, values, pc=program.entry, trail=[], borrowed=True)
        if self.token.errors:
            token.errors = self.token.errors
        if self._recorded:
            token.resumed = Resumed.WRITTEN
        return token

    @abstractmethod
    def names(self) -> Iterable[str]:
        """Return the branches, in the order in which they may start."""

    @abstractmethod
    def make(self, name: str) -> Token:
        """Return the token of a branch that starts now."""

    def begin(self) -> None:
        if self.op.timeout is not None:

            def end_branches() -> None:
                self._timed_out = True
                self.decide()

            self._timer = asyncio.get_running_loop().call_later(self.op.timeout, end_branches)
        names = list(self.names())
        if self.limit and self.limit < len(names):
            left = iter(names)
            for _ in range(self.limit):
                self.spawn(self.work(left), self.node_id)
        else:
            for name in names:
                self.spawn(self.walk_alone(name, self.make(name)), name)

    async def work(self, names: Iterator[str]) -> None:
        """Take branches until none is left."""
        with self:
            for name in names:
                await self.walk(name, self.make(name))
                if self._decided:
                    return

    async def walk_alone(self, name: str, token: Token) -> None:
        """Run a branch in its own task, without a call of `walk`, which costs 5 %."""
        with self:
            try:
                while (step := await token.advance()) is not None:
                    self.put(step)
                if self.decides_early and not token.suspended:
                    self.ended(name)
            except NodeError as error:
                await self.fail_branch(name, error)
                self.ended(name)
            except asyncio.CancelledError as error:
                await token.cancel()
                if self.ending:
                    raise
                await self.fail_branch(name, token.cancellation_error(error))
                self.ended(name)

    async def walk(self, name: str, token: Token) -> None:
        """Run one branch until it ends and let `ended` decide about the others."""
        try:
            while (step := await token.advance()) is not None:
                self.put(step)
        except NodeError as error:
            await self.fail_branch(name, error)
        except asyncio.CancelledError as error:
            await token.cancel()
            if self.ending:
                raise
            await self.fail_branch(name, token.cancellation_error(error))
        if not token.suspended:
            self.ended(name)

    async def fail_branch(self, name: str, error: NodeError) -> None:
        """Record that a branch has failed."""
        self.errors[name] = error

    def ended(self, name: str) -> None:
        """End the other branches if this one failed. Called when a branch has ended."""
        if name in self.errors:
            self.decide()

    async def cancel(self) -> None:
        try:
            await super().cancel()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            for child in self.children.values():
                if child.open_branches is not None:  # the others have started nothing, and there may be thousands
                    await child.cancel()

    def members(self) -> Iterable[Token]:
        return self.children.values()

    def suspended(self) -> list[Suspend]:
        if self._decided:
            return []
        return [suspend for child in self.children.values() for suspend in child.suspended]

    def close_questions(self) -> None:
        self.run.close_suspended(self.children.values())

    def entries(self, *, kept: bool = False) -> list[Entry]:
        return [entry for child in self.children.values() for entry in child.entries(kept=kept)]

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
        token.updated = max([token.updated, *(child.updated for child in self.children.values())])
        if self.run.writer is not None:
            # The next step starts now; after a kill the journal must show that.
            await self.run.writer.settle(sync=False)
        self._leave(None)
        return None

    def failure(self) -> NodeError | None:
        return next(iter(self.errors.values()), None)

    @abstractmethod
    def merge(self) -> None:
        """Merge the branches' updates into the token that opened them.

        Raise NodeError.
        """

    def merge_entries(self, entries: Sequence[Entry]) -> None:
        """Merge entries into the token. Raise NodeError if a reducer fails."""
        kept = dict(self.token.values)
        try:
            self.token.take(entries)
        except StateError as error:
            self.token.values = kept
            raise as_node_error(self.node_id, error) from error

    def note_joined(
        self, branches: Iterable[str], update: Values | None = None, goto: tuple[str, ...] | None = None
    ) -> None:
        if self.run.writer is None:
            return
        encoded = None if update is None else bytes(encode_update(update))
        body = JoinedBody(self.scope.path, self.key, tuple(branches), encoded, goto)
        self.run.writer.later(encode_row(RowKind.JOINED, body))

    async def _failed(self, error: NodeError) -> None:
        """Let `on_error` of the composite decide.

        Raise the error if it does not handle it.
        """
        on_error = self.op.node.on_error
        if on_error is None:
            raise error
        token = self.token
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        view = StepContext(token, self.op, 0, 1)  # a composite has no step of its own
        answer = await ask_on_error(on_error, cause, token, view)
        if isinstance(answer, Retry):
            token.tries += 1
            if token.tries >= UNASKED_ATTEMPTS:
                raise error
            self.note_joined((), {}, (self.op.id,))
            await asyncio.sleep(answer.delay)
            return
        try:
            update, goto, _, _ = handle_failure(token, self.node_id, answer, error)
        except NodeError:
            raise
        except AtomicError as problem:
            raise as_node_error(self.node_id, problem) from problem
        self.note_joined((), update or {}, goto)
        self.merge_entries([Entry(self.node_id, self.op.id, update or {})])
        self._leave(goto)

    def _leave(self, goto: tuple[str, ...] | None) -> None:
        """Move the token on from the joined composite."""
        token = self.token
        token.last = self.key
        token.after = None
        token.ways = None
        token.tries = 0
        leave(token, self.op, goto)


def conflict_in(trails: Sequence[Sequence[Entry]], spec: StateSpec[Any]) -> NodeConflict | None:
    """Return (field, node, node) for two branches that write a field without a reducer,
    or that one of them overwrites.
    """
    replaced = spec.unreduced(trails)
    writers: dict[str, tuple[int, str]] = {}
    for branch, trail in enumerate(trails):
        for entry in trail:
            for name in entry.update:
                if name in replaced:
                    first, node_id = writers.setdefault(name, (branch, entry.node_id))
                    if first != branch:
                        return name, node_id, entry.node_id
    return None


def conflict_error(node_id: str, conflict: NodeConflict, spec: StateSpec[Any]) -> NodeError:
    field, first, second = conflict
    if field in spec.replaced:
        return NodeError(node_id, conflict_text(field, first, second))
    text = f"'{first}' and '{second}' both write '{field}', and Overwrite allows only one branch to write it"
    return NodeError(node_id, text)
