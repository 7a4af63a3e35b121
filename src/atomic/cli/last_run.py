"""Find the last run, or the last conversation, of the current project."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from atomic.base.arguments import UsageError
from atomic.config import atomic_home, find_project
from atomic.sessions.errors import AmbiguousSessionError, SessionError
from atomic.sessions.model import SessionRecord, SessionStatus
from atomic.sessions.report import RESUMABLE
from atomic.sessions.store import Session, SessionStore, shown


def find_last_run() -> Session | None:
    """Return the run of this project that changed last and can be continued."""
    from atomic.runs.ended_run import is_over

    store = SessionStore(atomic_home())
    for record in sorted(records_here(lambda record: record.status in RESUMABLE), key=_when, reverse=True):
        session = store.find(record.id)
        if not is_over(session):  # an end by Failed or Blocked is final
            return session
    return None


def require_last_run() -> Session:
    """Return the run that `atomic resume` continues. Raises UsageError."""
    found = find_last_run()
    if found is None:
        raise UsageError(
            "No run of this folder can be continued: atomic status lists its runs, atomic sessions those of all folders"
        )
    return found


def require_logged_run() -> Session:
    """Return the run of this project that changed last. Raises UsageError."""
    found = _last(lambda record: not record.is_conversation)
    if found is None:
        raise UsageError('This folder has no runs yet: start one with atomic ralph "GOAL"')
    return found


def require_last_conversation() -> Session:
    """Return the conversation that `atomic --continue` opens. Raises UsageError."""
    found = _last(lambda record: record.is_conversation)
    if found is None:
        raise UsageError("This folder has no conversation to continue: atomic begins one")
    return found


def require_running_run() -> Session:
    """Return the only run of this project that runs now, else the one that changed last.

    Raises UsageError.
    """
    running = records_here(lambda record: record.status is SessionStatus.RUNNING)
    return _only(running, "are running") if running else require_logged_run()


def require_asking_run() -> Session:
    """Return the only run of this project that waits for an answer. Raises UsageError."""
    asking = records_here(lambda record: bool(record.questions))
    if not asking:
        raise UsageError("No run of this folder waits for an answer: atomic status lists its runs")
    return _only(asking, "wait for an answer")


def is_run(id: str) -> bool:
    """Return whether a word is the id of a run, or the beginning of one."""
    try:
        SessionStore(atomic_home()).find(id)
    except AmbiguousSessionError:
        return True
    except SessionError:
        return False
    return True


def _only(records: Sequence[SessionRecord], what: str) -> Session:
    if len(records) > 1:
        ids = ", ".join(record.id for record in records)
        raise UsageError(f"{len(records)} runs of this folder {what}, so give the ID of one: {ids}")
    return SessionStore(atomic_home()).find(records[0].id)


def records_here(fits: Callable[[SessionRecord], bool]) -> list[SessionRecord]:
    """Return the matching runs of this project."""
    project = str(find_project())
    records = SessionStore(atomic_home()).list()
    return [shown(record) for record in records if record.project == project and fits(shown(record))]


def _last(fits: Callable[[SessionRecord], bool]) -> Session | None:
    found = records_here(fits)
    if not found:
        return None
    return SessionStore(atomic_home()).find(max(found, key=_when).id)


def _when(record: SessionRecord) -> tuple[str, str, str]:
    return record.updated_at, record.created_at, record.id
