"""A run that is completed: a resume only reports its end again.

That needs neither the workflow's code, which may no longer be trusted, nor an agent.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Self

from atomic.base.errors import ExitCode
from atomic.graph import JournalError, RunNotFoundError, RunStatus
from atomic.runs.endings import SAVED_END, Stop
from atomic.runs.events import RunEnded, RunStarted, WorkflowEvent
from atomic.sessions.store import Session


class EndedRun(AsyncIterator[WorkflowEvent]):
    """The events of a resume of a completed run."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._events = iter(repeated_end(session))

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> WorkflowEvent:
        for event in self._events:
            return event
        raise StopAsyncIteration

    def stop(self, stop: Stop = Stop.INTERRUPT) -> None:
        """Do nothing: nothing runs."""


def is_completed(session: Session) -> bool:
    """Return whether `session.json` and the journal call the run completed."""
    from atomic.graph.engine.history import RunHistory

    if session.record.status not in SAVED_END:
        return False
    if not session.journal_path.is_file():  # opening it would create one
        return True
    try:
        journal = session.journal()
        try:
            ended = RunHistory(journal.history(session.id)).ended
        finally:
            journal.close()
    except (JournalError, RunNotFoundError):  # without a journal only the file is known
        return True
    has_ended = ended is not None and ended.status == RunStatus.COMPLETED
    session.is_copy_changed = session.is_copy_changed or not has_ended
    return has_ended


def repeated_end(session: Session) -> Sequence[WorkflowEvent]:
    """Return the events that report the end of a completed run again."""
    record = session.record
    begun = RunStarted(
        run=session.id, seq=1, time=time.time(), workflow=record.workflow, prompt=record.prompt,
        session_dir=str(session.dir), resumed=True,
    )  # fmt: skip
    ended = RunEnded(
        run=session.id, seq=2, time=time.time(), status=str(record.status), reason="done",
        message="it is completed already: nothing is left to do", exit_code=ExitCode.DONE,
    )  # fmt: skip
    return begun, ended
