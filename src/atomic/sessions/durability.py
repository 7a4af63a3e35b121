"""When a journal is on the disk: connections that sync, checkpoints, and errors of
SQLite.

Each commit is synced (`synchronous=FULL`), so a row survives a power cut when its
append returns. Rows that may be lost, snapshots and leases are written `unsynced`: they
survive a kill. The log is copied into the file by `LogKeeper`.

This module, and sqlite3 with it, is imported when the first journal is opened: a
program that only lists its workflows does not pay for it.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager

from atomic.graph.engine.errors import JournalError
from atomic.sessions.errors import DamagedError

PAGE_SIZE = 8192  # rows of a kilobyte fill it with less waste than pages of 4096 (1.21 against 1.39 MB for a thousand)
_BUSY_SECONDS = 10.0
CHECKPOINT_PAGES = 256  # 2 MB of log: quick to read after a crash, and few checkpoints

# UnicodeDecodeError: SQLite quotes bytes of a damaged file, which Python decodes.
SQLITE_ERRORS = (sqlite3.Error, UnicodeDecodeError)

# Errors of the system. Every other error of a constant statement means a damaged file.
_REASONS = {
    sqlite3.SQLITE_PERM: "permission denied",
    sqlite3.SQLITE_AUTH: "permission denied",
    sqlite3.SQLITE_BUSY: "another process keeps it locked",
    sqlite3.SQLITE_LOCKED: "another process keeps it locked",
    sqlite3.SQLITE_PROTOCOL: "another process keeps it locked",
    sqlite3.SQLITE_NOMEM: "out of memory",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_INTERRUPT: "interrupted",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_CANTOPEN: "the file cannot be opened",
    sqlite3.SQLITE_NOLFS: "the file is too large for this system",
}


def connect(
    path: str, *, read_only: bool = False, without_log: bool = False, seconds: float = _BUSY_SECONDS
) -> sqlite3.Connection:
    """Open a connection that syncs each commit and checks the pages that it reads.

    A read-only one never changes the file, not even when it is closed; `without_log`
    ignores the write-ahead log.
    """
    if read_only or without_log:
        mode = "immutable=1" if without_log else "mode=ro"
        target = f"file:{_uri_path(path)}?{mode}"
    else:
        target = f"file:{_uri_path(path)}?mode=rw"  # never create an empty file in place of a lost one
    connection = sqlite3.connect(target, uri=True, timeout=seconds, isolation_level=None, check_same_thread=False)
    try:
        # cell_size_check: a damaged page is noticed when it is read.
        # wal_autocheckpoint: see `LogKeeper`.
        connection.executescript(
            "PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON;"
            " PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=0;"
        )
        if sys.platform == "darwin":  # fsync alone does not reach the disk there
            connection.executescript("PRAGMA fullfsync=ON; PRAGMA checkpoint_fullfsync=ON;")
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def unsynced(connection: sqlite3.Connection) -> Generator[None]:
    """Do not wait for the disk at the end of the transactions in the body."""
    # As a script: SQLite applies the setting when it compiles the text, so a cached
    # statement would not.
    connection.executescript("PRAGMA synchronous=NORMAL")
    try:
        yield
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")  # the setting cannot change inside a transaction
        connection.executescript("PRAGMA synchronous=FULL")


class LogKeeper:
    """Keeps the log of a journal short, for one writer.

    SQLite would do that itself, but up to 3.51.2 it loses commits if one connection
    restarts the log while another one copies it into the file (sqlite.org/wal.html,
    "The WAL-reset bug"). So a second connection keeps other writers out: the connection
    that copies must not be in a transaction.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._pages = 0  # written by this object; slightly fewer than the log has

    def wrote(self, connection: sqlite3.Connection, size: int = 0) -> None:
        """Count a commit of about `size` bytes, and copy the log into the file if it is
        long.
        """
        self._pages += 1 + size // PAGE_SIZE
        if self._pages >= CHECKPOINT_PAGES and self._copied(connection):
            self._pages = 0

    def _copied(self, connection: sqlite3.Connection) -> bool:
        try:
            with closing(connect(self._path, seconds=0)) as guard:
                guard.execute("BEGIN IMMEDIATE")
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        except SQLITE_ERRORS:
            return False  # another process writes, or the disk is full; the log keeps the data
        return True


def explain(path: str, error: BaseException, doing: str) -> JournalError | DamagedError:
    """Return the error of a journal for an error of SQLite or of the system."""
    if isinstance(error, OSError):
        return JournalError(f'Cannot {doing} "{error.filename or path}": {error.strerror or error}')
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # a UnicodeDecodeError has no code
    reason = None if code == sqlite3.SQLITE_IOERR_SHORT_READ else _REASONS.get(code & 0xFF)
    if reason is None:
        return DamagedError(str(error))
    return JournalError(f'Cannot {doing} "{path}": {reason} ({error})')


def _uri_path(path: str) -> str:
    return "/" + path.lstrip("/").replace("%", "%25").replace("?", "%3f").replace("#", "%23")
