"""Walk a program: run a node, merge its update, record it, continue.

A `Token` is a position in a scope with the values there. It is data, so a run can
resume wherever its journal ends. A single token is a plain loop without tasks, queues
or locks. Those exist only where the program forks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from atomic.graph.engine.attempts import (
    Outcome,
    accept,
    as_node_error,
    question_in,
    run_attempts,
    sort_raised,
    warnings_in,
)
from atomic.graph.engine.context import Answer, StepContext
from atomic.graph.engine.control import Breakpoint, Event, RunStatus, SignalKind, Suspend, status_of
from atomic.graph.engine.edges_taken import end_iteration, leave, take_edge
from atomic.graph.engine.errors import NodeError, StateError
from atomic.graph.engine.journal import RowKind, StartedBody, StepBody, encode_row
from atomic.graph.engine.loop_watch import LIMIT
from atomic.graph.engine.node import MapBody, ParallelBody, SubgraphBody, TasksBody
from atomic.graph.engine.program import (
    END_PC,
    FORK,
    STEP,
    UNTIL,
    ForkOp,
    Op,
    Program,
    StepOp,
)
from atomic.graph.engine.run import Entry, Run, Scope, Step, encode_update, error_body
from atomic.graph.engine.state import Values
from atomic.questions import Question

if TYPE_CHECKING:
    from atomic.graph.engine.edge_forks import Group
    from atomic.graph.engine.forks import OpenBranches
    from atomic.graph.engine.journal_writer import JournalWriter
    from atomic.graph.engine.run import Members

_NO_COUNTERS: list[int] = []
_TURN = 127  # other tasks get a turn after this many steps


class Resumed(Enum):
    """How the journal shows that a step had begun: by its own row, or by the row before
    it.
    """

    WRITTEN = 1
    IMPLIED = 2


class Token:
    """A position in a scope, with the values there."""

    # Defaults of what most tokens do not need live in the class, because branches must be
    # cheap. What each step reads is set in `__init__`: an attribute of the instance is read
    # several times faster than one of the class.
    pc: int
    order: tuple[int, ...] = ()
    region = 0  # in a group: the operations that it may reach, as bits
    last = ""  # the key of the previous visit
    after: tuple[str, ...] | None = None  # the previous visits, if there are several
    ways: tuple[int, ...] | None = None  # for each of them, over which of several edges it came
    errors: tuple[NodeError, ...] = ()  # failures so far
    caught = False  # the catch node has run
    tries = 0  # retries of the composite at this position
    kept = False  # the updates of open branches were merged for the catch node, which is next
    came_back = -1  # the counter of the cycle that the last edge closed
    cleared = END_PC  # the operation where it has joined the others and may continue
    numbers_questions = False  # a visit of a node asks what the visit before has asked

    def __init__(
        self,
        run: Run,
        scope: Scope,
        program: Program,
        values: Values,
        *,
        pc: int,
        trail: list[Entry] | None = None,
        borrowed: bool = False,
        updated: float = 0.0,
    ) -> None:
        self.run = run
        self.scope = scope
        self.program = program
        self.values = values
        self.pc = pc
        self.trail = trail
        self.borrowed = borrowed  # the values belong to the parent token; copied before the first change
        self.updated = updated  # when its last step ended
        self.spec = program.spec
        self.counters = [0] * len(program.slots) if program.slots else _NO_COUNTERS
        self.open_branches: OpenBranches | None = None  # branches that it has opened and not joined yet
        self.group: Group | None = None  # the branches made by edges that it belongs to
        self.suspended: Sequence[Suspend] = ()
        self.pending: tuple[Question, str] | None = None  # a question of the last step that is not asked yet
        self.failure: NodeError | None = None  # the failure for the catch node
        self.resumed: Resumed | None = None  # set while the next step may have begun before the resume
        self._state: Any = None

    @property
    def state(self) -> Any:
        state = self._state
        if state is None:
            state = self._state = self.spec.build(self.values, self.updated)
        return state

    @property
    def belongs_to(self) -> Members | None:
        """Return the branches whose task runs it, or None for the run's own task."""
        return self.scope.branches if self.group is None else self.group

    @property
    def follows(self) -> tuple[str, ...] | None:
        """Return the previous visits, if a reader of the journal could not guess them."""
        return (self.last,) if self.group is not None and self.after is None else self.after

    async def advance(self) -> Step[Any] | None:
        """Run until a step is finished and reported, the scope ends or nothing more can
        be done.

        If nothing listens, run to the end of the scope. Raise NodeError if a node
        failed.

        This is the hot loop: a step runs right here, because a separate coroutine would
        cost a fifth of its time.
        """
        run = self.run
        scope = self.scope
        ops = self.program.ops
        counts = self.run.counts
        has_breakpoints = bool(scope.breakpoints)
        watched = run.writer is not None or run.listening  # else the duration of a step is not needed
        began = start = 0.0
        usage: dict[str, float] | None = None
        events: list[Event] | None = None
        if self.pending is not None:
            await self._ask_pending()
        while self.pc >= 0 and not self.suspended:
            at = ops[self.pc]
            if at.kind != STEP or self.open_branches is not None or self.group is not None:
                try:
                    if self.open_branches is not None or at.kind == FORK:
                        step = await self._fork(at)
                        if step is not None:
                            return step
                    elif at.kind == UNTIL:
                        end_iteration(self, at)  # pyright: ignore[reportArgumentType]  # its kind says so
                    elif at.kind != STEP:
                        take_edge(self, at)
                except NodeError as error:
                    self._catch(error)
                    continue
                if self.group is not None and self.group.holds(self):
                    return None
                if self.pc < 0 or self.open_branches is not None or self.suspended or ops[self.pc].kind != STEP:
                    continue
                at = ops[self.pc]
            op: StepOp = at  # pyright: ignore[reportAssignmentType]  # its kind says so; a cast would be a call
            node_id = scope.public_id(op.id) if scope.qualified else op.id
            if (run.pause is not None or has_breakpoints) and self._pauses_before(op, node_id):
                continue
            if scope.counted and run.budget >= 0:
                if run.budget == 0:
                    self._catch(NodeError(node_id, f"max_steps ({run.max_steps}) exceeded"))
                    continue
                run.budget -= 1
            n = counts[node_id] = counts.get(node_id, 0) + 1
            attempt = 1 if self.resumed is None else await self._begin(node_id, n)
            ctx = StepContext(self, op, n, attempt, self._state)
            if watched:
                run.report_started(ctx)
                began = time.time()
                start = perf_counter()
            try:
                if op.guarded:
                    try:
                        outcome = await run_attempts(self, op, ctx)
                    finally:
                        attempt = ctx.attempt
                else:
                    answer = await op.call(ctx)
                    if ctx.held is not None:
                        await ctx.settle()
                    outcome = None if type(answer) is dict else accept(self, answer)
                if watched:
                    usage = ctx.usage
                    events = ctx.events
                ctx.over = True
                if ctx.programs is not None:
                    await ctx.end_programs()
                self._state = ctx = None  # values that only these refer to are merged in place
                if self.borrowed:
                    self._own_values()
                if outcome is None:  # the usual answer is checked and merged at once
                    update = self.spec.fold(self.values, answer)  # pyright: ignore[reportPossiblyUnboundVariable, reportUnknownArgumentType]
                    outcome = (update, None, (), None)
                elif update := outcome[0]:
                    self.spec.apply(self.values, update)
            except BaseException as error:
                pauses, failure = self.classify(error, ctx)
                if ctx is not None:
                    ctx.over = True
                    if ctx.programs is not None:
                        await ctx.end_programs()
                if failure is None:
                    return self._suspend(op, n, attempt, pauses, perf_counter() - start)
                failed = as_node_error(node_id, failure)
                run.watch.node_ended(self, op, perf_counter() - start)
                step = await self._fail(op, n, attempt, failed, began, perf_counter() - start)
                if step is not None:
                    return step
                continue
            seconds = perf_counter() - start if watched else 0.0
            before = self.updated
            self.updated = began + seconds if watched else time.time()
            if self.updated - before > LIMIT:
                run.watch.node_ended(self, op, seconds)
            run.steps += 1
            if update and self.trail is not None:
                self.trail.append(Entry(node_id, op.id, update))
            if run.writer is not None or self.group is not None:
                await self._record(op, node_id, n, attempt, outcome, began, seconds, usage)
            elif outcome[1] is None and self.program.catcher < 0:
                self.pc = op.next
            else:
                leave(self, op, outcome[1])
            if not run.steps % _TURN:
                await asyncio.sleep(0)
            if run.listening or outcome[2] or outcome[3] is not None:
                step = await self._report(op, node_id, n, attempt, outcome, seconds, events)
                if step is not None:
                    return step
        if self.failure is not None and not self.suspended:
            raise self.failure
        return None

    def _pauses_before(self, op: Op, node_id: str) -> bool:
        """Return whether the host or a breakpoint pauses the run now. The step does not begin then."""
        pause = None if self.run.pause is None else self.run.pause()
        if pause is None:
            pause = self._breakpoint(op, node_id)
        if pause is None:
            return False
        pause.node_id = node_id
        self.suspended = [pause]
        return True

    def _breakpoint(self, op: Op, node_id: str) -> Breakpoint | None:
        """Return the pause before a node that `pause_before` names, once for each visit."""
        if op.id not in self.scope.breakpoints or self.tries:
            return None
        history = self.run.history
        key = f"{node_id}#{self.run.counts.get(node_id, 0) + 1}"
        if history is None:
            return Breakpoint(node_id, key, begun=bool(self.last))
        if op.kind == FORK and history.has_open_fork(self.scope.path, node_id):
            return None
        if key not in history.passed:
            return Breakpoint(node_id, key, begun=bool(self.last))
        if self.resumed is Resumed.IMPLIED:  # the run paused before it, so it had not begun
            self.resumed = Resumed.WRITTEN
        return None

    async def _record(
        self, op: StepOp, node_id: str, n: int, attempt: int, outcome: Outcome,
        began: float, seconds: float, usage: dict[str, float] | None,
    ) -> None:  # fmt: skip
        """Write the step to the journal, then move on."""
        run = self.run
        scope = self.scope
        writer = self.run.writer
        update, goto, signals, error = outcome
        loops = self.loops_of(op)
        if writer is not None:
            body = StepBody(
                scope.path, node_id, n, "completed", encode_update(update), attempt, began, seconds, loops, goto,
                self.follows, op.model or scope.model, error_body(error) if error is not None else None, usage,
                question_in(signals, node_id) if signals else None, (), self.ways, self.kept,
            )  # fmt: skip
            row = encode_row(RowKind.STEP, body, step=run.steps)
            if writer.shared:
                await writer.write(row)
            else:
                writer.now(row)
        self.last = f"{node_id}#{n}"
        self.after = None
        self.ways = None
        if self.kept:
            self.kept = False
        leave(self, op, goto)
        if writer is not None and (writer.wants_snapshot or signals):
            self._snapshot(op, outcome, loops)

    async def _report(
        self, op: StepOp, node_id: str, n: int, attempt: int, outcome: Outcome, seconds: float,
        events: list[Event] | None,
    ) -> Step[Any] | None:  # fmt: skip
        """Return the step for the stream, and handle its signals and its question."""
        run = self.run
        update, _, signals, error = outcome
        if error is not None:
            self.errors = (*self.errors, error)
        told = [*(events or ()), *warnings_in(signals)]
        for event in told[len(events or ()) :]:
            run.report_event(node_id, event)
        question = question_in(signals, node_id) if signals else None
        if question is not None:
            self.pending = (question, run.step_id(node_id, n))
        if not run.listening:
            if question is not None:
                await self._ask_pending()
            return None
        return self._step(op, n, attempt, seconds, update=update, error=error, events=tuple(told))

    def _step(
        self, op: StepOp, n: int, attempt: int, seconds: float, *, status: RunStatus = RunStatus.COMPLETED,
        update: Values | None = None, error: NodeError | None = None, events: tuple[Event, ...] = (),
    ) -> Step[Any]:  # fmt: skip
        """Return a step for the stream."""
        node_id = self.scope.public_id(op.id)
        model = op.model or self.scope.model
        step_id = self.run.step_id(node_id, n)
        return Step(node_id, step_id, self.state, update, status, error, seconds, attempt, model, events)

    async def _begin(self, node_id: str, n: int) -> int:
        """Return the number of this attempt and record it, because no other row implies
        it.
        """
        run = self.run
        step_id = run.step_id(node_id, n)
        before = run.history.attempts.get(step_id, 0) if run.history is not None else 0
        if self.resumed is Resumed.IMPLIED:
            before = max(before, 1)
        self.resumed = None
        await self.note_started(step_id, before + 1)
        return before + 1

    async def note_started(self, step_id: str, attempt: int) -> None:
        if self.run.writer is not None:
            row = encode_row(RowKind.STARTED, StartedBody(step_id, attempt, time.time()))
            await self.run.writer.write(row, sync=False)

    def loops_of(self, op: Op) -> tuple[int, ...]:
        return tuple([self.counters[slot] for slot in op.loops]) if op.loops else ()

    async def _fail(
        self, op: StepOp, n: int, attempt: int, error: NodeError, began: float, seconds: float
    ) -> Step[Any] | None:
        """Record that a node failed and go to the catch node.

        The state does not change.
        """
        run = self.run
        scope = self.scope
        node_id = scope.public_id(op.id)
        self.errors = (*self.errors, error)
        if run.writer is not None:
            body = StepBody(
                scope.path, node_id, n, "failed", encode_update(None), attempt, began, seconds,
                self.loops_of(op), None, self.follows, op.model or scope.model, error_body(error),
            )  # fmt: skip
            await run.writer.write(encode_row(RowKind.STEP, body))
        run.counts[node_id] -= 1  # the next run of it is the same step
        step_id = run.step_id(node_id, n)
        step = None
        if run.listening:  # with the state before the catch node
            step = self._step(op, n, attempt, seconds, status=RunStatus.FAILED, error=error)
        run.close_questions(step_id)
        if run.history is not None:
            run.history.forget_failed_parts(step_id)
            run.history.forget_calls(scope.path, step_id)
        self._catch(error)
        return step

    def _catch(self, error: NodeError) -> None:
        """Go to the scope's catch node, once.

        Without one, or if it failed itself, the scope fails.
        """
        catcher = self.program.catcher
        if self.failure is None:
            self.failure = error
        self.pc = END_PC if self.caught or self.run.end is not None else catcher
        self.caught = True
        if self.pc >= 0 and self.open_branches is not None:
            self._keep(self.open_branches.entries(kept=True))
            self.open_branches = None
        if error not in self.errors:
            self.errors = (*self.errors, error)

    def _keep(self, entries: Sequence[Entry]) -> None:
        """Merge the updates of open branches, so that the catch node can see and undo
        them.
        """
        before = dict(self.values)
        try:
            self.take(entries)
        except StateError:  # the failure is known; the catch node sees the state before the branches
            self.values = before
            return
        self.kept = bool(entries)

    def classify(
        self, error: BaseException, ctx: StepContext | None = None
    ) -> tuple[list[Suspend], BaseException | None]:
        """Split the exceptions of a node into its pauses and its failure.

        Raise a cancellation that was meant for this token.
        """
        pauses, failure = sort_raised(error)
        if ctx is not None and failure is None:
            pauses, failure = ctx.pauses(pauses), ctx.refusal
        if isinstance(failure, asyncio.CancelledError):
            if self.is_cancelled():
                raise failure
            self._forget_cancellation()
        return pauses, failure

    def is_cancelled(self) -> bool:
        """Return whether the fork of this token, or the caller of the run, has
        cancelled it.
        """
        return self.run.is_cancelled() if self.belongs_to is None else self.belongs_to.ending

    def _forget_cancellation(self) -> None:
        """Undo a foreign cancellation of a branch's task: the branch failed and
        continues.
        """
        task = asyncio.current_task()
        while self.belongs_to is not None and task is not None and task.cancelling():
            task.uncancel()

    def cancellation_error(self, error: asyncio.CancelledError) -> NodeError:
        """Return the failure of a branch that was cancelled from outside between two
        nodes.
        """
        self._forget_cancellation()
        at = self.program.ops[self.pc] if self.pc >= 0 else None
        failure = NodeError(
            self.scope.public_id(at.id) if at is not None else self.last,
            "the task of this branch was cancelled, but not by the run",
            kind="CancelledError",
        )
        failure.__cause__ = error
        return failure

    def _suspend(self, op: StepOp, n: int, attempt: int, pauses: Sequence[Suspend], seconds: float) -> Step[Any] | None:
        """Stop before a step that waits for an answer or a limit.

        The step stays unfinished.
        """
        run = self.run
        node_id = self.scope.public_id(op.id)
        run.counts[node_id] -= 1
        if self.scope.counted and run.budget >= 0:
            run.budget += 1
        for pause in pauses:
            pause.node_id = pause.node_id or node_id
        self.suspended = list(pauses)
        return self._step(op, n, attempt, seconds, status=status_of(pauses)) if run.listening else None

    async def _ask_pending(self) -> None:
        """Ask the question of the last step, which is already recorded."""
        assert self.pending is not None
        question, step_id = self.pending
        try:
            answer = await self.run.ask(question, step_id, question.id, owner=self, finished=True)
        except BaseException as error:
            pauses, failure = self.classify(error)
            if failure is None:
                self.suspended = pauses
            else:
                self._catch(as_node_error(question.id, failure))
            return
        self.pending = None
        self.take_answer(question.id, answer)

    def take_answer(self, key: str, answer: Answer) -> None:
        """Merge an answer that belongs to no step as its own update."""
        update: Values = {"outputs": {key: answer}}
        self.take([Entry(key, key, update)])

    async def _fork(self, op: Op) -> Step[Any] | None:
        """Open the scopes of a composite if they are not open yet, and walk and join
        them.
        """
        if self.open_branches is None:
            if self.group is not None and self.group.holds(self):
                return None
            pause = self._breakpoint(op, self.scope.public_id(op.id))
            if pause is not None:
                self.suspended = [pause]
                return None
            self.open_branches = self._open_fork(cast("ForkOp", op))
        opened = self.open_branches
        step = await opened.next_step()
        if step is not None:
            return step
        waiting = opened.suspended()
        if waiting:
            self.suspended = waiting
            return None
        opened.close_questions()
        step = await opened.join()  # if that fails, the branches' updates stay visible
        if self.open_branches is opened and not self.suspended:
            self.open_branches = None
        return step

    def _open_fork(self, op: ForkOp) -> OpenBranches:
        """Open the scopes of a composite: new ones, or the open ones of the journal."""
        # Imported here, because forks are made of tokens.
        from atomic.graph.engine.map_forks import MapFork
        from atomic.graph.engine.parallel_forks import ParallelFork
        from atomic.graph.engine.subgraph_forks import SubgraphFork
        from atomic.graph.engine.task_forks import TasksFork

        match op.body:
            case ParallelBody():
                return ParallelFork(self, op, op.body)
            case MapBody():
                return MapFork(self, op, op.body)
            case TasksBody():
                return TasksFork(self, op, op.body)
            case SubgraphBody():
                return SubgraphFork(self, op, op.body)
            case _:
                raise TypeError(f"{op.id} is not a fork")

    def _own_values(self) -> None:
        self.values = self.values.copy()
        self.borrowed = False

    def take(self, entries: Sequence[Entry]) -> None:
        """Merge the entries of branches in this order.

        Raise StateError if a reducer fails; then only the first entries are merged.
        """
        self._state = None
        if self.borrowed:
            self._own_values()
        for entry in entries:
            self.spec.apply(self.values, entry.update)
        if self.trail is not None:
            self.trail.extend(entries)

    def entries(self, *, kept: bool = False) -> list[Entry]:
        """Return the entries of this branch and of its open branches.

        With `kept` all of them count, whatever the strategy.
        """
        open_entries = self.open_branches.entries(kept=kept) if self.open_branches is not None else ()
        return [*(self.trail or ()), *open_entries]

    def visible_state(self) -> Any:
        """Return the state of a stopped run, including open branches."""
        if self.open_branches is None:
            return self.state
        values = dict(self.values)
        try:
            for entry in self.open_branches.entries():
                self.spec.apply(values, entry.update)
        except StateError:  # the run's error already names the reason
            return self.state
        return self.spec.build(values, self.updated)

    async def cancel(self) -> None:
        """Cancel everything that it has started."""
        if self.open_branches is not None:
            await self.open_branches.cancel()

    def _snapshot(self, op: StepOp, outcome: Outcome, loops: tuple[int, ...]) -> None:
        """Store a snapshot if no branch is open and nothing waits."""
        writer = cast("JournalWriter", self.run.writer)
        forced = any(signal.kind == SignalKind.CHECKPOINT for signal in outcome[2])
        if not (forced or writer.wants_snapshot) or self.scope.path or self.group or self.open_branches or self.failure:
            return
        from atomic.graph.engine.history import encode_snapshot

        body = encode_snapshot(self, op.id, outcome[1], loops)
        if body is not None:
            writer.snapshot(self.run.steps, body, forced=forced)
