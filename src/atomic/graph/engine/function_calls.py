"""The calls of steps: each gets a number, runs or finds its record, and returns its result.

A step runs where the function calls it, and is recorded before the function gets the
result.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import current_task
from collections.abc import Sequence
from threading import get_ident
from time import perf_counter
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.secret_mark import MARK
from atomic.graph.engine.attempts import (
    as_node_error,
    next_delay,
    note_attempt,
    one_attempt,
    sort_raised,
)
from atomic.graph.engine.context import StepContext
from atomic.graph.engine.control import RunStatus, Suspend, status_of
from atomic.graph.engine.errors import StepError, WorkflowChangedError
from atomic.graph.engine.function_ends import Phase
from atomic.graph.engine.function_history import FunctionHistory, Recorded, packed_result
from atomic.graph.engine.function_records import NOTHING, TURN
from atomic.graph.engine.function_state import FunctionScope
from atomic.graph.engine.function_step import CURRENT, Call, StateUpdate, StepPolicy, Work
from atomic.graph.engine.function_values import (
    as_step_error,
    hash_of,
    made_again,
    pack_arguments,
    raised_arguments,
    shown,
)
from atomic.graph.engine.history import RecordedAnswer
from atomic.graph.engine.journal import step_id_of

if TYPE_CHECKING:
    from atomic.graph.engine.function_run import FunctionRun


_MARK = MARK.encode()
_RUNNING = Phase.RUNNING  # a member of an Enum is slow to find in Python 3.11
_COMPLETED = RunStatus.COMPLETED


class Numbers:
    """The numbers of steps: each name counts its own, and a number that a record has is not
    used again.
    """

    def __init__(self) -> None:
        self._last: dict[str, int] = {}  # by name
        self._same_calls: dict[tuple[str, int], int] = {}  # by name and arguments
        self._used: dict[str, set[int]] = {}
        self._known: dict[tuple[str, int, int], int] = {}  # of steps that had begun
        self._answers: dict[tuple[str, int, int], RecordedAnswer] = {}  # to these, which have not received them

    def restore(self, history: FunctionHistory) -> None:
        """Know the numbers that the journal has."""
        for recorded in history.finished:
            self._used.setdefault(recorded.body.node_id, set()).add(recorded.body.n)
        for (name, _, _), n in history.numbers.items():
            self._used.setdefault(name, set()).add(n)
        self._known = history.numbers
        for call, n in self._known.items():
            for answer in history.answers_of(step_id_of(history.start.execution_id, call[0], n))[:1]:
                self._answers[call] = answer

    def missed_answer(self, name: str, key: int, nth: int) -> RecordedAnswer | None:
        """Return an answer to a step of that name that began with other arguments, if the
        function has not called it again.
        """
        if not self._answers or (name, key, nth) in self._known:
            return None
        return next((answer for call, answer in self._answers.items() if call[0] == name), None)

    def next(self, name: str) -> int:
        n = self._last[name] = self._last.get(name, 0) + 1
        return n

    def nth(self, name: str, key: int) -> int:
        """Return how many calls with that name and these arguments have begun, with this one."""
        call = (name, key)
        n = self._same_calls[call] = self._same_calls.get(call, 0) + 1
        return n

    @property
    def has_recorded(self) -> bool:
        return bool(self._used)

    def last(self, name: str) -> int:
        return self._last[name]

    def free(self, name: str, key: int, nth: int, n: int) -> int:
        """Return the number of a step that had begun when the process died, else one from n
        on that no record has.
        """
        known = self._known.pop((name, key, nth), None)
        self._answers.pop((name, key, nth), None)
        if known is not None:
            return known
        used = self._used.setdefault(name, set())
        while n in used:
            n += 1
        used.add(n)
        return n


class Calls:
    """The calls of steps in one run."""

    def __init__(self, flow: FunctionRun) -> None:
        self.begun = 0  # steps that have begun
        self.open = 0  # of these, the ones whose result was not handed over yet
        self.running = 0  # of these, the ones whose work runs now
        self.tasks: set[asyncio.Task[Any]] = set()  # that wait for an open call
        self.pauses: list[Suspend] = []  # of steps that cannot continue
        self.was_killed = False  # what waits at the end of the replay had begun
        self._flow = flow
        self._run = flow.run
        self._stalls = flow.stalls
        self._numbers = Numbers()
        self._turn = 0
        self._patches: dict[str, bool] = {}  # by the name of the step

    def restore(self, history: FunctionHistory) -> None:
        """Prepare to replay what the journal has."""
        self._numbers.restore(history)
        self.was_killed = history.ended is None and (history.has_rows or history.start.forked_from is None)

    async def call(
        self, scope: FunctionScope, name: str, arguments: Sequence[Any], work: Work, policy: StepPolicy
    ) -> Any:
        """Run a step of the function, or return its recorded result."""
        flow = self._flow
        task: asyncio.Task[Any] | None = current_task(flow.loop)
        if task is None or get_ident() != flow.thread:  # a system call less than to ask for the running loop
            raise self._misplaced(name)
        if flow.phase is not _RUNNING:
            await self._check_phase(name)
        packed = pack_arguments(policy.owner, arguments)
        n = self._numbers.next(name)
        self.begun += 1
        self.open += 1
        self._stalls.progress += 1
        self.tasks.add(task)
        try:
            if self._run.writer is None:
                return await self._begin(Call(flow, scope, name, 0, 1, arguments, work, policy, task), n)
            redacted = flow.redacted(packed)
            if redacted != packed:  # what is shown of them is cut, and the rest of a secret could not be recognized
                arguments = msgspec.msgpack.decode(redacted)
            key = hash_of(redacted)
            nth = self._numbers.nth(name, key)
            had_begun = self.was_killed
            replay = flow.replay and flow.unfinished_replay()
            if replay is not None:
                recorded = replay.take_next(name, key, nth) or await replay.meet(name, key, nth, arguments)
                if recorded is not None:
                    return self._replayed(scope, recorded, policy)
                flow.unfinished_replay()
            if self._numbers.has_recorded:
                if self._numbers.missed_answer(name, key, nth) is not None:
                    await self._check_answers(name, key, nth, arguments)
                n = self._numbers.free(name, key, nth, n)
            call = Call(flow, scope, name, key, nth, arguments, work, policy, task)
            return await self._begin(call, n, had_begun=had_begun)
        finally:
            self.open -= 1
            self._stalls.progress += 1
            self.tasks.discard(task)
            if self.open:
                self._stalls.watch()

    async def _check_answers(self, name: str, key: int, nth: int, arguments: Sequence[Any]) -> None:
        """Refuse the resume if this call stands where another one has an answer, which
        would be lost.
        """
        await self._flow.turns.rest()  # other tasks may make that call now
        missed = self._numbers.missed_answer(name, key, nth)
        if missed is None:
            return
        asked = missed.question.text
        self._flow.refuse(
            WorkflowChangedError(
                f"The code has changed since the run was recorded: {name} asked {asked!r}, which has the answer "
                f"{missed.answer!r}, and is now {_shown_call(name, arguments)}. Resume with the old code. To ask "
                'the new text too, give it an id of its own: flow.ask(…, id="NAME")'
            )
        )
        await asyncio.get_running_loop().create_future()  # until the run cancels it

    async def _check_phase(self, name: str) -> None:
        """Raise what a call gets that comes after the run, or while it ends."""
        await asyncio.sleep(0)  # a function that calls steps again and again must not stop the loop
        if self._flow.is_closed:
            raise self._misplaced(name)
        if self._flow.is_ending:
            raise asyncio.CancelledError

    def _misplaced(self, name: str) -> AtomicError:
        workflow = self._flow.name
        if self._flow.is_closed:
            return AtomicError(
                f"{name} was called after the workflow {workflow} had ended; await the task that calls it"
            )
        return AtomicError(
            f"{name} was called in another event loop than that of the workflow {workflow}; call it in the workflow"
        )

    def _replayed(self, scope: FunctionScope, recorded: Recorded, policy: StepPolicy) -> Any:
        """Return a recorded result, or raise a recorded failure."""
        body = recorded.body
        if body.status == RunStatus.COMPLETED:
            self._run.steps = recorded.step or self._run.steps
            name = body.node_id[len(scope.prefix) :]
            packed = packed_result(body, name)
            if packed is None:
                scope.state.apply(scope.state.spec.decode_update(body.update), body.started + body.seconds)
                return None
            scope.state.add_output(name, packed, body.started + body.seconds)
            if _MARK in bytes(packed):
                self._flow.warn_of_secret(body.node_id, f"the recorded result of {body.node_id}")
            return policy.result.read(packed)
        kind = "" if body.error is None else body.error.kind
        reason = "" if body.error is None else body.error.reason
        error = made_again(kind, recorded.call.raised, policy.namespace) or StepError(body.node_id, kind, reason)
        self._flow.failures.note(
            body.node_id, recorded.key, self.begun, error, is_consequence=recorded.call.was_cancelled
        )
        raise error

    async def _begin(self, call: Call, n: int, *, had_begun: bool = False) -> Any:
        """Run a step, record it, and return its result when it is its turn."""
        run = self._run
        attempts = int(had_begun)
        if run.history is not None:
            attempts = max(attempts, run.history.attempts.get(run.step_id(call.id, n), 0))
        ctx = call.ctx = StepContext(call, call, n, attempts + 1)
        is_watched = run.writer is not None or run.listening
        if is_watched:
            if run.writer is not None:
                call.step_id = step_id_of(run.execution_id, call.id, n)
                run.unannounced[call.step_id] = (call, self.begun)
                if attempts:
                    await run.announce(call.step_id, ctx.attempt)
            run.report_started(ctx)
            call.began = time.time()
            call.start = perf_counter()
        policy = call.policy
        variable = CURRENT.set(ctx)
        self.running += 1
        try:
            pause = None if run.pause is None else run.pause()
            if pause is not None:
                raise pause
            if policy.retry is None and policy.timeout is None:
                value = await call.work(ctx)
                if ctx.held is not None:
                    await ctx.settle()
            else:
                value = await self._attempts(call)
            if type(value) is StateUpdate:
                call.update = value.update
                value = None
            elif policy.result.is_exact(value):
                call.output = value
            else:
                value, call.output = policy.result.convert(value)
        except BaseException as error:
            CURRENT.reset(variable)
            self.running -= 1
            await self._end_step(ctx)
            await self._raised(call, error)
        CURRENT.reset(variable)
        self.running -= 1
        if ctx.programs is not None:
            await self._end_step(ctx)
        ctx.over = True
        run.steps += 1
        if is_watched:
            await self._flow.records.deliver(call, _COMPLETED)
        else:
            call.apply()
            self._turn += 1
            if self._turn >= TURN:
                self._turn = 0
                await asyncio.sleep(0)
        return value

    async def _end_step(self, ctx: StepContext) -> None:
        """Stop what a step has left running."""
        ctx.over = True
        if ctx.programs is not None:
            await ctx.end_programs()

    async def _attempts(self, call: Call) -> Any:
        """Run a step as often as its policy allows. Raise what the last attempt raised."""
        run = self._run
        ctx = call.ctx
        policy = call.policy
        failed = 0
        while True:
            try:
                return await one_attempt(call.work, policy.timeout, ctx)
            except BaseException as raised:  # a step may raise anything; pauses and cancellations are raised again
                _, failure = self._classify(call, raised)
                if not isinstance(failure, Exception):
                    raise
                failed += 1
                delay = next_delay(policy.retry, failed, failure)
                if delay is None:
                    raise
                error = as_node_error(ctx.node_id, failure)
            await run.announce(ctx.step_id, ctx.attempt)
            await note_attempt(call, ctx, error)
            await asyncio.sleep(delay)
            ctx.attempt += 1
            await run.note_started(ctx.step_id, ctx.attempt, call.body(self.begun))
            run.report_started(ctx)

    def _classify(self, call: Call, error: BaseException) -> tuple[list[Suspend], BaseException | None]:
        """Split what a step raised into its pauses and its failure. Raise a cancellation
        of its task.
        """
        pauses, failure = sort_raised(error)
        if failure is None:
            pauses, failure = call.ctx.pauses(pauses), call.ctx.refusal
        if isinstance(failure, asyncio.CancelledError) and call.was_cancelled:
            raise failure
        return pauses, failure

    async def _raised(self, call: Call, error: BaseException) -> NoReturn:
        """Pause, record a failure or a cancellation, and raise."""
        try:
            pauses, failure = self._classify(call, error)
        except asyncio.CancelledError:
            await self._cancelled(call)
            raise
        if failure is None:
            await self._hold(call, pauses)
        ctx = call.ctx
        failed = as_node_error(ctx.node_id, failure)
        again = raised_arguments(failure, call.policy.namespace)
        raised = failure if again is not None else as_step_error(ctx.node_id, failure)
        is_consequence = call.was_cancelled
        await self._flow.records.deliver(call, RunStatus.FAILED, error=failed, raised=again)
        self._flow.failures.note(
            ctx.node_id, f"{ctx.node_id}#{ctx.n}", self.begun, raised, is_consequence=is_consequence
        )
        raise raised

    async def _cancelled(self, call: Call) -> None:
        """Record that the function itself cancelled a step."""
        if not self._flow.is_ending:
            self._run.close_questions(call.ctx.step_id)
            await self._flow.records.deliver(call, RunStatus.CANCELLED)
            self._flow.failures.note_bad(f"{call.id}#{call.ctx.n}", self.begun)

    async def _hold(self, call: Call, pauses: Sequence[Suspend]) -> NoReturn:
        """Keep a step that cannot continue until the run pauses, or the function cancels it."""
        for pause in pauses:
            pause.node_id = pause.node_id or call.ctx.node_id
        if self._run.listening:
            self._flow.records.report(call, status_of(pauses), NOTHING, None)
        self.pauses += pauses
        self._stalls.progress += 1
        self._stalls.watch()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            if not self._flow.is_ending:
                self.pauses = [pause for pause in self.pauses if pause not in pauses]
                await self._cancelled(call)
            raise
        raise AssertionError("a future that nobody sets")

    def note_begun(self, name: str, key: int, nth: int, given: Sequence[Any]) -> None:
        """Record that a step had begun when the process died, because the function has
        cancelled it now, before it could begin again.
        """
        if self.was_killed and not self._flow.is_ending:
            n = self._numbers.free(name, key, nth, self._numbers.last(name))
            self._flow.records.note_begun(name, n, key, nth, given)

    def patched(self, scope: FunctionScope, name: str, policy: StepPolicy) -> bool:
        """Return whether the run takes the new way at a change of the code.

        A step without work, which is recorded at once.
        """
        name = f"{scope.prefix}{name}"
        if name in self._patches:
            return self._patches[name]
        flow = self._flow
        key = hash_of(pack_arguments(policy.owner, []))
        known = None if flow.replay is None else flow.replay.patched(name, key)
        if known is None and not flow.is_ending:
            flow.records.note_patch(name, key)
        self._patches[name] = known is not False
        return self._patches[name]


def _shown_call(name: str, arguments: Sequence[Any]) -> str:
    """Return a call for a message: of a question its text."""
    match arguments:
        case [{"text": str(text)}, *_]:
            return repr(text)
        case _:
            return f"{name}({shown(arguments)})"
