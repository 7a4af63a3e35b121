"""Creates, finds and lists the folders of sessions, and writes `session.json`.

There is no lock and no index: a list reads the folders, and a run never touches the
files of another one. Secrets are removed from all text before it is written.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec

from atomic.base.files import replace_file
from atomic.base.redaction import Redactor
from atomic.base.untrusted_files import read_bounded
from atomic.sessions.errors import (
    AmbiguousSessionError,
    JournalLostError,
    NoSessionIdError,
    SessionDamagedError,
    UnknownSessionError,
)
from atomic.sessions.files import make_folder
from atomic.sessions.inbox import Answer, Inbox, Message
from atomic.sessions.journal import SqliteJournal, open_redacting
from atomic.sessions.logs import SessionLogs
from atomic.sessions.model import OwnerInfo, SessionRecord, SessionStatus
from atomic.sessions.owner import is_running, mark_of_this_process

_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_PREFIX = re.compile(r"[0-9a-f]{8}(-?[0-9a-f]){0,28}-?")
SHORTEST = 8
_MOST_BYTES = 64 * 1024 * 1024  # of `session.json`, which includes the prompt

Records = list[SessionRecord]


class SessionStore:
    """The sessions of a home folder."""

    def __init__(self, home: Path, redactor: Redactor | None = None) -> None:
        self.folder = home / "sessions"
        self._redactor = redactor

    @cached_property
    def redactor(self) -> Redactor:
        return self._redactor or Redactor.of_environment()

    def new_id(self) -> str:
        return str(uuid4())

    def place_of(self, id: str) -> Path:
        """Return the folder of a session, which may not exist."""
        return self.folder / id

    def create(self, record: SessionRecord) -> Session:
        """Create the folder of a run."""
        folder = self.place_of(record.id)
        began = now()
        record = msgspec.structs.replace(record, created_at=record.created_at or began, updated_at=began)
        session = Session(folder, record, self.redactor)
        try:
            make_folder(str(self.folder))
            os.mkdir(folder, 0o700)
            for name in ("logs", "inbox"):
                os.mkdir(folder / name, 0o700)
            session.write_record(durable=False)  # it is written again, durably, before the run starts
        except OSError:
            session.remove()
            raise
        return session

    def find(self, id: str) -> Session:
        """Return the session with that id, or the only one whose id starts with it.

        Raises NoSessionIdError, UnknownSessionError, AmbiguousSessionError,
        SessionDamagedError.
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
        """Rebuild a lost `session.json` from the journal.

        Raises SessionDamagedError.
        """
        from atomic.graph.engine.errors import JournalError
        from atomic.sessions.started import rebuilt_record

        try:
            record = rebuilt_record(folder)
        except JournalError:
            record = None
        if record is None:
            raise SessionDamagedError(
                f"{folder / 'session.json'} cannot be read, and journal.db does not have its contents: put back a"
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
        """Return all sessions as they are shown, the newest first.

        One that cannot be read is `failed`.
        """
        records: Records = []
        for id in self.ids():
            try:
                record = shown(read_record(self.place_of(id)))
            except SessionDamagedError as error:
                record = SessionRecord(id=id, workflow="", status=SessionStatus.FAILED, reason=str(error))
            records.append(record)
        return sorted(records, key=lambda record: (record.created_at, record.id), reverse=True)


class Session:
    """The folder of one run."""

    def __init__(self, dir: Path, record: SessionRecord, redactor: Redactor) -> None:
        self.dir = dir
        self.record = record
        self.redactor = redactor
        self.inbox = Inbox(dir)
        self.logs = SessionLogs(dir, redactor)
        self._is_written = True  # the file has the current record
        self._is_safe = False  # and survives a power cut
        self.is_copy_changed = False  # another program changed `session.json`
        self.recovery = ""  # how a resume has recovered its journal

    @property
    def id(self) -> str:
        return self.record.id

    def use_redactor(self, redactor: Redactor) -> None:
        """Redact with another redactor, before anything is written."""
        self.redactor = redactor
        self.logs = SessionLogs(self.dir, redactor)

    @property
    def is_owned(self) -> bool:
        """Whether a living process owns the run."""
        owner = self.record.owner
        return owner is not None and is_running(owner.pid, owner.mark)

    def save(self, *, durable: bool = True, **changes: Any) -> SessionRecord:
        """Change `session.json` atomically; nothing is written if nothing changes."""
        changed = msgspec.structs.replace(self.record, **changes)
        if changed == self.record and self._is_written and (self._is_safe or not durable):
            return self.record
        self.record = msgspec.structs.replace(changed, updated_at=now())
        self.write_record(durable=durable)
        return self.record

    def write_record(self, *, durable: bool) -> None:
        """Write `session.json`.

        Without `durable` a power cut, but not a kill, may lose it.
        """
        self._is_written = False
        plain = self.redactor.data(msgspec.to_builtins(self.record))
        plain["owner"] = msgspec.to_builtins(self.record.owner)
        data = msgspec.json.format(msgspec.json.encode(plain), indent=2)
        replace_file(str(self.dir / "session.json"), data + b"\n", durable=durable)
        self._is_written = True
        self._is_safe = durable

    def reload(self) -> SessionRecord:
        """Read the file again. Raises SessionDamagedError."""
        self.record = read_record(self.dir)
        return self.record

    def ask_to_stop(self, *, cancel: bool = False) -> None:
        """Leave a message for the owner to stop, if the run has an owner."""
        owner = self.record.owner
        if owner is not None:
            self.inbox.put(Message("cancel" if cancel else "stop", to=f"{owner.pid}|{owner.mark}"))

    def put_answer(self, question: str, answer: Answer) -> None:
        """Put the answer to a question into the inbox, without secrets."""
        self.inbox.put(Message("answer", question=question, answer=self.redactor.data(answer)))

    def leave_answer(self, question: str, answer: Answer) -> None:
        """Put an answer into the inbox for the owner, or else for the next resume."""
        self.put_answer(question, answer)
        if not self.is_owned:
            self.save(questions=tuple(other for other in self.record.questions if other.id != question))

    def remove(self) -> None:
        """Delete the folder of a run that could not start."""
        shutil.rmtree(self.dir, ignore_errors=True)

    @property
    def journal_path(self) -> Path:
        return self.dir / "journal.db"

    def require_journal(self) -> None:
        """Raise JournalLostError if the run has started and its journal is missing.

        Creates no file.
        """
        has_begun = (
            self.record.begun or self.record.status is not SessionStatus.RUNNING
        )  # records of older versions have only the status
        if has_begun and not self.journal_path.is_file():
            raise JournalLostError(self.id, f"its journal {self.journal_path} is missing")

    def journal(self) -> SqliteJournal:
        """Open the journal, which removes secrets as it writes. Raises JournalError."""
        return open_redacting(self.journal_path, self.redactor)

    def write(self, name: str, text: str) -> None:
        """Replace a file of the folder, without secrets."""
        path = self.dir / name
        make_folder(str(path.parent))
        replace_file(str(path), self.redactor.text(text).encode("utf-8", "replace"))


def notes_of(session_dir: Path) -> Path:
    """Return the folder whose path the agents of a run get, instead of the session's
    own.
    """
    return session_dir.parent.parent / "notes" / session_dir.name


def this_owner() -> OwnerInfo:
    return OwnerInfo(os.getpid(), mark_of_this_process())


def shown(record: SessionRecord) -> SessionRecord:
    """Return the record as it is shown: a running one whose process is dead is
    `interrupted`.
    """
    owner = record.owner
    is_cut = record.status is SessionStatus.RUNNING and (owner is None or not is_running(owner.pid, owner.mark))
    if is_cut:
        return msgspec.structs.replace(record, status=SessionStatus.INTERRUPTED)
    return record


def read_record(folder: Path) -> SessionRecord:
    """Read a `session.json`. Raises SessionDamagedError."""
    path = folder / "session.json"
    try:
        return msgspec.json.decode(read_bounded(path, _MOST_BYTES), type=SessionRecord)
    except OSError as error:
        problem = f"{path}: {error.strerror or error}"
        cause: Exception = error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        problem = f"{path} cannot be read: {error}"
        cause = error
    raise SessionDamagedError(f"{problem}; atomic resume {folder.name} rebuilds it from journal.db") from cause


def now() -> str:
    """Return the time as `session.json` has it: ISO 8601, UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
