"""The folder of each run: made, found, listed, and its `session.json`.

There is no lock and no index: a list is a look at the folders, and no run ever touches the files of another. All text
is without secrets before it is written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from atomic.bounded import read_bounded
from atomic.redact import Redactor
from atomic.saving import replace_file
from atomic.sessions.errors import (
    AmbiguousSessionError,
    JournalLostError,
    NoSessionIdError,
    SessionDamagedError,
    UnknownSessionError,
)
from atomic.sessions.files import make_folder
from atomic.sessions.inbox import Inbox
from atomic.sessions.logs import SessionLogs
from atomic.sessions.model import OwnerInfo, SessionRecord, SessionStatus
from atomic.sessions.owner import is_running, mark_of_this_process

if TYPE_CHECKING:
    from atomic.graph.journal import Journal

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PREFIX = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]){0,28}-?")
SHORTEST = 8
_MOST_BYTES = 64 * 1024 * 1024  # of `session.json`; a long prompt is a part of it

Records = list[SessionRecord]


class SessionStore:
    """All sessions below a home folder."""

    def __init__(self, home: Path, redactor: Redactor | None = None) -> None:
        self.folder = home / "sessions"
        self._redactor = redactor

    @cached_property
    def redactor(self) -> Redactor:
        return self._redactor or Redactor.of_environment()

    def new_id(self) -> str:
        return str(uuid4())

    def place_of(self, id: str) -> Path:
        """Where the session of that id is, or would be."""
        return self.folder / id

    def create(self, record: SessionRecord) -> Session:
        """Make the folder of a run."""
        folder = self.place_of(record.id)
        make_folder(str(self.folder))
        os.mkdir(folder, 0o700)
        for name in ("logs", "inbox"):
            os.mkdir(folder / name, 0o700)
        began = now()
        record = msgspec.structs.replace(record, created_at=record.created_at or began, updated_at=began)
        session = Session(folder, record, self.redactor)
        session.write_record(durable=False)  # before the run begins it is written once more, for good
        return session

    def find(self, id: str) -> Session:
        """The session with that id, or the only one whose id begins so.

        Raises NoSessionIdError, UnknownSessionError, AmbiguousSessionError, SessionDamagedError.
        """
        wanted = id.strip().lower()
        if len(wanted) < SHORTEST or _PREFIX.fullmatch(wanted) is None:
            raise NoSessionIdError(id)
        found = [name for name in self.ids() if name.startswith(wanted)]
        if not found:
            raise UnknownSessionError(id)
        if len(found) > 1:
            raise AmbiguousSessionError(id, sorted(found))
        folder = self.place_of(found[0])
        try:
            return Session(folder, read_record(folder), self.redactor)
        except SessionDamagedError:
            return self._rebuilt(folder)

    def _rebuilt(self, folder: Path) -> Session:
        """The session whose `session.json` is lost, from its journal. Raises SessionDamagedError."""
        from atomic.graph.errors import JournalError
        from atomic.sessions.started import rebuilt_record

        try:
            record = rebuilt_record(folder)
        except JournalError:
            record = None
        if record is None:
            raise SessionDamagedError(
                f"{folder / 'session.json'} cannot be read, and journal.db does not tell what the run was: put back a"
                " copy of session.json"
            )
        session = Session(folder, record, self.redactor)
        session.is_copy_changed = True
        return session

    def ids(self) -> Iterator[str]:
        try:
            names = os.listdir(self.folder)
        except (FileNotFoundError, NotADirectoryError):
            return
        yield from (name for name in names if _ID.fullmatch(name))

    def list(self) -> Records:
        """All sessions, the newest first, each with the status that is shown; one that cannot be read is `failed`."""
        records = [self._listed(id) for id in self.ids()]
        return sorted(records, key=lambda record: (record.created_at, record.id), reverse=True)

    def _listed(self, id: str) -> SessionRecord:
        try:
            return shown(read_record(self.place_of(id)))
        except SessionDamagedError as error:
            return SessionRecord(id=id, workflow="", status=SessionStatus.FAILED, reason=str(error))


class Session:
    """One folder: what is kept of a run."""

    def __init__(self, dir: Path, record: SessionRecord, redactor: Redactor) -> None:
        self.dir, self.record, self.redactor = dir, record, redactor
        self.inbox = Inbox(dir)
        self.logs = SessionLogs(dir, redactor)
        self._is_written = True  # the file says what is here
        self._is_safe = False  # it survives a power cut
        self.is_copy_changed = False  # `session.json` was found to differ from the journal
        self.recovery = ""  # how its journal was recovered when a resume looked into it

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def is_owned(self) -> bool:
        """Whether a living process works on it."""
        owner = self.record.owner
        return owner is not None and is_running(owner.pid, owner.mark)

    def save(self, *, durable: bool = True, **changes: Any) -> SessionRecord:
        """Change `session.json`: whoever looks finds the old one or the new one. What is there is not written again."""
        changed = msgspec.structs.replace(self.record, **changes)
        if changed == self.record and self._is_written and (self._is_safe or not durable):
            return self.record
        self.record = msgspec.structs.replace(changed, updated_at=now())
        self.write_record(durable=durable)
        return self.record

    def write_record(self, *, durable: bool) -> None:
        """Write `session.json` as it is here; not `durable`: a power cut, though no kill, may lose it."""
        self._is_written = False
        plain = self.redactor.data(msgspec.to_builtins(self.record))
        plain["owner"] = msgspec.to_builtins(self.record.owner)
        data = msgspec.json.format(msgspec.json.encode(plain), indent=2)
        replace_file(str(self.dir / "session.json"), data + b"\n", durable=durable)
        self._is_written, self._is_safe = True, durable

    def reload(self) -> SessionRecord:
        """What the file says now. Raises SessionDamagedError."""
        self.record = read_record(self.dir)
        return self.record

    @property
    def journal_path(self) -> Path:
        return self.dir / "journal.db"

    def require_journal(self) -> None:
        """Raise JournalLostError where the run has begun and its journal's file is gone. It makes no file."""
        has_begun = self.record.begun or self.record.status is not SessionStatus.RUNNING  # older records only say this
        if has_begun and not self.journal_path.is_file():
            raise JournalLostError(self.id, f"its journal {self.journal_path} is missing")

    def journal(self) -> Journal:
        """The record of the run, cleaned of secrets as it is written. Raises JournalError."""
        from atomic.sessions.journal import SqliteJournal
        from atomic.sessions.redacting import RedactingJournal

        return RedactingJournal(SqliteJournal(self.journal_path), self.redactor)

    def write(self, name: str, text: str) -> None:
        """Replace a file of the folder, without secrets."""
        path = self.dir / name
        make_folder(str(path.parent))
        replace_file(str(path), self.redactor.text(text).encode("utf-8", "replace"))


def notes_of(session_dir: Path) -> Path:
    """The folder that agents of a run are told of, beside the one that they are not told of."""
    return session_dir.parent.parent / "notes" / session_dir.name


def this_owner() -> OwnerInfo:
    return OwnerInfo(os.getpid(), mark_of_this_process())


def shown(record: SessionRecord) -> SessionRecord:
    """The record as people see it: a running one whose owner is dead is `interrupted`."""
    owner = record.owner
    is_cut = record.status is SessionStatus.RUNNING and (owner is None or not is_running(owner.pid, owner.mark))
    return msgspec.structs.replace(record, status=SessionStatus.INTERRUPTED) if is_cut else record


def read_record(folder: Path) -> SessionRecord:
    """Read a `session.json`. Raises SessionDamagedError."""
    path = folder / "session.json"
    try:
        return msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=SessionRecord)
    except OSError as error:
        raise SessionDamagedError(
            f"{path}: {error.strerror or error}; atomic resume {folder.name} rebuilds it from journal.db"
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise SessionDamagedError(
            f"{path} cannot be read: {error}; atomic resume {folder.name} rebuilds it from journal.db"
        ) from error


def now() -> str:
    """The time as `session.json` writes it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
