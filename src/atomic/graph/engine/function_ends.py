"""How the run of a workflow function ends: its phases, its end, and the record of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.active_run import RunResult, reason_of, signals_of, wake_at_of
from atomic.graph.engine.attempts import as_node_error
from atomic.graph.engine.control import Blocked, Failed, RunStatus, Suspend, status_of
from atomic.graph.engine.errors import NodeError, StoppedError, WorkflowChangedError
from atomic.graph.engine.function_values import ResultType
from atomic.graph.engine.journal import EndedBody, Row, RowKind, encode_row
from atomic.graph.engine.run import error_body

if TYPE_CHECKING:
    from atomic.graph.engine.function_run import FunctionRun


class Phase(Enum):
    """Where a run is. Steps start while it is `RUNNING` or `COMPENSATING`."""

    RUNNING = "the function runs"
    STOPPING = "the function, or a compensation, was cancelled"
    LEFT = "the function has returned or raised, and what it has left running is cancelled"
    COMPENSATING = "the compensations run"
    ABANDONED = "the function has not ended, and the run does not wait for it any longer"
    CLOSED = "the end is recorded"


class Stop(Enum):
    """Why the run itself has cancelled the function."""

    PAUSE = "nothing can continue without the user"
    FOR_GOOD = "the run is cancelled for good"


class Ending(NamedTuple):
    """How a run ends. `result` is the value, and its encoded form."""

    status: RunStatus
    error: Exception | None = None
    result: tuple[Any, bytes] | None = None
    is_over: bool = False
    again: Sequence[str] = ()  # steps that a resume runs again
    pauses: Sequence[Suspend] = ()


def ending_of(flow: FunctionRun, task: asyncio.Task[Any]) -> Ending:
    """Return how the function that runs in this task has ended, and which compensations
    have failed.

    Raise WorkflowChangedError, or the error of the journal.
    """
    ending = _ending_of(flow, task)
    error = ending.error
    if not flow.failed_compensations or not isinstance(error, NodeError):
        return ending
    reason = "; ".join((error.reason, *flow.failed_compensations))
    told = NodeError(error.node_id, reason, kind=error.kind, path=error.path)
    told.__cause__ = error.__cause__
    return ending._replace(error=told)


def _ending_of(flow: FunctionRun, task: asyncio.Task[Any]) -> Ending:
    failure = task.exception() if task.done() and not task.cancelled() else None
    if flow.broken is not None:
        raise flow.broken
    if flow.refusal is not None:
        raise flow.refusal
    if isinstance(failure, WorkflowChangedError):
        raise failure
    if flow.stop is Stop.FOR_GOOD:
        return Ending(RunStatus.CANCELLED, is_over=flow.is_over_for_good)
    if flow.stop is Stop.PAUSE:
        pauses = flow.calls.pauses
        status = status_of(pauses)
        return Ending(status, reason_of(pauses, status), pauses=pauses)
    is_over = flow.has_compensated
    if task.cancelled():
        error = NodeError(flow.name, "the workflow was cancelled, but not by the run", kind="CancelledError")
        return Ending(RunStatus.FAILED, error, is_over=is_over)
    if failure is not None:
        again = [] if is_over else flow.failures.to_run_again(flow.calls.begun, failure)
        return Ending(RunStatus.FAILED, flow.failures.as_node_error(flow.name, failure), is_over=is_over, again=again)
    try:
        return _ending_with(flow.name, flow.result_type, task.result())
    except AtomicError as error:
        return Ending(RunStatus.FAILED, as_node_error(flow.name, error))


def _ending_with(workflow: str, result_type: ResultType, value: Any) -> Ending:
    """Return the end of a function that has returned this. Raise AtomicError."""
    if isinstance(value, Failed):
        error = NodeError(workflow, value.reason, kind="Failed")
        return Ending(RunStatus.FAILED, error, _plain_result(value), is_over=True)
    if isinstance(value, Blocked):
        blocked = StoppedError(((workflow, value.reason),))
        return Ending(RunStatus.BLOCKED, blocked, _plain_result(value), is_over=True)
    return Ending(RunStatus.COMPLETED, result=result_type.convert(value))


def _plain_result(end: Failed | Blocked) -> tuple[Any, bytes]:
    packed = ResultType(Any, type(end).__name__).pack(end.value)
    return msgspec.msgpack.decode(packed), packed


def row_of(ending: Ending) -> Row:
    """Return the record of an end."""
    error = ending.error
    reason = "" if error is None else str(error)
    failure = error_body(error) if isinstance(error, NodeError) else None
    packed = None if ending.result is None else msgspec.Raw(ending.result[1])
    body = EndedBody(
        ending.status, time.time(), reason, failure, None, packed, ending.is_over, wake_at_of(ending.pauses),
        again=list(ending.again) or None,
    )  # fmt: skip
    return encode_row(RowKind.ENDED, body)


def result_of(flow: FunctionRun, ending: Ending) -> RunResult[Any]:
    """Return the result of a run that ends like this."""
    pauses = ending.pauses
    return RunResult(
        flow.root.state.state,
        ending.status,
        ending.error,
        flow.run.steps,
        [pause.question for pause in pauses if pause.question is not None],
        flow.run.execution_id,
        tuple(flow.run.warnings),
        tuple(pause.code for pause in pauses if pause.code),
        {pause.code: pause.remedy for pause in pauses if pause.remedy},
        None if ending.result is None else ending.result[0],
        signals_of(pauses),
        wake_at_of(pauses),
        is_over=ending.is_over,
    )
