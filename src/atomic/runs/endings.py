"""How a run ended: its status, reason, message and exit code."""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

from atomic.base.errors import ExitCode
from atomic.graph import NodeError, RunResult, RunStatus
from atomic.graph.engine.errors import StoppedError
from atomic.sessions.model import SessionStatus

SAVED_END = (SessionStatus.COMPLETED, SessionStatus.CHAT)  # statuses with nothing left to do
CAPS = ("max_cost", "max_tokens", "max_time", "max_iterations")
BLOCKED = (
    "nothing_runnable",
    "same_blocker",
    "review_rounds",
    "not_approved",
    "stuck",
    "check_red",
    "moving_tree",
    "workspace",
)
FAILED = ("no_plan",)


class Stop(Enum):
    """Why a run is stopped. The value is the exit code, negative for a cancellation."""

    INTERRUPT = ExitCode.INTERRUPTED  # Ctrl+C, or `atomic stop`
    TERMINATE = ExitCode.TERMINATED
    HANG_UP = ExitCode.HUNG_UP
    CANCEL = -ExitCode.INTERRUPTED  # `atomic stop --cancel`


class Ending(msgspec.Struct, frozen=True):
    """The fields of RunEnded."""

    status: str
    reason: str
    message: str
    exit_code: int
    resume: str = ""
    verified: bool | None = None
    plain: str = ""  # `message` without node ids, if it has any


def ending_of(result: RunResult[Any], run: str) -> Ending:
    """Return the end of a run from the result of its engine."""
    resume = f"atomic resume {run}"
    match result.status:
        case RunStatus.COMPLETED:
            return Ending("completed", "done", "", ExitCode.DONE)
        case RunStatus.FAILED:
            code = getattr(getattr(result.error, "__cause__", None), "code", "")
            reason = code if code in FAILED else "error"
            return Ending("failed", reason, str(result.error), ExitCode.FAILED, resume, plain=_reason(result))
        case RunStatus.BLOCKED:
            known = next((code for code in result.codes if code in BLOCKED), BLOCKED[0])
            why = _reason(result) or "nothing left can run"
            return Ending("blocked", known, why, ExitCode.WAITING, _with_remedy(resume, result, known))
        case _:
            return _paused(result, run, resume)


def _reason(result: RunResult[Any]) -> str:
    """Return why the run ended, without node ids, which only `node_ended` needs."""
    match result.error:
        case NodeError(reason=reason, path=path):
            return f"{path}: {reason}" if path else reason
        case StoppedError(reason=reason):
            return reason
        case error:
            return "" if error is None else str(error)


def stopped(stop: Stop, run: str) -> Ending:
    """Return the end of a run that was stopped, so that its engine has no result."""
    if stop is Stop.CANCEL:
        return Ending("cancelled", "cancelled", "cancelled", ExitCode.INTERRUPTED)
    return Ending("paused", "stopped", "stopped", stop.value, f"atomic resume {run}")


def capped(cap: str, why: str, resume: str) -> Ending:
    """Return the end of a run that has reached a cap; `resume` raises the cap."""
    return Ending("paused", cap, why, ExitCode.CAP_REACHED, resume)


def _paused(result: RunResult[Any], run: str, resume: str) -> Ending:
    why = _reason(result)
    for code in result.codes:
        if code in CAPS:
            return capped(code, why, _with_remedy(resume, result, code))
    if "provider_limit" in result.codes:
        return Ending("paused", "provider_limit", why, ExitCode.LIMITED, _with_remedy(resume, result, "provider_limit"))
    if not result.questions:
        return Ending("paused", next(iter(result.codes), "question"), why, ExitCode.WAITING, resume)
    from shlex import quote  # an id such as each[0]-1 is a pattern to a shell

    first = result.questions[0]
    name = f" {quote(first.id)}" if len(result.questions) > 1 else ""
    more = f" (and {len(result.questions) - 1} more)" if len(result.questions) > 1 else ""
    answer = f'atomic answer {run}{name} "ANSWER"'
    return Ending(
        "paused", "question", f'waits for an answer to "{first.text}"{more}: {answer}', ExitCode.WAITING, answer
    )


def _with_remedy(resume: str, result: RunResult[Any], code: str) -> str:
    """Return the command that resumes a run, with the flag that lifts its limit."""
    return f"{resume} {result.remedies.get(code, '')}".rstrip()
