"""The journal of a function workflow: its finished steps, in the recorded order."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from atomic.graph.engine.control import RunStatus
from atomic.graph.engine.errors import JournalError
from atomic.graph.engine.history import RunHistory
from atomic.graph.engine.journal import (
    CallBody,
    EndedBody,
    History,
    PartBody,
    Row,
    RowKind,
    StartedBody,
    StepBody,
    decode_body,
)

_decode_fields = msgspec.msgpack.Decoder(dict[str, msgspec.Raw]).decode

CANCELLING = "cancelling"  # the part that a run records when it is cancelled for good
RUN = "run#0"  # the key of that part's step, which is no step of the function


class Recorded(NamedTuple):
    """A finished step: its number in the run, and its record.

    The function has lost the result of a dropped one: it cancelled the call when the
    step had already finished.
    """

    step: int | None
    body: StepBody
    call: CallBody
    is_dropped: bool = False

    @property
    def described(self) -> str:
        return f"{self.body.node_id}({self.call.text})"

    @property
    def cancellations(self) -> int:
        """Return how often the function cancelled the call before its step was over."""
        was_cancelled = self.call.was_cancelled or self.body.status == RunStatus.CANCELLED
        return max(self.call.cancellations, 1) if was_cancelled else 0

    @property
    def key(self) -> str:
        return f"{self.body.node_id}#{self.body.n}"


class FunctionHistory(RunHistory):
    """The journal of a function workflow.

    Failures that ended the run, and cancellations that they caused, are no finished
    steps: a resume runs those steps again.
    """

    def __init__(self, history: History) -> None:
        self.finished: list[Recorded] = []  # in the order in which the function got the results
        # Numbers of steps that began, by name, arguments and how many such calls began before.
        self.numbers: dict[tuple[str, int, int], int] = {}
        self.cancelled_after: int | None = None  # how many finished steps came before the cancellation for good
        self.has_rows = bool(history.rows)
        super().__init__(history)

    def read(self, row: Row) -> None:
        kind = row.kind
        if kind == RowKind.STEP:
            self._read_function_step(row)
            return
        if kind == RowKind.STARTED:
            started = decode_body(row, StartedBody)
            if started.call is not None:
                name, _, n = started.step_id.rpartition(":")[2].rpartition("#")
                self.numbers[name, started.call.arguments, started.call.nth] = int(n)
        elif kind == RowKind.UPDATED:
            raise JournalError("A function workflow has no state that an update could change; fork it without update=")
        elif kind == RowKind.PART:
            part = decode_body(row, PartBody)
            if part.key == CANCELLING and part.step_id.endswith(f":{RUN}") and self.cancelled_after is None:
                self.cancelled_after = len(self.finished)
        elif kind == RowKind.ENDED:
            self._run_again(decode_body(row, EndedBody).again or ())
        super().read(row)

    def _read_function_step(self, row: Row) -> None:
        body = decode_body(row, StepBody)
        if body.scope:  # of a graph that a step has run
            super().read(row)
            return
        call = body.call
        if call is None:
            raise JournalError("A graph has recorded this run; resume it with the graph")
        updated = body.started + body.seconds
        if updated > self.updated:
            self.updated = updated
        if body.status == RunStatus.COMPLETED:
            self.steps = row.step or self.steps
            self.counted += 1
        if self.asked or self.attempts or self._parts or self._given or body.status != RunStatus.COMPLETED:
            self._forget_step(body)
        if body.status == RunStatus.CANCELLED and call.was_cancelled:
            self._drop(body)
        else:
            self.finished.append(Recorded(row.step, body, call))

    def _forget_step(self, body: StepBody) -> None:
        """Forget what was kept for the case that the step had to continue."""
        step_id = f"{self.start.execution_id}:{body.node_id}#{body.n}"
        if body.status == RunStatus.COMPLETED:
            self.forget_answers(step_id)
        else:
            self.attempts[step_id] = max(self.attempts.get(step_id, 0), body.attempt)
        self.forget_parts(step_id)
        self.asked = {key: asked for key, asked in self.asked.items() if asked.step_id != step_id}

    def _drop(self, body: StepBody) -> None:
        """Note that the function cancelled a call when its step had already finished."""
        for index in range(len(self.finished) - 1, -1, -1):
            recorded = self.finished[index]
            if recorded.body.n == body.n and recorded.body.node_id == body.node_id:
                self.finished[index] = recorded._replace(is_dropped=True)
                return

    def _run_again(self, keys: list[str] | tuple[()]) -> None:
        if not keys:
            return
        again = set(keys)
        kept: list[Recorded] = []
        for recorded in self.finished:
            if recorded.key not in again:
                kept.append(recorded)
            elif recorded.body.status == RunStatus.COMPLETED:
                kept.append(recorded._replace(is_dropped=False))
            else:
                call = recorded.call
                self.numbers[recorded.body.node_id, call.arguments, call.nth] = recorded.body.n
        self.finished = kept


def history_of(recorded: History) -> RunHistory:
    """Return the index of a run's rows, whether a graph or a function has recorded it."""
    return RunHistory(recorded) if recorded.start.input is None else FunctionHistory(recorded)


def packed_result(body: StepBody, name: str) -> msgspec.Raw | None:
    """Return the encoded result of a finished step, None if it changed the state."""
    fields = _decode_fields(body.update)
    return _decode_fields(fields["outputs"]).get(name) if "outputs" in fields else None
