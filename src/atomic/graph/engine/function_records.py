"""Record the steps of a workflow function, and hand their results over in that order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.graph.engine.control import RunStatus
from atomic.graph.engine.errors import JournalError, NodeError, RunOwnedError
from atomic.graph.engine.function_ends import Phase
from atomic.graph.engine.function_history import Recorded
from atomic.graph.engine.function_step import Call
from atomic.graph.engine.function_turns import Turn
from atomic.graph.engine.function_values import shown
from atomic.graph.engine.journal import CallBody, Row, RowKind, StartedBody, StepBody, encode_row
from atomic.graph.engine.journal_writer import JournalWriter
from atomic.graph.engine.run import Run, Step, encode_update, error_body
from atomic.questions import Question

if TYPE_CHECKING:
    from atomic.graph.engine.function_run import FunctionRun

NOTHING = encode_update(None)
# Members of an Enum are slow to find in Python 3.11.
_COMPLETED = RunStatus.COMPLETED
_RUNNING = Phase.RUNNING
_STEP = RowKind.STEP
TURN = 127  # other tasks get a turn after this many steps


class RecordedRun(Run):
    """The shared data of a function's run. It records that a step has begun before other
    rows about it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.unannounced: dict[str, tuple[Call, int]] = {}  # with how many steps had begun

    async def note_part(self, step_id: str, key: str, packed: bytes) -> None:
        await self.announce(step_id)
        await super().note_part(step_id, key, packed)

    async def ask(self, question: Question, step_id: str, node_id: str, **options: Any) -> Any:
        await self.announce(step_id)
        return await super().ask(question, step_id, node_id, **options)

    async def announce(self, step_id: str, attempt: int = 1) -> None:
        """Record that a step has begun, once: its arguments tell it from others."""
        if self.writer is not None and step_id in self.unannounced:
            call, begun = self.unannounced.pop(step_id)
            await self.note_started(step_id, attempt, call.body(begun))

    async def note_started(self, step_id: str, attempt: int, call: CallBody) -> None:
        """Record that an attempt has begun."""
        if self.writer is not None:
            row = encode_row(RowKind.STARTED, StartedBody(step_id, attempt, time.time(), call))
            await self.writer.write(row, sync=False)


class Records:
    """Writes the rows of finished steps. The function gets their results in this order."""

    def __init__(self, flow: FunctionRun) -> None:
        self._flow = flow
        self._run = flow.run
        self._turn = 0

    async def deliver(
        self,
        call: Call,
        status: RunStatus,
        *,
        error: NodeError | None = None,
        raised: list[Any] | None = None,
    ) -> None:
        """Record how a step has ended. Return when the function may know it."""
        flow = self._flow
        run = self._run
        if flow.phase is not _RUNNING and flow.is_closed:
            # The run did not wait for this step any longer, and has given up its journal.
            raise asyncio.CancelledError
        if run.writer is not None:
            flow.calls.was_killed = False
            run.unannounced.pop(call.step_id, None)
            row = self._row_of(call, status, error, raised)
            try:
                is_alone = flow.calls.open == 1
                if is_alone or status is RunStatus.CANCELLED:
                    self._turn += 1
                if is_alone and status is _COMPLETED and self._turn < TURN and flow.turns.is_quiet(1):
                    run.writer.now(row)
                else:
                    await self._write(run.writer, row, status)
            except (JournalError, RunOwnedError) as failure:
                flow.break_off(failure)
                raise
            except asyncio.CancelledError:
                if not flow.is_ending and status is not RunStatus.CANCELLED:
                    self._note_dropped(call.id, call.ctx.n, call.body(flow.calls.begun, was_cancelled=True))
                raise
        if status is _COMPLETED:
            call.apply()
        if run.listening:
            self.report(call, status, encode_update(call.changes()) if status is _COMPLETED else None, error)

    async def _write(self, writer: JournalWriter, row: Row, status: RunStatus) -> None:
        """Write the row of a step. Return when it is on disk and it is its turn."""
        turns = self._flow.turns
        calls = self._flow.calls.open
        if calls == 1 or status is RunStatus.CANCELLED:
            is_next = self._turn < TURN and turns.is_quiet(calls)
            writer.now(row)
            if is_next:
                return
            self._turn = 0
            turn = turns.enter()
        else:
            turn = turns.enter()
            writer.shared += 1
            try:
                await writer.write(row)
            except BaseException:
                turns.leave(turn)
                raise
            finally:
                writer.shared -= 1
        turns.due(turn)
        try:
            if status is RunStatus.CANCELLED:
                await self._wait_for(turn)
            else:
                await turn.future
        except asyncio.CancelledError:
            turns.leave(turn)
            raise

    async def _wait_for(self, turn: Turn) -> None:
        """Wait for the turn of a cancelled step. It can be cancelled only once."""
        while not turn.future.done():
            try:
                await asyncio.wait((turn.future,))
            except asyncio.CancelledError:
                if self._flow.is_ending:
                    raise

    def _row_of(self, call: Call, status: RunStatus, error: NodeError | None, raised: list[Any] | None) -> Row:
        ctx = call.ctx
        flow = self._flow
        cancellations = call.cancellations
        if cancellations and flow.is_ending:
            cancellations = 0
        update: Any = NOTHING
        if status is _COMPLETED:  # encoded once, with the rest of the row
            update = call.changes() if call.update is None else encode_update(call.update)
        is_late = cancellations > 0 and status is not RunStatus.CANCELLED
        body = StepBody(
            "", call.id, ctx.n, status, update, ctx.attempt, call.began, perf_counter() - call.start,
            model=ctx.model, error=None if error is None else error_body(error), usage=ctx.usage,
            call=call.body(flow.calls.begun, raised, was_cancelled=is_late, cancellations=cancellations),
        )  # fmt: skip
        return encode_row(_STEP, body, step=self._run.steps if status is _COMPLETED else None)

    def note_begun(self, name: str, n: int, key: int, nth: int, given: Sequence[Any]) -> None:
        """Record that a step had begun when the process died, because the function has
        cancelled it now, before it could begin again.
        """
        run = self._run
        if run.writer is not None:
            attempts = 0 if run.history is None else run.history.attempts.get(run.step_id(name, n), 0)
            call = CallBody(key, shown(given), self._flow.calls.begun, None, nth)
            body = StartedBody(run.step_id(name, n), max(attempts, 1), time.time(), call)
            run.writer.later(encode_row(RowKind.STARTED, body))

    def note_dropped(self, recorded: Recorded) -> None:
        """Record that the function has lost the result of a finished step, because it
        cancelled the call.
        """
        begun = self._flow.calls.begun
        if recorded.is_dropped:
            self._flow.failures.note_bad(recorded.key, begun)
            return
        call = recorded.call
        body = CallBody(call.arguments, call.text, begun, None, call.nth, was_cancelled=True)
        self._note_dropped(recorded.body.node_id, recorded.body.n, body)

    def _note_dropped(self, name: str, n: int, call: CallBody) -> None:
        self._flow.failures.note_bad(f"{name}#{n}", self._flow.calls.begun)
        if self._run.writer is not None:
            body = StepBody("", name, n, RunStatus.CANCELLED, NOTHING, 1, time.time(), 0.0, call=call)
            self._run.writer.later(encode_row(RowKind.STEP, body))

    def note_patch(self, name: str, key: int) -> None:
        """Record a step without work, at once."""
        run = self._run
        if run.writer is None:
            return
        run.steps += 1
        call = CallBody(key, "", self._flow.calls.begun)
        body = StepBody("", name, 1, RunStatus.COMPLETED, NOTHING, 1, time.time(), 0.0, call=call)
        try:
            run.writer.now(encode_row(RowKind.STEP, body, step=run.steps))
        except (JournalError, RunOwnedError) as failure:
            self._flow.break_off(failure)
            raise

    def report(self, call: Call, status: RunStatus, packed: msgspec.Raw | None, error: NodeError | None) -> None:
        """Tell the host of a finished step, or of one that waits."""
        ctx = call.ctx
        update = None if packed is None else msgspec.msgpack.decode(packed)
        seconds = perf_counter() - call.start
        step = Step(
            ctx.node_id, ctx.step_id, call.flow_scope.state.state, update, status, error, seconds, ctx.attempt,
            ctx.model, tuple(ctx.events or ()),
        )  # fmt: skip
        (self._run.live_step or self._flow.put_step)(step)
