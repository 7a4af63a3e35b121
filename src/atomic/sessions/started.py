"""The start of a run and its cancellation, as its journal has them.

`session.json` has the same for users and for lists. A resume trusts only the journal,
because every program of the user, agents included, can change the file: it could raise
a cap, or end a run for good with the status `cancelled`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.sessions.errors import JournalLostError
from atomic.sessions.facts import Facts, read_last_two
from atomic.sessions.files import size_of
from atomic.sessions.model import SessionRecord, SessionStatus

if TYPE_CHECKING:
    from atomic.sessions.store import Session

COPY = "session.json"
_STARTED = "started"
_CANCELLED = "cancelled"


# The fields of a record that only a resume changes.
_FIELDS = (
    "workflow", "workflow_version", "workflow_source", "workflow_path", "workflow_sha256", "project", "prompt",
    "created_at", "config", "state_version", "cwd", "options",
)  # fmt: skip


def keep_started(facts: Facts, record: SessionRecord) -> None:
    """Write the fields of a start or resume to the disk. Raises JournalError."""
    started = _plain(record)
    if facts.get(_STARTED) != started:
        facts.set(_STARTED, started)


def keep_cancelled(facts: Facts) -> None:
    """Write to the disk that a run was cancelled. Raises JournalError."""
    facts.set(_CANCELLED, True)


def cancel_unowned(session: Session) -> None:
    """Keep that a run without an owner was cancelled.

    Raises RunOwnedError, JournalError.
    """
    if not session.journal_path.is_file():  # killed before it started
        return
    journal = session.journal()
    try:
        facts = Facts(session.dir, session.redactor)
        facts.open(journal, session.id)
        keep_cancelled(facts)
    finally:
        journal.close()


def believe_journal(session: Session) -> None:
    """Replace the start and the cancellation in a session's record by the journal's.

    Raises JournalError, JournalLostError.
    """
    journal = session.dir / "journal.db"
    if not journal.is_file():  # killed before it started
        return
    if not size_of(str(journal)) and not size_of(f"{journal}-wal"):
        raise JournalLostError(session.id, f"its journal {journal} is empty")
    kept, session.recovery = read_last_two(journal, session.id, _STARTED, _CANCELLED)
    if _CANCELLED in kept:
        session.record = msgspec.structs.replace(session.record, status=SessionStatus.CANCELLED)
    if _STARTED not in kept:  # of an older version
        return
    now, before = kept[_STARTED]
    found = _plain(session.record)
    is_copy = found in (now, before)  # a kill may have prevented the last copy
    status = session.record.status
    if status is SessionStatus.CANCELLED and _CANCELLED not in kept:  # another program wrote that
        is_copy = False
        status = SessionStatus.PAUSED
    session.is_copy_changed = session.is_copy_changed or not is_copy
    session.record = msgspec.structs.replace(session.record, status=status, **_fields(now))


def rebuilt_record(folder: Path) -> SessionRecord | None:
    """Return the record of a run whose `session.json` is lost.

    None if the journal does not have it.

    Raises JournalError.
    """
    journal = folder / "journal.db"
    if not journal.is_file():
        return None
    kept, _ = read_last_two(journal, folder.name, _STARTED, _CANCELLED)
    if _STARTED not in kept:
        return None
    status = SessionStatus.CANCELLED if _CANCELLED in kept else SessionStatus.RUNNING
    return SessionRecord(id=folder.name, begun=True, status=status, **_fields(kept[_STARTED][0]))


def _plain(record: SessionRecord) -> dict[str, Any]:
    return msgspec.to_builtins({name: getattr(record, name) for name in _FIELDS})


def _fields(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields as a record has them; those of an older version have defaults."""
    record = msgspec.convert({"id": "", **kept}, SessionRecord)
    return {name: getattr(record, name) for name in _FIELDS}
