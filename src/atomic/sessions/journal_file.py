"""The open file of a journal: checked and repaired first, then used over one
connection.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from typing import Any

from atomic.graph.engine.errors import JournalError
from atomic.sessions import durability
from atomic.sessions.durability import SQLITE_ERRORS, LogKeeper, unsynced
from atomic.sessions.errors import DamagedError, Recovery
from atomic.sessions.files import WAIT_SECONDS, Lock, install_rebuilt, make_folder, make_private, sync_file, sync_folder
from atomic.sessions.inspection import check_format, inspect, is_new
from atomic.sessions.tables import Run, Tables, create

# One statement, so that the check and the write are one transaction without BEGIN and
# COMMIT.
APPEND = "INSERT INTO rows SELECT ?, ?, ?, ?, ? WHERE (SELECT fence FROM runs WHERE number = ?) = ?"
_BODY = 3  # the position of a row's body among these values

# Between two checks that the file still has its name; one costs a twentieth of an
# append.
_PLACE_SECONDS = 0.5


class JournalFile:
    """One open journal file.

    Raises JournalError and, for the caller to repair, DamagedError.

    Its one connection serves one thread at a time: callers hold `thread_lock` during each
    operation.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.thread_lock = threading.RLock()
        self.recovered: Recovery | None = None
        self.signals_sent = 0  # by this object: `version` does not count its own writes
        self._process_lock = Lock(path)
        self._connection: sqlite3.Connection | None = None
        self._cursor: sqlite3.Cursor | None = None
        self._parents: sqlite3.Connection | None = None
        self._inode = 0
        self._place_checked = 0.0
        self._keeper = LogKeeper(path)
        _open_files.add(self)
        try:
            self._open()
        except BaseException as error:
            with suppress(OSError):
                self._process_lock.release()
            if not isinstance(error, (OSError, *SQLITE_ERRORS, DamagedError)):
                raise
            reason = error if isinstance(error, DamagedError) else self._failed(error, "open")
            if isinstance(reason, DamagedError):
                raise JournalError(f'"{self.path}" is damaged: {reason}') from error
            raise reason from error

    def append(self, values: tuple[Any, ...], *, sync: bool) -> bool:
        """Write one row if the fence is unchanged.

        With `sync` it is on the disk when this returns.
        """
        cursor = self._cursor
        if cursor is None:
            raise self._closed()
        self._check_place()
        try:
            if sync:
                cursor.execute(APPEND, values)
            else:
                with unsynced(cursor.connection):
                    cursor.execute(APPEND, values)
        except SQLITE_ERRORS as error:
            raise self._failed(error, "write") from error
        written = cursor.rowcount == 1
        self._keeper.wrote(cursor.connection, len(values[_BODY]))
        return written

    def append_all(self, values: Sequence[tuple[Any, ...]], *, sync: bool) -> bool:
        """Write all rows or none."""
        self._check_place()
        with self._transaction("BEGIN IMMEDIATE", "write", sync=sync) as connection:
            written = connection.executemany(APPEND, values).rowcount == len(values)
            if not written:
                connection.execute("ROLLBACK")
        self._keeper.wrote(connection, sum(len(row[_BODY]) for row in values))
        return written

    @property
    def version(self) -> int:
        """Return a number that changes when another connection has written.

        Costs a few microseconds.
        """
        if self._cursor is None:
            raise self._closed()
        try:
            return self._cursor.execute("PRAGMA data_version").fetchone()[0]
        except SQLITE_ERRORS as error:
            raise self._failed(error, "read") from error

    @contextmanager
    def reading(self) -> Generator[Tables]:
        """Read in one transaction."""
        with self._transaction("BEGIN", "read") as connection:
            yield Tables(connection)

    @contextmanager
    def writing(self, *, sync: bool = True, size: int = 0) -> Generator[Tables]:
        """Write about `size` bytes in one transaction that excludes other writers."""
        with self._transaction("BEGIN IMMEDIATE", "write", sync=sync) as connection:
            yield Tables(connection)
        self._keeper.wrote(connection, size)

    def repair(self, damage: DamagedError, *, ours: Mapping[int, Run]) -> None:
        """Replace the file by what can be recovered, and open that.

        Raises JournalError.
        """
        self._close_and_keep_log()
        try:
            if not self._process_lock.try_alone():
                raise JournalError(
                    f'"{self.path}" is damaged: {damage.reason}; others have it open: '
                    "close it there, then open it again to recover it"
                )
            self.recovered = _recovered(self.path, damage, ours)
        except OSError as error:
            raise self._failed(error, "recover") from error
        finally:
            # If this fails too, the journal is closed, and the first error is raised.
            with suppress(JournalError, DamagedError, OSError, *SQLITE_ERRORS):
                self._process_lock.share()
                self._connect()

    def close(self) -> None:
        if self._parents is not None:
            return
        connection = self._connection
        self._connection = None
        self._cursor = None
        if connection is not None:
            with suppress(*SQLITE_ERRORS):
                connection.close()
        with suppress(OSError):
            self._process_lock.release()

    def _open(self) -> None:
        make_folder(os.path.dirname(self.path))
        deadline = time.monotonic() + WAIT_SECONDS
        while True:
            # If the lock is shared, another process has the file open and has checked
            # it.
            if self._process_lock.try_alone():
                self._prepare()
            self._process_lock.share()
            if not is_new(self.path):
                break
            if time.monotonic() > deadline:
                raise JournalError(f'"{self.path}" has vanished while another process has it open')
        self._connect()

    def _prepare(self) -> None:
        install_rebuilt(self.path)
        if is_new(self.path):
            if os.path.exists(self.path):  # `_create` never leaves an empty file
                raise JournalError(
                    f'"{self.path}" is empty, which a journal never is: the runs that it had are lost. '
                    "Put the file back from a backup, or delete it to begin a new journal"
                )
            self._create()
            return
        try:
            inspect(self.path)
        except DamagedError as damage:
            self.recovered = _recovered(self.path, damage, {})
        make_private(self.path)

    def _create(self) -> None:
        """Create the file under another name and rename it, so that it is never seen
        incomplete.
        """
        new = f"{self.path}.new"
        for suffix in ("", "-journal", "-wal", "-shm"):  # left by a killed process
            with suppress(FileNotFoundError):
                os.unlink(new + suffix)
        os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        create(new)
        sync_file(new)
        os.rename(new, self.path)
        sync_folder(self.path)

    def _connect(self) -> None:
        connection = durability.connect(self.path)
        try:
            check_format(self.path, connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self._cursor = connection.cursor()
        self._inode = os.stat(self.path).st_ino

    def _close_and_keep_log(self) -> None:
        """Close without a checkpoint: the files must be copied as they are.

        SQLite keeps the log while another connection is open, and when a reader closes.
        """
        with suppress(*SQLITE_ERRORS), closing(durability.connect(self.path, read_only=True)) as guard:
            with suppress(*SQLITE_ERRORS):
                guard.execute("SELECT count(*) FROM sqlite_schema").fetchall()
            if self._connection is not None:
                self._connection.close()
        if self._connection is not None:
            self._connection.close()  # a second close does nothing; the guard may have failed to open
        self._connection = None
        self._cursor = None

    @contextmanager
    def _transaction(self, begin: str, doing: str, *, sync: bool = True) -> Generator[sqlite3.Connection]:
        connection = self._connection
        if connection is None:
            raise self._closed()
        try:
            with nullcontext() if sync else unsynced(connection):
                connection.execute(begin)
                yield connection
                if connection.in_transaction:
                    connection.execute("COMMIT")
        except BaseException as error:
            with suppress(*SQLITE_ERRORS):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            if isinstance(error, SQLITE_ERRORS):
                raise self._failed(error, doing) from error
            raise

    def _check_place(self) -> None:
        """Raise JournalError if the file was deleted or replaced: SQLite would write to
        a nameless file.
        """
        now = time.monotonic()
        if now - self._place_checked < _PLACE_SECONDS:
            return
        try:
            in_place = os.stat(self.path).st_ino == self._inode
        except OSError:
            in_place = False
        if not in_place:
            raise JournalError(f'The journal "{self.path}" was deleted or replaced while it was open')
        self._place_checked = now

    def leave_to_parent(self) -> None:
        """Give up connection and lock after a fork.

        The child must not even close them.
        """
        self._parents = self._connection
        self._connection = None
        self._cursor = None
        self.thread_lock = threading.RLock()  # a thread of the parent may have held it

    def _failed(self, error: BaseException, doing: str) -> JournalError | DamagedError:
        return durability.explain(self.path, error, doing)

    def _closed(self) -> JournalError:
        if self._parents is not None:
            return JournalError(
                f'The journal "{self.path}" belongs to the process that forked this one; open it here too'
            )
        return JournalError(f'The journal "{self.path}" is closed')


def _recovered(path: str, damage: DamagedError, ours: Mapping[int, Run]) -> Recovery:
    from atomic.sessions.recovery import recover  # imported late: few journals are ever damaged

    return recover(path, damage, ours=ours)


def _after_fork() -> None:
    for file in _open_files:
        file.leave_to_parent()


# Global, because a fork concerns the whole process: SQLite's connections do not survive
# it.
_open_files: weakref.WeakSet[JournalFile] = weakref.WeakSet()
os.register_at_fork(after_in_child=_after_fork)
