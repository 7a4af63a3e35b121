"""How a run ended: its status, reason, message and exit code, and the line of a
workflow's file that raised an error.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import msgspec

from atomic.base.errors import AtomicError, ExitCode, did_you_mean
from atomic.base.text import local_time
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
    wake_at: float | None = None
    signals: Sequence[str] = ()  # names of the signals that the run waits for


def ending_of(result: RunResult[Any], run: str) -> Ending:
    """Return the end of a run from the result of its engine."""
    resume = f"atomic resume {run}"
    match result.status:
        case RunStatus.COMPLETED:
            return Ending("completed", "done", "", ExitCode.DONE)
        case RunStatus.FAILED if result.is_over:
            reason = "failed" if getattr(result.error, "kind", "") == "Failed" else "error"
            return Ending("failed", reason, str(result.error), ExitCode.FAILED, plain=_reason(result))
        case RunStatus.BLOCKED if result.is_over:
            return Ending("blocked", "blocked", _reason(result), ExitCode.WAITING)
        case RunStatus.FAILED:
            code = getattr(getattr(result.error, "__cause__", None), "code", "")
            reason = code if code in FAILED else "error"
            return Ending("failed", reason, str(result.error), ExitCode.FAILED, resume, plain=_reason(result))
        case RunStatus.BLOCKED:
            known = next((code for code in result.codes if code in BLOCKED), BLOCKED[0])
            why = _reason(result) or "nothing left can run"
            return Ending("blocked", known, why, ExitCode.WAITING, _with_remedy(resume, result, known))
        case RunStatus.CANCELLED:
            return stopped(Stop.CANCEL, run)
        case _:
            ending = _paused(result, run, resume)
            return msgspec.structs.replace(ending, wake_at=result.wake_at, signals=result.signals)


def _reason(result: RunResult[Any]) -> str:
    """Return why the run ended, without node ids, which only `node_ended` needs."""
    match result.error:
        case NodeError(reason=reason, path=path):
            return f"{path}: {reason}" if path else reason
        case StoppedError(reason=reason):
            return reason
        case error:
            return "" if error is None else str(error)


def stopped(stop: Stop, run: str, *, by: str = "") -> Ending:
    """Return the end of a run that was stopped, so that its engine has no result.

    `by` is what has stopped it, such as "Ctrl+C".
    """
    if stop is Stop.CANCEL:
        return Ending("cancelled", "cancelled", "cancelled", ExitCode.INTERRUPTED)
    message = f"stopped by {by}" if by else "stopped"
    return Ending("paused", "stopped", message, stop.value, f"atomic resume {run}")


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
    if not result.questions and (result.signals or result.wake_at is not None):
        return _waiting(result, run, resume)
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


def _waiting(result: RunResult[Any], run: str, resume: str) -> Ending:
    """Return the end of a run that waits for signals or a time."""
    said = [f'waits for the signal "{name}": {signal_command(run, name)}' for name in result.signals]
    if result.wake_at is None:
        return Ending("paused", "signal", "; ".join(said), ExitCode.WAITING, signal_command(run, result.signals[0]))
    said.insert(0, f"sleeps until {local_time(result.wake_at, with_zone=True)} (atomic wake continues it then)")
    return Ending("paused", "sleeping", "; ".join(said), ExitCode.WAITING, resume)


def signal_command(run: str, name: str) -> str:
    """Return the command that sends a signal."""
    from shlex import quote

    return f"atomic signal {run} {quote(name)}"


def _with_remedy(resume: str, result: RunResult[Any], code: str) -> str:
    """Return the command that resumes a run, with the flag that lifts its limit."""
    return f"{resume} {result.remedies.get(code, '')}".rstrip()


def where_raised(error: BaseException | None, file: Path | None) -> str:
    """Return the file and line of the workflow's code that raised an error, with the
    nearest name if a name was misspelt.

    Empty for an error that explains itself, and for one from other code.
    """
    if error is None or file is None or isinstance(error, AtomicError):
        return ""
    if isinstance(error, BaseExceptionGroup):
        return where_raised(error.exceptions[0], file)  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
    folder = f"{file.parent}{os.sep}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folder)]
    if not frames:
        return ""
    return f"{_nearest_name(error)}, at {_shown(frames[-1].filename)}:{frames[-1].lineno}"


def _nearest_name(error: BaseException) -> str:
    """Return `(did you mean "x"?)` for a misspelt attribute."""
    if not isinstance(error, AttributeError) or error.obj is None or not error.name:
        return ""
    known = [name for name in dir(error.obj) if not name.startswith("_")]
    return did_you_mean(error.name, known)


def _shown(path: str) -> str:
    """Return a path from the current folder or from the home folder, if it is below it."""
    for folder, prefix in ((Path.cwd(), ""), (Path.home(), "~/")):
        if Path(path).is_relative_to(folder):
            return f"{prefix}{Path(path).relative_to(folder)}"
    return path
