"""`atomic sessions export` and `prune`: write a session to one archive, delete old
sessions.
"""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import sqlite3
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.redaction import Redactor
from atomic.base.terminal import one_line
from atomic.base.text import table
from atomic.cli.errors import CliError
from atomic.cli.parked import KeptWork, find_kept, remove_kept
from atomic.cli.sessions import with_killed
from atomic.cli.streams import confirmed, has_terminal, put, put_table, tell
from atomic.config import atomic_home, read_duration
from atomic.git import GitError
from atomic.graph import JournalError
from atomic.processes.temporary_folders import temporary_prefix
from atomic.sessions.durability import connect
from atomic.sessions.errors import SessionDamagedError
from atomic.sessions.facts import read_facts
from atomic.sessions.history import read_history, seconds_since_1970
from atomic.sessions.model import SessionRecord, SessionStatus
from atomic.sessions.report import report_of, time_text
from atomic.sessions.store import Session, SessionStore, notes_of, read_record, shown
from atomic.workspaces import unparked_in
from atomic.workspaces.run_branch import read_branch

JOURNAL = "journal.db"
# Runs that may continue. Their parked work is deleted only if the user names the status.
_UNFINISHED = (SessionStatus.PAUSED, SessionStatus.INTERRUPTED, SessionStatus.BLOCKED)
_NOT_EXPORTED = ("inbox", "pictures", "snapshots")
_MAX_FILE_BYTES = 256 * 1024 * 1024


def export_session(arguments: Arguments) -> int:
    """Write a run to one archive without secrets, and list the files that are left out."""
    id, file = arguments.words
    session = SessionStore(atomic_home()).find(id)
    if os.path.lexists(file):
        raise UsageError(f"{file} already exists (choose another name, or remove it)")
    left_out: list[str] = []
    try:
        _write_archive(Path(file), session, left_out)
    except OSError as error:
        raise CliError(f"{file} cannot be written: {error.strerror or error}") from error
    for name in left_out:
        tell(f"left out: {name}")
    put(f"{one_line(os.path.abspath(file))}\n")
    return ExitCode.DONE


def _write_archive(file: Path, session: Session, left_out: list[str]) -> None:
    """Write the archive under a temporary name, and link it to its own when it is
    complete.
    """
    with tempfile.NamedTemporaryFile(dir=file.absolute().parent, prefix=".atomic-", delete=False) as out:
        try:
            with tarfile.open(fileobj=out, mode="w:gz") as archive:
                for name, data in _members(session, left_out):
                    member = tarfile.TarInfo(f"{session.id}/{name}")
                    member.size = len(data)
                    member.mode = 0o600
                    member.mtime = int(time.time())
                    archive.addfile(member, io.BytesIO(data))
            out.flush()
            os.fsync(out.fileno())
            os.link(out.name, file)  # unlike a rename, it does not replace a file that appeared since
        finally:
            os.unlink(out.name)


def _members(session: Session, left_out: list[str]) -> Iterator[tuple[str, bytes]]:
    """Return names and contents without secrets.

    `left_out` gets the files that cannot be cleaned.
    """
    redactor = Redactor.of_environment()

    def clean(text: str) -> bytes:
        return redactor.text(text).encode()

    history = with_killed(session, read_history(session, shown(session.record)))
    summary = msgspec.json.encode({"steps": history.steps, "calls": history.calls, "tasks": history.tasks})
    yield "history.json", clean(summary.decode())
    for name, path in _files(session.dir):
        data = _copy_journal(path) if name == JOURNAL else _read_file(path)
        if data is None:
            left_out.append(f"{name}: it cannot be read, or is too big")
            continue
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" not in text:
            yield name, clean(text)
        elif redactor.finds(data.decode("latin-1")):
            left_out.append(f"{name}: it is binary and contains a secret")
        else:
            yield name, data
    if not (session.dir / "report.md").exists():
        yield "report.md", clean(report_of(history))


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Return the regular files of a session, without links, the journal's side files
    and the inbox.

    Snapshots are left out: they are git folders with packed files of the project, in
    which secrets cannot be found.
    """
    for parent, folders, names in os.walk(folder):
        if parent == str(folder):
            folders[:] = [name for name in folders if name not in _NOT_EXPORTED]
        folders.sort()
        if "objects" in folders and "HEAD" in names:
            folders.clear()
            continue
        for name in sorted(names):
            path = Path(parent) / name
            relative = path.relative_to(folder).as_posix()
            if stat.S_ISREG(path.lstat().st_mode) and not relative.startswith(f"{JOURNAL}-"):
                yield relative, path


def _read_file(path: Path) -> bytes | None:
    try:
        return path.read_bytes() if path.stat().st_size <= _MAX_FILE_BYTES else None
    except OSError:
        return None


def _copy_journal(path: Path) -> bytes | None:
    """Return a consistent copy of the journal, even while its run writes to it."""
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("export")) as folder:
        copy = os.path.join(folder, JOURNAL)
        try:
            source = connect(str(path), read_only=True)
            target = sqlite3.connect(copy)
            try:
                source.backup(target)
            finally:
                source.close()
                target.close()
        except sqlite3.Error:
            return None
        return _read_file(Path(copy))


def prune_sessions(arguments: Arguments) -> int:
    """Show sessions by age or status and delete them if the user agrees.

    Running ones are kept. Return 1 if one could not be deleted.
    """
    older_than = arguments.value("--older-than")
    status = arguments.value("--status")
    if older_than is None and status is None:
        raise UsageError("Which runs? Give --older-than 30d, or --status completed, or both")
    try:
        age = 0.0 if older_than is None else read_duration(older_than)
    except ValueError:
        raise UsageError(f'--older-than cannot be "{older_than}": give a time such as 30d or 12h') from None
    store = SessionStore(atomic_home())
    chosen: list[SessionRecord] = []
    kept: dict[str, KeptWork] = {}
    failed = 0
    for record in store.list():
        if record.status is SessionStatus.RUNNING or status not in (None, record.status):
            continue
        if older_than is not None:
            # A damaged session has no time of its own.
            changed = seconds_since_1970(record.updated_at) or store.place_of(record.id).lstat().st_mtime
            if time.time() - changed < age:
                continue
        try:
            work = _find_work(store.place_of(record.id))
        except GitError as error:
            tell(f"not deleted: the parked work of {record.id} cannot be found: {error}")
            failed += 1
            continue
        if work is not None and status is None and record.status in _UNFINISHED:
            tell(f"not deleted: {record.id} is {record.status} and has work (--status {record.status} deletes it)")
            continue
        if work is not None:
            kept[record.id] = work
        chosen.append(record)
    if not chosen:
        put("No runs to delete.\n")
        return ExitCode.FAILED if failed else ExitCode.DONE
    rows = [(one.id, one.status, time_text(one.updated_at)[:16], one.workflow, one.prompt[:60]) for one in chosen]
    put("".join(f"{line}\n" for line in table([one_line(cell) for cell in row] for row in rows)))
    if kept:
        put(f"Parked work and workspaces are deleted too, {_size_text(sum(one.size for one in kept.values()))}:\n")
        put_table((f"  {id}", _size_text(one.size), *_parts(one)) for id, one in kept.items())
    if not arguments.has("--yes"):
        if not has_terminal():
            raise UsageError(
                "There is no terminal to ask in: atomic sessions prune … --yes deletes these without asking"
            )
        if not confirmed(f"Delete {'this one' if len(chosen) == 1 else f'these {len(chosen)}'} for good? [y/N] "):
            put("Nothing was deleted.\n")
            return ExitCode.DONE
    deleted = [record for record in chosen if _delete(store, record.id, kept.get(record.id))]
    put(f"{len(deleted)} deleted.\n")
    failed += len(chosen) - len(deleted)
    return ExitCode.FAILED if failed else ExitCode.DONE


def _find_work(folder: Path) -> KeptWork | None:
    """Return what a run has left outside of its folder; None if it has no branch.

    Raises GitError.
    """
    journal = folder / JOURNAL
    if folder.is_symlink() or not journal.is_file():
        return None
    try:
        branch = read_branch(read_facts(journal, folder.name))
    except JournalError as error:
        tell(f"work that {folder.name} has parked, if any, stays in refs/atomic/{folder.name}/: {error}")
        return None
    return None if branch is None else asyncio.run(find_kept(folder.name, branch, atomic_home()))


def _parts(kept: KeptWork) -> tuple[str, str]:
    """Return what will be deleted of a run: parked attempts, and its branch."""
    number = len(kept.refs)
    attempts = f"{number} parked attempt{'' if number == 1 else 's'}"
    return attempts, f"and its branch {kept.branch.name}, which is merged" if kept.is_merged else ""


def _size_text(size: int) -> str:
    return f"{size / 1_000_000:,.1f} MB"


def _delete(store: SessionStore, id: str, kept: KeptWork | None) -> bool:
    """Delete a session's folder, after the work that it has left elsewhere.

    Return False for a link, and for a run that was resumed since.
    """
    folder = store.place_of(id)
    if folder.is_symlink():
        tell(f"not deleted: {folder} is a link")
        return False
    try:
        is_running = shown(read_record(folder)).status is SessionStatus.RUNNING
    except SessionDamagedError:
        is_running = False
    if is_running:
        tell(f"not deleted: {id} is running again")
        return False
    if kept is not None:
        unparked = unparked_in(kept.folder)
        if unparked:
            tell(
                f"not deleted: {id} has work in {one_line(str(unparked[0]))} that is kept nowhere else: "
                f"atomic salvage {id[:8]} parks it, or delete that folder first"
            )
            return False
        try:
            branch = asyncio.run(remove_kept(kept))
        except (GitError, OSError) as error:
            tell(f"not deleted: the parked work of {id} cannot be deleted: {error}")
            return False
        if branch:
            tell(f"{branch} is kept: no other branch has its commits, or it is checked out (git branch -D {branch})")
    shutil.rmtree(folder)
    shutil.rmtree(notes_of(folder), ignore_errors=True)
    return True
