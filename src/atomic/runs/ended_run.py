"""A run that is over: completed, or ended for good. A resume only reports its end again.

That needs neither the workflow's code, which may no longer be trusted, nor an agent.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Self

from atomic.base.errors import ExitCode
from atomic.graph import JournalError, RunNotFoundError, RunStatus
from atomic.runs.endings import SAVED_END, Stop
from atomic.runs.events import RunEnded, RunStarted, WorkflowEvent
from atomic.runs.results import end_fields, kept_result
from atomic.sessions.model import SessionStatus
from atomic.sessions.store import Session

if TYPE_CHECKING:
    from atomic.graph.engine.journal import EndedBody

_EXIT_CODES = {SessionStatus.FAILED: ExitCode.FAILED, SessionStatus.BLOCKED: ExitCode.WAITING}


class EndedRun(AsyncIterator[WorkflowEvent]):
    """The events of a resume of a run that is over."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._events = iter(repeated_end(session))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WorkflowEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration

    def stop(self, stop: Stop = Stop.INTERRUPT, *, by: str = "") -> None:
        """Do nothing: nothing runs."""


def is_over(session: Session) -> bool:
    """Return whether `session.json` and the journal call the run completed, or the
    journal has an end for good.
    """
    status = session.record.status
    if status not in (*SAVED_END, *_EXIT_CODES):
        return False
    if not session.journal_path.is_file():  # opening it would create one
        return status in SAVED_END
    try:
        ended = _ended(session)
    except (JournalError, RunNotFoundError):  # without a journal only the file is known
        return status in SAVED_END
    if status in _EXIT_CODES:
        return ended is not None and ended.is_over and ended.status == status
    has_ended = ended is not None and ended.status == RunStatus.COMPLETED
    session.is_copy_changed = session.is_copy_changed or not has_ended
    return has_ended


def is_of_function(session: Session) -> bool:
    """Return whether a workflow function has recorded the run."""
    if not session.journal_path.is_file():
        return False
    journal = session.journal()
    try:
        return journal.history(session.id).start.input is not None
    except RunNotFoundError:
        return False
    finally:
        journal.close()


def _ended(session: Session) -> EndedBody | None:
    """Return the last end that the journal has. Raises JournalError, RunNotFoundError."""
    from atomic.graph.engine.function_history import history_of

    journal = session.journal()
    try:
        return history_of(journal.history(session.id)).ended
    finally:
        journal.close()


def repeated_end(session: Session) -> Sequence[WorkflowEvent]:
    """Return the events that report the end of a run that is over again."""
    record = session.record
    begun = RunStarted(
        run=session.id, seq=1, time=time.time(), workflow=record.workflow, prompt=record.prompt,
        session_dir=str(session.dir), resumed=True,
    )  # fmt: skip
    reason = "done"
    message = "it is completed already: nothing is left to do"
    exit_code = _EXIT_CODES.get(record.status, ExitCode.DONE)
    if exit_code is not ExitCode.DONE:
        reason = record.reason
        ended = _ended(session)
        why = "" if ended is None else ended.reason.removeprefix(f"{record.workflow}: ")
        message = f"{why} (this end is final: nothing is left to resume)"
    ended_event = RunEnded(
        run=session.id, seq=2, time=time.time(), status=str(record.status), reason=reason, message=message,
        exit_code=exit_code, **end_fields(session, kept_result(session)),
    )  # fmt: skip
    return begun, ended_event
