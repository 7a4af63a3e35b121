"""Walk a program: run a node, merge its update, record it, go on.

A `Token` is a position in a scope together with the values there; it is data, so a run can be taken up
wherever its journal ends. A single token is a plain loop without tasks, queues or locks; those exist only
where the program forks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from atomic.graph.attempts import Outcome, accept, question_in, run_attempts, warnings_in
from atomic.graph.context import Answer, StepContext
from atomic.graph.control import END, Event, RunStatus, SignalKind, Suspend, status_of
from atomic.graph.errors import NodeError, StateError
from atomic.graph.failures import FAILURES, as_node_error, sort_raised
from atomic.graph.journal import ALONE, RowKind, StartedBody, StepBody, encode_row
from atomic.graph.program import (
    END_PC,
    FORK,
    IF,
    LOOP,
    STEP,
    UNTIL,
    ForkOp,
    IfOp,
    LoopOp,
    Op,
    Program,
    RouteOp,
    StepOp,
    UntilOp,
)
from atomic.graph.run import Entry, Place, Run, Step, encode_update, error_body
from atomic.graph.state import Values, describe_error
from atomic.questions import Question

if TYPE_CHECKING:
    from atomic.graph.crew import Crew
    from atomic.graph.forks import Branching
    from atomic.graph.groups import Group
    from atomic.graph.pen import Pen

_NO_COUNTERS: list[int] = []
_TURN = 127  # after so many steps without a pause others get a turn


class Resumed(Enum):
    """How a step's former begin is known: from a row of its own, or because it follows from the row before it."""

    WRITTEN = 1
    IMPLIED = 2


class Token:
    """A position in a scope, with the values there."""

    # Most tokens never need most of these: what is not set costs nothing when a branch is made.
    pc: int
    branching: Branching | None = None  # what it has opened and not joined yet
    group: Group | None = None  # the branches that edges made, of which this is one
    order: tuple[int, ...] = ()
    region = 0  # as one of several branches that edges made: the operations that it may come to, as bits
    last = ""  # the key of the visit before this position
    after: tuple[str, ...] | None = None  # the visits that met here, where it is more than the last
    ways: tuple[int, ...] | None = None  # over which of several edges it came from each of them
    errors: tuple[NodeError, ...] = ()  # what has failed so far
    caught = False  # the catching node has had its turn
    tries = 0  # how often the composite at this position has failed and was tried again
    failure: NodeError | None = None  # what the catching node is told about
    kept = False  # what open branches had done was merged for the catching node, which is next
    suspended: Sequence[Suspend] = ()
    pending: tuple[Question, str] | None = None  # a question of the last step, still to be asked
    came_back = -1  # the counter of the cycle that the last way has closed
    cleared = END_PC  # where it has met the others and may go on
    resumed: Resumed | None = None  # set while the next step may have been running before
    updated = 0.0
    borrowed = False  # the values are still those of the token that it branched from; copied before the first change
    _state: Any = None

    def __init__(
        self, run: Run, place: Place, program: Program, values: Values, *, pc: int, trail: list[Entry] | None = None
    ) -> None:
        self.run, self.place, self.program, self.values = run, place, program, values
        self.pc, self.trail, self.spec = pc, trail, program.spec
        self.counters = [0] * len(program.slots) if program.slots else _NO_COUNTERS

    @property
    def state(self) -> Any:
        if self._state is None:
            self._state = self.spec.build(self.values, self.updated)
        return self._state

    @property
    def crew(self) -> Crew | None:
        """Whose task walks it; None: the run's own."""
        return self.place.crew if self.group is None else self.group

    @property
    def follows(self) -> tuple[str, ...] | None:
        """The visits before this one, where a reader could not guess them."""
        return (self.last,) if self.group is not None and self.after is None else self.after

    async def advance(self) -> Step[Any] | None:
        """Go on until a step is finished and told, the scope ends or nothing more can be done.

        With nobody listening it goes on to the end of the scope. Raises NodeError where a node failed for good.
        This is the hot loop: a step is done right here, because a coroutine of its own would cost a fifth of it.
        """
        run, place, ops, counts = self.run, self.place, self.program.ops, self.run.counts
        watched = run.pen is not None or run.listening  # else nobody will ever ask how long a step took
        began = start = 0.0
        usage: dict[str, float] | None = None
        events: list[Event] | None = None
        if self.pending is not None:
            await self._ask_pending()
        while self.pc >= 0 and not self.suspended:
            at = ops[self.pc]
            if at.kind != STEP or self.branching is not None or self.group is not None:
                try:
                    if self.branching is not None or at.kind == FORK:
                        step = await self._fork(at)
                        if step is not None:
                            return step
                    elif at.kind == UNTIL:
                        self._until(at)  # pyright: ignore[reportArgumentType]  # its kind says so
                    elif at.kind != STEP:
                        self._move(at)
                except NodeError as error:
                    self._catch(error)
                    continue
                if self.group is not None and self.group.holds(self):
                    return None
                if self.pc < 0 or self.branching is not None or self.suspended or ops[self.pc].kind != STEP:
                    continue
                at = ops[self.pc]
            op: StepOp = at  # pyright: ignore[reportAssignmentType]  # its kind says so; a cast would be a call
            node_id = place.public_id(op.id) if place.qualified else op.id
            if place.counted and run.budget >= 0:
                if run.budget == 0:
                    self._catch(NodeError(node_id, f"max_steps ({run.max_steps}) exceeded"))
                    continue
                run.budget -= 1
            n = counts[node_id] = counts.get(node_id, 0) + 1
            attempt = 1 if self.resumed is None else await self._begin(node_id, n)
            ctx = StepContext(self, op, n, attempt)
            if watched:
                run.tell_started(ctx)
                began, start = time.time(), perf_counter()
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
                    if type(answer) is dict:  # the usual answer, without the detour
                        outcome = (self.spec.convert(answer), None, (), None)  # pyright: ignore[reportUnknownArgumentType]
                    else:
                        outcome = accept(self, answer)
                update = outcome[0]
                if watched:
                    usage, events = ctx.usage, ctx.events
                ctx.over = True
                if ctx.programs is not None:
                    await ctx.end_programs()
                self._state = None
                if update:
                    ctx = None  # values that only it could still see are merged in place
                    if self.borrowed:
                        self.values, self.borrowed = self.values.copy(), False
                    self.spec.apply(self.values, update)
            except BaseException as error:
                pauses, failure = self.judge(error, ctx)
                if ctx is not None:
                    ctx.over = True
                    if ctx.programs is not None:
                        await ctx.end_programs()
                if failure is None:
                    return self._suspend(op, n, attempt, pauses, perf_counter() - start)
                failed = as_node_error(node_id, failure)
                step = await self._fail(op, n, attempt, failed, began, perf_counter() - start)
                if step is not None:
                    return step
                continue
            seconds = perf_counter() - start if watched else 0.0
            self.updated = began + seconds if watched else time.time()
            run.steps += 1
            if update and self.trail is not None:
                self.trail.append(Entry(node_id, op.id, update))
            if run.pen is not None or self.group is not None:
                await self._record(op, node_id, n, attempt, outcome, began, seconds, usage)
            elif outcome[1] is None and self.program.catcher < 0:
                self.pc = op.next
            else:
                self._go(op, outcome[1])
            run.turns += 1
            if run.turns >= _TURN:
                run.turns = 0
                await asyncio.sleep(0)
            if run.listening or outcome[2] or outcome[3] is not None:
                step = await self._tell(op, node_id, n, attempt, outcome, seconds, events)
                if step is not None:
                    return step
        if self.failure is not None and not self.suspended:
            raise self.failure
        return None

    # one step ----------------------------------------------------------------------------------------------

    async def _record(
        self, op: StepOp, node_id: str, n: int, attempt: int, outcome: Outcome,
        began: float, seconds: float, usage: dict[str, float] | None,
    ) -> None:  # fmt: skip
        """Write the step down, and only then leave it behind."""
        run, place, pen = self.run, self.place, self.run.pen
        update, goto, signals, error = outcome
        loops = self.loops_of(op)
        if pen is not None:
            body = StepBody(
                place.path, node_id, n, "completed", encode_update(update), attempt, began, seconds, loops, goto,
                self.follows, op.model or place.model, error_body(error) if error is not None else None, usage,
                question_in(signals, node_id) if signals else None, (), self.ways, self.kept,
            )  # fmt: skip
            row = encode_row(RowKind.STEP, body, step=run.steps)
            if pen.shared:
                await pen.write(row)
            else:
                pen.now(row)
        self.last, self.after, self.ways = f"{node_id}#{n}", None, None
        if self.kept:
            self.kept = False
        self._go(op, goto)
        if pen is not None and (pen.wants_snapshot or signals):
            self._snapshot(op, outcome, loops)

    async def _tell(
        self, op: StepOp, node_id: str, n: int, attempt: int, outcome: Outcome, seconds: float,
        events: list[Event] | None,
    ) -> Step[Any] | None:  # fmt: skip
        """What comes after a step was recorded: the news of it, its signals and its question."""
        run = self.run
        update, _, signals, error = outcome
        if error is not None:
            self.errors = (*self.errors, error)
        told = [*(events or ()), *warnings_in(signals)]
        for event in told[len(events or ()) :]:
            run.tell_live(node_id, event)
        question = question_in(signals, node_id) if signals else None
        if question is not None:
            self.pending = (question, run.step_id(node_id, n))
        if not run.listening:
            if question is not None:
                await self._ask_pending()
            return None
        return Step(
            node_id, run.step_id(node_id, n), self.state, update, RunStatus.COMPLETED, error, seconds, attempt,
            op.model or self.place.model, tuple(told),
        )  # fmt: skip

    async def _begin(self, node_id: str, n: int) -> int:
        """The number of this attempt, written down: nothing else would tell after a cut that it had begun."""
        run = self.run
        step_id = run.step_id(node_id, n)
        before = run.past.attempts.get(step_id, 0) if run.past is not None else 0
        if self.resumed is Resumed.IMPLIED:
            before = max(before, 1)
        self.resumed = None
        await self.note_started(step_id, before + 1)
        return before + 1

    async def note_started(self, step_id: str, attempt: int) -> None:
        if self.run.pen is not None:
            row = encode_row(RowKind.STARTED, StartedBody(step_id, attempt, time.time()))
            await self.run.pen.write(row, sync=False)

    def loops_of(self, op: Op) -> tuple[int, ...]:
        return tuple([self.counters[slot] for slot in op.loops]) if op.loops else ()

    async def _fail(
        self, op: StepOp, n: int, attempt: int, error: NodeError, began: float, seconds: float
    ) -> Step[Any] | None:
        """A node failed for good: record it and pass it on; the state before the node stands."""
        run, place = self.run, self.place
        node_id, model = place.public_id(op.id), op.model or place.model
        self.errors = (*self.errors, error)
        if run.pen is not None:
            body = StepBody(
                place.path, node_id, n, "failed", encode_update(None), attempt, began, seconds,
                self.loops_of(op), None, self.follows, model, error_body(error),
            )  # fmt: skip
            await run.pen.write(encode_row(RowKind.STEP, body))
        run.counts[node_id] -= 1  # whoever runs it again goes on with the same step
        step_id, state = run.step_id(node_id, n), self.state if run.listening else None
        run.close_questions(step_id)
        if run.past is not None:
            run.past.forget_parts(step_id)
        self._catch(error)
        if not run.listening:
            return None
        return Step(node_id, step_id, state, None, RunStatus.FAILED, error, seconds, attempt, model)

    def _catch(self, error: NodeError) -> None:
        """Go to the scope's catching node, once; without one, or if it failed itself, the scope has failed."""
        catcher = self.program.catcher
        if self.failure is None:
            self.failure = error
        self.pc = END_PC if self.caught else catcher
        self.caught = True
        if self.pc >= 0 and self.branching is not None:
            self._keep(self.branching.kept())
            self.branching = None
        if error not in self.errors:
            self.errors = (*self.errors, error)

    def _keep(self, entries: Sequence[Entry]) -> None:
        """Merge what open branches have done, so that the catching node sees it and can undo it."""
        before = dict(self.values)
        try:
            self.take(entries)
        except StateError:  # the failure is known already; the catching node sees the state before the branches
            self.values = before
            return
        self.kept = bool(entries)

    def judge(self, error: BaseException, ctx: StepContext | None = None) -> tuple[list[Suspend], BaseException | None]:
        """Split what a node raised into its pauses and its failure. Raises a cancellation that was meant for it."""
        pauses, failure = sort_raised(error)
        if ctx is not None and failure is None:
            pauses, failure = ctx.pauses(pauses), ctx.refusal
        if isinstance(failure, asyncio.CancelledError):
            if self.is_cancelled():
                raise failure
            self._forget_cancellation()
        return pauses, failure

    def is_cancelled(self) -> bool:
        """Whether the fork that runs this token, or whoever awaits the run, has cancelled it."""
        return self.run.is_cancelled() if self.crew is None else self.crew.ending

    def _forget_cancellation(self) -> None:
        """Take back a cancellation of a branch's task that did not come from its fork: it has failed, and goes on."""
        task = asyncio.current_task()
        while self.crew is not None and task is not None and task.cancelling():
            task.uncancel()

    def cut_off(self, error: asyncio.CancelledError) -> NodeError:
        """Describe the end of a branch whose task was cancelled from outside while no node of it was running."""
        self._forget_cancellation()
        at = self.program.ops[self.pc] if self.pc >= 0 else None
        failure = NodeError(
            self.place.public_id(at.id) if at is not None else self.last,
            "the task of this branch was cancelled, but not by the run",
            kind="CancelledError",
        )
        failure.__cause__ = error
        return failure

    def _suspend(self, op: StepOp, n: int, attempt: int, pauses: Sequence[Suspend], seconds: float) -> Step[Any] | None:
        """A step waits for somebody: it stays unfinished, and the token stays before it."""
        run, node_id = self.run, self.place.public_id(op.id)
        run.counts[node_id] -= 1
        if self.place.counted and run.budget >= 0:
            run.budget += 1
        for pause in pauses:
            pause.node_id = pause.node_id or node_id
        self.suspended = list(pauses)
        if not run.listening:
            return None
        step_id, model = run.step_id(node_id, n), op.model or self.place.model
        status = status_of(pauses)
        return Step(node_id, step_id, self.state, None, status, None, seconds, attempt, model)

    async def _ask_pending(self) -> None:
        """Ask what the last step wanted to know; its own work is recorded and is not done again."""
        assert self.pending is not None
        question, step_id = self.pending
        try:
            answer = await self.run.ask(question, step_id, question.id, token=self, finished=True)
        except BaseException as error:
            pauses, failure = self.judge(error)
            if failure is None:
                self.suspended = pauses
            else:
                self._catch(as_node_error(question.id, failure))
            return
        self.pending = None
        self.take_answer(question.id, answer)

    def take_answer(self, key: str, answer: Answer) -> None:
        """An answer that belongs to no step: it is an update of its own."""
        update: Values = {"outputs": {key: answer}}
        self.take([Entry(key, key, update)])

    # ways --------------------------------------------------------------------------------------------------

    def _go(self, op: Op, goto: tuple[str, ...] | None) -> None:
        """Set the next position. A catching node ends the scope unless it says where to go on."""
        program = self.program
        self.cleared = END_PC
        if goto is None:
            self.pc = END_PC if op.pc == program.catcher else op.next
            return
        self.failure = None
        if not self.place.path:
            self.run.jumps.update((op.id, target) for target in goto)
        targets = [END_PC if target == END else program.by_id[target] for target in goto]
        if len(targets) > 1:
            self._branch(targets, op)
        else:
            self.take_way(op, targets[0])

    def take_way(self, source: Op, pc: int) -> None:
        """Leave a node for an operation; a way back into a cycle counts. Raises NodeError where it may not any more."""
        self.pc = pc
        if pc >= 0:
            target = self.program.ops[pc]
            self._count_cycle(source.id, target.id)
            self._enter_loops(source, target)

    def _enter_loops(self, source: Op, target: Op) -> None:
        """A jump into a loop starts its counters from zero; those of loops that both are in go on."""
        if self.program.back_edges:
            return
        for slot in target.loops:
            if slot not in source.loops:
                self.counters[slot] = 0

    def _count_cycle(self, source: str, target: str) -> None:
        """Count how often a cycle of edges is entered again; coming from outside starts from zero."""
        program = self.program
        if not program.back_edges:
            return
        slot = program.back_edges.get((source, target))
        self.came_back = -1 if slot is None else slot
        if slot is None:
            if target in program.slots:
                self.counters[program.slots.index(target)] = 0
            return
        self.counters[slot] += 1
        bound = program.max_iterations
        if bound and self.counters[slot] > bound:
            raise NodeError(
                self.place.public_id(target), f"entered again more often than max_iterations ({bound}) allows"
            )

    def _move(self, op: Op) -> None:
        """Pass an operation that is neither a step nor a fork. Raises NodeError where a condition failed."""
        kind = op.kind
        if kind == UNTIL:
            self._until(cast("UntilOp", op))
        elif kind == IF:
            self._choose(cast("IfOp", op))
        elif kind == LOOP:
            self.counters[cast("LoopOp", op).slot] = 0
            self.pc = op.next
        else:
            self._route(cast("RouteOp", op))

    def _until(self, op: UntilOp) -> None:
        """The end of an iteration."""
        done = self.counters[op.slot] = self.counters[op.slot] + 1
        try:
            enough = op.until is not None and op.until(self.state)
        except FAILURES as error:  # an author's function: whatever it raises is this node's failure
            raise self._condition_error(op.id, "until", error) from error
        if enough:
            self.pc = op.next
        elif op.max_iterations and done >= op.max_iterations:
            self.run.warn(
                self.place.public_id(op.id),
                f"stopped after {op.max_iterations} iterations, and its condition does not hold",
            )
            self.pc = op.next
        else:
            self.pc = op.again

    def _choose(self, op: IfOp) -> None:
        for condition, pc in op.branches:
            if condition is None or self._holds(op.id, "condition", condition):
                self.pc = pc
                return

    def _holds(self, id: str, what: str, condition: Callable[[Any], Any]) -> bool:
        try:
            return bool(condition(self.state))
        except FAILURES as error:  # an author's function: whatever it raises is this node's failure
            raise self._condition_error(id, what, error) from error

    def _condition_error(self, id: str, what: str, error: BaseException) -> NodeError:
        return NodeError(self.place.public_id(id), f"{what} raised {describe_error(error)}", kind=type(error).__name__)

    def _route(self, op: RouteOp) -> None:
        """Take the first conditional edge that holds, else all that have no condition."""
        for condition, pc in op.conditions:
            if self._holds(op.id, "a condition of its edges", condition):
                if len(op.always) > 1:
                    self.ways = (ALONE,)
                self.take_way(op, pc)
                return
        if not op.always:
            raise NodeError(self.place.public_id(op.id), f"no edge from '{op.id}' matched")
        if len(op.always) == 1:
            self.take_way(op, op.always[0])
        else:
            self._branch(op.always, op)

    def _branch(self, ways: Sequence[int], source: Op) -> None:
        """Several ways at once: this token becomes as many, which meet again."""
        from atomic.graph.groups import Group, GroupBranching

        targets = list(dict.fromkeys(ways))
        if self.group is not None:
            self.group.split(self, targets, source)
            return
        self.branching = GroupBranching(Group(self, targets, source))

    async def _fork(self, op: Op) -> Step[Any] | None:
        from atomic.graph.opening import open_fork

        if self.branching is None:
            if self.group is not None and self.group.holds(self):
                return None
            self.branching = open_fork(self, cast("ForkOp", op))
        return await self._walk_branches()

    async def _walk_branches(self) -> Step[Any] | None:
        branching = cast("Branching", self.branching)
        step = await branching.next_step()
        if step is not None:
            return step
        if waiting := branching.suspended():
            self.suspended = waiting
            return None
        branching.close_questions()
        step = await branching.join()  # if that fails, what was done stays in sight
        if self.branching is branching and not self.suspended:
            self.branching = None
        return step

    def take(self, entries: Sequence[Entry]) -> None:
        """Merge what branches did, in this order. Raises StateError; then nothing is changed but for the first ones."""
        self._state = None
        if self.borrowed:
            self.values, self.borrowed = self.values.copy(), False
        for entry in entries:
            self.spec.apply(self.values, entry.update)
        if self.trail is not None:
            self.trail.extend(entries)

    def go_behind(self, op: Op, goto: tuple[str, ...] | None = None) -> None:
        self._go(op, goto)

    def done_so_far(self) -> list[Entry]:
        """What this branch did, and what is done in the branches that it has open."""
        return [*(self.trail or ()), *(self.branching.done_so_far() if self.branching is not None else ())]

    def all_done(self) -> list[Entry]:
        """What this branch did, with all that was done in the branches that it has open, whatever their strategy."""
        return [*(self.trail or ()), *(self.branching.kept() if self.branching is not None else ())]

    def seen_state(self) -> Any:
        """The state for somebody who looks at a run that stopped: with what open branches have done."""
        if self.branching is None:
            return self.state
        values = dict(self.values)
        try:
            for entry in self.branching.done_so_far():
                self.spec.apply(values, entry.update)
        except StateError:  # why they cannot be merged is the run's error already
            return self.state
        return self.spec.build(values, self.updated)

    async def cancel(self) -> None:
        """End everything that it has started."""
        if self.branching is not None:
            await self.branching.cancel()

    # snapshots ---------------------------------------------------------------------------------------------

    def _snapshot(self, op: StepOp, outcome: Outcome, loops: tuple[int, ...]) -> None:
        """Fold what is recorded, if this is all there is: no branch is open and nobody waits."""
        pen = cast("Pen", self.run.pen)
        forced = any(signal.kind == SignalKind.CHECKPOINT for signal in outcome[2])
        if not (forced or pen.wants_snapshot) or self.place.path or self.group or self.branching or self.failure:
            return
        from atomic.graph.past import encode_snapshot

        body = encode_snapshot(self, op.id, outcome[1], loops)
        if body is not None:
            pen.snapshot(self.run.steps, body, forced=forced)
