"""Run a workflow function: start it, stop it, and close its run.

The function runs in a task of its own. Its calls are in `function_calls`, their rows in
`function_records`. Concurrent results are handed over one by one, with some turns of the
event loop between them, so that a replay can repeat their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import ExitStack, aclosing
from threading import get_ident
from typing import Any, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.secret_mark import MARK
from atomic.graph.engine.active_run import RunResult
from atomic.graph.engine.attempts import as_node_error
from atomic.graph.engine.control import Failed, RunStatus
from atomic.graph.engine.errors import WorkflowChangedError
from atomic.graph.engine.function_calls import Calls
from atomic.graph.engine.function_ends import Ending, Phase, Stop, ending_of, result_of, row_of
from atomic.graph.engine.function_failures import Failures
from atomic.graph.engine.function_history import CANCELLING, RUN, FunctionHistory
from atomic.graph.engine.function_records import RecordedRun, Records
from atomic.graph.engine.function_replay import Replay
from atomic.graph.engine.function_stalls import Stalls
from atomic.graph.engine.function_state import FunctionScope, FunctionState
from atomic.graph.engine.function_turns import Turns
from atomic.graph.engine.function_values import ResultType
from atomic.graph.engine.journal import Journal, RunLog
from atomic.graph.engine.journal_writer import JournalWriter
from atomic.graph.engine.run import Scope, Step

GRACE = 10.0  # seconds for the function's `finally` blocks after a cancellation
LAST_GRACE = 1.0  # after another one


class FunctionRun:
    """One execution of a workflow function."""

    def __init__(
        self,
        name: str,
        enter: Callable[[FunctionScope], Awaitable[Any]],
        result_type: ResultType,
        run: RecordedRun,
        state: FunctionState,
        *,
        model: str | None,
    ) -> None:
        self.name = name
        self.run = run
        self.result_type = result_type
        self.scope = Scope(model=model, names=(name,))
        self.root = FunctionScope(self, "", state, (name,))
        self.failures = Failures()
        self.stalls = Stalls(self)
        self.records = Records(self)
        self.calls = Calls(self)
        self.replay: Replay | None = None
        self.turns: Turns
        self.loop: asyncio.AbstractEventLoop | None = None
        self.compensations: list[tuple[str, Callable[[], Awaitable[Any]]]] = []  # names of steps, and their calls
        self.failed_compensations: list[str] = []  # a sentence about each
        self.redacted: Callable[[bytes], bytes] = bytes  # what is recorded of data; set with the journal
        self.thread = 0  # that runs the loop
        self.phase = Phase.RUNNING
        self.stop: Stop | None = None
        self.failure: Exception | None = None  # what the function has raised
        self.refusal: WorkflowChangedError | None = None
        self.broken: AtomicError | None = None  # the journal could not be written
        self.has_compensated = False
        self.result: RunResult[Any] | None = None
        run.count_steps = lambda: self.calls.running
        self._enter = enter
        self._closing = ExitStack()  # what ends with the run
        self._task: asyncio.Task[Any] | None = None
        self._host: asyncio.Task[Any] | None = None
        self._insisting: asyncio.TimerHandle | None = None
        self._is_cancellation_recorded = False
        self._steps: asyncio.Queue[Step[Any] | None] = asyncio.Queue()
        self._warned: set[str] = set()  # steps whose secret is not recorded

    def write_to(self, log: RunLog) -> JournalWriter:
        """Record the run in this log."""
        self.redacted = log.redacted
        self.run.writer = JournalWriter(log)
        return self.run.writer

    def bind_deps(self, journal: Journal | None, closing: ExitStack) -> None:
        """Begin the deps, and own what is to be closed at the end.

        Call it last: what begins here ends with the run, so nothing may raise between.
        """
        self.run.bind_deps(journal, closing)
        self._closing = closing.pop_all()

    def restore(self, history: FunctionHistory, *, cancel: bool = False) -> None:
        """Prepare to replay what the journal has.

        With `cancel` the run is cancelled for good when that is done.
        """
        self.calls.restore(history)
        cancelled_after = history.cancelled_after
        self._is_cancellation_recorded = cancelled_after is not None
        if cancel and cancelled_after is None:
            cancelled_after = len(history.finished)
        if history.finished or cancelled_after is not None:
            self.replay = Replay(self, history.finished, cancelled_after)

    @property
    def is_ending(self) -> bool:
        """Return whether no step may start, and a cancelled one is not recorded."""
        return self.phase is not Phase.RUNNING and self.phase is not Phase.COMPENSATING

    @property
    def is_closed(self) -> bool:
        """Return whether the run is over, although a task of the function may still exist."""
        return self.phase is Phase.CLOSED or self.phase is Phase.ABANDONED

    @property
    def is_over_for_good(self) -> bool:
        """Return whether the run was cancelled for good, and has compensated."""
        return self.stop is Stop.FOR_GOOD and self.phase is not Phase.ABANDONED

    @property
    def own_tasks(self) -> tuple[asyncio.Task[Any] | None, ...]:
        """Return the task of the function, and the one that waits for its end."""
        return (self._task, self._host)

    def put_step(self, step: Step[Any]) -> None:
        """Stream a step."""
        self._steps.put_nowait(step)

    def warn_of_secret(self, step: str, what: str) -> None:
        """Report once that the function gets a text from the journal without its secret."""
        if step not in self._warned:
            self._warned.add(step)
            self.run.warn(
                step,
                f'{what} has "{MARK}" in place of a secret, which is not recorded; the resumed function gets that '
                "text. Read secrets from the environment, in the step that uses them",
            )

    def unfinished_replay(self) -> Replay | None:
        """Return the replay, None if everything recorded was handed over."""
        replay = self.replay
        if replay is not None and replay.is_over and not (replay.waits or self.turns.is_settling):
            self.replay = None
        return self.replay

    def _at_rest(self) -> None:
        """Hand over the next record: the function has done all that it can do now."""
        if self.replay is not None:
            self.replay.hand_over(at_rest=True)
            self.unfinished_replay()

    # Stop the function.

    def pause(self) -> None:
        """Cancel the function, because nothing can continue without the user."""
        self.stop = Stop.PAUSE
        self._end_task()

    def refuse(self, error: WorkflowChangedError) -> None:
        """Cancel the function, because its code has changed."""
        self.refusal = error
        self._end_task()

    def break_off(self, error: AtomicError) -> None:
        """Cancel the function: without its journal it must not do anything more."""
        self.broken = self.broken or error
        self._end_task()

    def cancel_for_good(self) -> None:
        """Cancel the function. What it has done is compensated, and nothing resumes it.

        Compensations that run already are not cancelled.
        """
        self.stop = Stop.FOR_GOOD
        if self.phase in (Phase.RUNNING, Phase.STOPPING):
            self._end_task()

    def _end_task(self) -> None:
        """Cancel what the run does now: the function, or a compensation."""
        assert self._task is not None
        self.phase = Phase.STOPPING
        if self._insisting is None:
            self._insisting = asyncio.get_running_loop().call_later(GRACE, self._insist)
        self._task.cancel()

    def _insist(self) -> None:
        """Cancel the function again, and abandon it one second later.

        Its calls are cancelled too: a TaskGroup that ends cancels its tasks only once, and
        one of them may have continued after that.
        """
        assert self._task is not None
        self._task.cancel()
        for task in self.calls.tasks:
            task.cancel()
        self._insisting = asyncio.get_running_loop().call_later(LAST_GRACE, self._abandon)

    def _abandon(self) -> None:
        self.phase = Phase.ABANDONED
        self._steps.put_nowait(None)

    def _stop_insisting(self) -> None:
        if self._insisting is not None:
            self._insisting.cancel()
            self._insisting = None

    async def _stop(self, task: asyncio.Task[Any]) -> None:
        """End the function because the caller has cancelled the run."""
        if not task.done():
            if getattr(self.run.deps, "cancels_for_good", False):
                self.cancel_for_good()
            else:
                self._end_task()
        while not task.done() and self.phase is not Phase.ABANDONED:
            await self._steps.get()
        await self._end_callers()

    async def _end_callers(self) -> None:
        """Cancel steps that the function has started and not awaited."""
        left = {task for task in self.calls.tasks if task is not asyncio.current_task() and task is not self._task}
        if not left:
            return
        if not self.is_closed:
            self.phase = Phase.LEFT
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=GRACE)

    # From the start to the end.

    async def to_end(self) -> RunResult[Any]:
        async with aclosing(self.steps()) as steps:
            async for _ in steps:
                pass
        return cast("RunResult[Any]", self.result)

    async def steps(self) -> AsyncGenerator[Step[Any], None]:
        """Yield the finished steps if the run is streamed.

        `result` is set at the end. Raises WorkflowChangedError.
        """
        if self.result is not None:  # the run had ended before
            try:
                await self.run.end_deps(self.result.status)
            finally:
                self._closing.close()
            return
        self._host = asyncio.current_task()
        self.loop = asyncio.get_running_loop()
        self.thread = get_ident()
        self.turns = Turns(self.loop, self._at_rest, self.run.writer)
        task = self._task = self.loop.create_task(self._body(), name=f"workflow-{self.name}")
        task.add_done_callback(self._has_ended)
        if self.replay is not None:
            self.stalls.watch()
        try:
            while (step := await self._steps.get()) is not None:
                yield step
            await self._end_callers()
        except (asyncio.CancelledError, GeneratorExit):
            try:
                await self._stop(task)
            finally:
                ending = Ending(RunStatus.CANCELLED, is_over=self.is_over_for_good and task.done())
                await self._end(ending)
            raise
        try:
            ending = ending_of(self, task)
        except AtomicError:  # refused, or the journal is broken
            await self._leave_unchanged()
            raise
        await self._end(ending)

    def _has_ended(self, task: asyncio.Task[Any]) -> None:
        if not task.cancelled():
            task.exception()  # looked at, so that asyncio does not report it: the run may be cancelled
        self._steps.put_nowait(None)

    async def _body(self) -> Any:
        """Run the function, and what compensates for it if it failed."""
        value: Any = None
        failure: BaseException | None = None
        history = self.run.history
        if history is not None and MARK in repr(history.start.input):
            self.warn_of_secret(self.name, f"an argument of {self.name}")
        try:
            value = await self._enter(self.root)
        except (asyncio.CancelledError, Exception) as error:  # the author's function may raise anything
            failure = error
        except SystemExit as error:  # asyncio would end the program, without the end of the run
            failure = as_node_error(self.name, error)
        if self.replay is not None and self.replay.reach_cancellation():
            self.stop = Stop.FOR_GOOD
        is_for_good = self.is_over_for_good
        if not is_for_good and (self.phase is not Phase.RUNNING or isinstance(failure, asyncio.CancelledError)):
            if failure is not None:
                raise failure
            return value
        self.phase = Phase.LEFT
        self.failure = failure if isinstance(failure, Exception) else None
        self._stop_insisting()
        if is_for_good:
            task = cast("asyncio.Task[Any]", asyncio.current_task())
            while task.cancelling():
                task.uncancel()
            await self._end_callers()
            await self._note_cancelling()
            failure = failure or asyncio.CancelledError()
        if failure is not None or isinstance(value, Failed):
            await self._end_callers()
            self.phase = Phase.COMPENSATING
            await self._compensate()
        if self.replay is not None:
            self.replay.check_end()
        if failure is not None:
            raise failure
        return value

    async def _note_cancelling(self) -> None:
        """Record the cancellation, so that a kill between compensations does not undo it."""
        if not self._is_cancellation_recorded and self.run.writer is not None:
            await self.run.note_part(f"{self.run.execution_id}:{RUN}", CANCELLING, msgspec.msgpack.encode(True))

    async def _compensate(self) -> None:
        """Run the compensations in reverse order. One that fails does not stop the others."""
        while self.compensations:
            name, compensation = self.compensations.pop()
            try:
                await compensation()
            except Exception as error:  # the author's function may raise anything
                reason = as_node_error(self.name, error).reason
                self.run.warn(self.name, f"the compensation '{name}' failed: {reason}")
                self.failed_compensations.append(f"the compensation '{name}' failed too: {reason}")
            self.has_compensated = True

    async def _leave_unchanged(self) -> None:
        """Give up the run and leave it as it was."""
        self._finish()
        if self.run.writer is not None:
            self.run.writer.discard()
        try:
            await self.run.end_deps(None)
        finally:
            self._closing.close()

    async def _end(self, ending: Ending) -> None:
        """End the deps, record the end, and set the result."""
        self._finish()
        try:
            await self.run.end_deps(ending.status)
        finally:
            try:
                if self.run.writer is not None:
                    self.run.writer.now(row_of(ending))
            finally:
                self._closing.close()
            self.result = result_of(self, ending)

    def _finish(self) -> None:
        if self.phase is not Phase.ABANDONED:
            self.phase = Phase.CLOSED
        self._stop_insisting()
