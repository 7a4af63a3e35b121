"""`atomic sessions export` and `prune`: a session as one file to pass on, and old ones away."""

from __future__ import annotations

import io
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.redaction import Redactor
from atomic.base.terminal import one_line
from atomic.base.text import table
from atomic.cli.errors import CliError
from atomic.cli.streams import confirmed, has_terminal, put, tell
from atomic.config import atomic_home, read_duration
from atomic.processes.temporary_folders import temporary_prefix
from atomic.sessions.database import connect
from atomic.sessions.errors import SessionDamagedError
from atomic.sessions.history import read_history, seconds_since_1970
from atomic.sessions.model import SessionRecord, SessionStatus
from atomic.sessions.report import local_time, report_of
from atomic.sessions.store import Session, SessionStore, notes_of, read_record, shown

JOURNAL = "journal.db"
_NOT_EXPORTED = ("inbox", "pictures", "snapshots")
_BIGGEST = 256 * 1024 * 1024  # bytes of one file


# export -------------------------------------------------------------------------------------------------------------


def export_session(arguments: Arguments) -> int:
    """Write all that is kept of a run as one archive, without secrets; what cannot be cleaned is left out and said."""
    id, file = arguments.words
    session = SessionStore(atomic_home()).find(id)
    if os.path.lexists(file):
        raise UsageError(f"{file} already exists (choose another name, or remove it)")
    left_out: list[str] = []
    try:
        _write(Path(file), session, left_out)
    except OSError as error:
        raise CliError(f"{file} cannot be written: {error.strerror or error}") from error
    for name in left_out:
        tell(f"left out: {name}")
    put(f"{one_line(os.path.abspath(file))}\n")
    return ExitCode.DONE


def _write(file: Path, session: Session, left_out: list[str]) -> None:
    """A half-written archive never has its name."""
    with tempfile.NamedTemporaryFile(dir=file.absolute().parent, prefix=".atomic-", delete=False) as out:
        try:
            with tarfile.open(fileobj=out, mode="w:gz") as archive:
                for name, data in _members(session, left_out):
                    _add(archive, f"{session.id}/{name}", data)
            out.flush()
            os.fsync(out.fileno())
            os.link(out.name, file)  # unlike a rename it does not replace what somebody else has put there meanwhile
        finally:
            os.unlink(out.name)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = len(data), 0o600, int(time.time())
    archive.addfile(member, io.BytesIO(data))


def _members(session: Session, left_out: list[str]) -> Iterator[tuple[str, bytes]]:
    redactor = Redactor.of_environment()
    history = read_history(session, shown(session.record))
    summary = msgspec.json.encode({"steps": history.steps, "calls": history.calls, "tasks": history.tasks})
    yield "history.json", _clean(redactor, summary)
    for name, path in _files(session.dir):
        data = _journal(path) if name == JOURNAL else _content(path)
        if data is None:
            left_out.append(f"{name}: it cannot be read, or is too big")
        elif _is_text(data):
            yield name, _clean(redactor, data)
        elif redactor.finds(data.decode("latin-1")):
            left_out.append(f"{name}: there is a secret in its bytes")
        else:
            yield name, data
    if not (session.dir / "report.md").exists():
        yield "report.md", _clean(redactor, report_of(history).encode())


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """The plain files of a session; no link, nothing of a database but itself, nothing that waits in the inbox.

    Snapshots are git folders: they hold the project's own files, packed, where no secret could be found.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(one for one in folders if not (place == str(folder) and one in _NOT_EXPORTED))
        if "objects" in folders and "HEAD" in names:
            folders.clear()
            continue
        for name in sorted(names):
            path = Path(place) / name
            relative = path.relative_to(folder).as_posix()
            is_ours = relative.startswith(f"{JOURNAL}-")
            if not is_ours and stat.S_ISREG(path.lstat().st_mode):
                yield relative, path


def _content(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.stat().st_size <= _BIGGEST else None
    except OSError:
        return None


def _journal(path: Path) -> bytes | None:
    """A copy that is whole, also while its owner writes on."""
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("export")) as folder:
        copy = os.path.join(folder, JOURNAL)
        try:
            source, target = connect(str(path), read_only=True), sqlite3.connect(copy)
            try:
                source.backup(target)
            finally:
                source.close()
                target.close()
        except sqlite3.Error:
            return None
        return _content(Path(copy))


def _is_text(data: bytes) -> bool:
    try:
        return "\0" not in data.decode()
    except UnicodeDecodeError:
        return False


def _clean(redactor: Redactor, data: bytes) -> bytes:
    return redactor.text(data.decode()).encode()


# prune --------------------------------------------------------------------------------------------------------------


def prune_sessions(arguments: Arguments) -> int:
    """Delete sessions by age or status, never one that runs; they are shown before, and Enter alone is No."""
    age = arguments.value("--older-than")
    status = arguments.value("--status")
    yes = arguments.has("--yes")
    if age is None and status is None:
        raise UsageError("Which ones? Give --older-than 30d, or --status completed, or both")
    store = SessionStore(atomic_home())
    chosen = [record for record in store.list() if _is_meant(store, record, _age(age), status)]
    if not chosen:
        put("No runs to delete.\n")
        return ExitCode.DONE
    put("".join(f"{line}\n" for line in table(_cells(chosen))))
    if not yes and not _agreed(len(chosen)):
        put("Nothing was deleted.\n")
        return ExitCode.DONE
    deleted = sum(_delete(store, record.id) for record in chosen)
    put(f"{deleted} deleted.\n")
    return ExitCode.DONE


def _age(age: str | None) -> float | None:
    try:
        return None if age is None else read_duration(age)
    except ValueError:
        raise UsageError(f'--older-than cannot be "{age}": give a time such as 30d or 12h') from None


def _is_meant(store: SessionStore, record: SessionRecord, age: float | None, status: str | None) -> bool:
    if record.status is SessionStatus.RUNNING or (status is not None and record.status != status):
        return False
    return age is None or time.time() - _changed(store, record) >= age


def _changed(store: SessionStore, record: SessionRecord) -> float:
    """When somebody last wrote to it; a damaged one does not say so itself."""
    return seconds_since_1970(record.updated_at) or store.place_of(record.id).lstat().st_mtime


def _cells(records: Sequence[SessionRecord]) -> Iterator[Sequence[str]]:
    for record in records:
        changed = local_time(record.updated_at)[:16]
        yield tuple(map(one_line, (record.id, record.status, changed, record.workflow, record.prompt[:60])))


def _agreed(number: int) -> bool:
    if not has_terminal():
        raise UsageError("There is no terminal to ask in: atomic sessions prune … --yes deletes these without asking")
    return confirmed(f"Delete {'this one' if number == 1 else f'these {number}'} for good? [y/N] ")


def _delete(store: SessionStore, id: str) -> int:
    """Remove one folder; 0 if somebody has taken it up meanwhile, or if it is no folder of ours."""
    folder = store.place_of(id)
    if folder.is_symlink():
        tell(f"not deleted: {folder} is a link")
        return 0
    if _runs(folder):
        tell(f"not deleted: {id} is running again")
        return 0
    shutil.rmtree(folder)
    shutil.rmtree(notes_of(folder), ignore_errors=True)
    return 1


def _runs(folder: Path) -> bool:
    try:
        return shown(read_record(folder)).status is SessionStatus.RUNNING
    except SessionDamagedError:
        return False
