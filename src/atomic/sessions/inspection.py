"""Checks a journal before anything is written to it: its format and its integrity.

SQLite's own checks are not enough. It would create an empty database for a lost one,
drop the end of its log silently, and continue after a page that has lost half of its
rows.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing

from atomic.graph.engine.errors import JournalError
from atomic.sessions import chain, wal_reader
from atomic.sessions.durability import PAGE_SIZE, SQLITE_ERRORS, connect, explain
from atomic.sessions.errors import DamagedError
from atomic.sessions.files import size_of
from atomic.sessions.tables import APPLICATION_ID, FORMAT, TABLES, run_numbers

_MAGIC = b"SQLite format 3\0"
_LOOK_BYTES = 1 << 20
_QUICK_BYTES = 64 << 20  # a check reads the whole file, about 1.4 ms per megabyte


def is_new(path: str) -> bool:
    """Return whether nothing has been written yet.

    An empty file with a log is damaged, not new.
    """
    return size_of(path) == 0 and size_of(f"{path}-wal") == 0


def inspect(path: str) -> None:
    """Check a journal that no process has open; change nothing.

    Raises:
        DamagedError: it is a journal and damaged.
        JournalError: it is something else, or newer than this version, or cannot be read.
    """
    try:
        _check_header(path)
        with closing(connect(path, read_only=True)) as connection:
            check_format(path, connection)
            if size_of(f"{path}-wal"):
                _check_log(path, connection)
            elif size_of(path) > _QUICK_BYTES:
                return
            _check_structure(connection)
    except (OSError, *SQLITE_ERRORS) as error:
        raise explain(path, error, "read") from error


def check_format(path: str, connection: sqlite3.Connection) -> None:
    """Check that the tables are the ones this version writes.

    Raises DamagedError, JournalError.
    """
    (application_id,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if application_id == APPLICATION_ID and version > FORMAT:
        raise _newer(path, version)
    tables = dict(connection.execute("SELECT name, sql FROM sqlite_schema"))
    if (application_id, version, tables) != (APPLICATION_ID, FORMAT, TABLES):
        raise DamagedError("its tables are not those of a journal")


def _check_header(path: str) -> None:
    if size_of(path) == 0:
        raise DamagedError("the file is empty, but its log is not")
    with open(path, "rb") as file:
        head = file.read(100)
    if head[:16] == _MAGIC and head[68:72] == APPLICATION_ID.to_bytes(4, "big"):
        version = int.from_bytes(head[60:64], "big", signed=True)
        if version > FORMAT:
            raise _newer(path, version)
        if head[16:20] != PAGE_SIZE.to_bytes(2, "big") + b"\2\2" or version != FORMAT:
            raise DamagedError("its header is damaged")
    elif _has_traces(path):
        raise DamagedError("its header is damaged")
    else:
        raise JournalError(f'"{path}" is not a journal of Atomic; it was left as it is')


def _has_traces(path: str) -> bool:
    """Return whether a file without the header of a journal was one.

    Other files are not copied.
    """
    for name in (path, f"{path}-wal"):
        if size_of(name) == 0:
            continue
        with open(name, "rb") as file:
            start = file.read(_LOOK_BYTES)
        if TABLES["rows"].encode() in start:
            return True
        if name == path and any(_is_leaf(start[at : at + 8]) for at in range(PAGE_SIZE, len(start), PAGE_SIZE)):
            return True
    return False


def _is_leaf(header: bytes) -> bool:
    """Return whether a page starts like a table page with rows."""
    if len(header) < 8 or header[0] != 0x0D:
        return False
    cells = int.from_bytes(header[3:5], "big")
    content = int.from_bytes(header[5:7], "big")
    return cells > 0 and 8 + 2 * cells <= content < PAGE_SIZE and header[7] <= 60


def _check_log(path: str, connection: sqlite3.Connection) -> None:
    size, commits = wal_reader.dropped(path)
    if size:
        reason = f"the last {size} bytes of its log cannot be used"
        raise DamagedError(reason, lost_bytes=size, lost_commits=commits)
    # After a checkpoint, a log that lost its end may have older pages than the file;
    # SQLite would prefer those.
    ends = _ends(connection)
    try:
        with closing(connect(path, without_log=True)) as alone:
            check_format(path, alone)
            older = {number: end for number, end in _ends(alone).items() if number in ends}
    except (*SQLITE_ERRORS, DamagedError, JournalError):
        return  # during a checkpoint the file is not valid without its log
    if any(end > ends[number] for number, end in older.items()):
        raise DamagedError("its log is older than the file")


def _ends(connection: sqlite3.Connection) -> dict[int, int]:
    last = "SELECT max(key) FROM rows WHERE key >= ? AND key < ?"
    ranges = {number: (chain.first_key(number), chain.first_key(number + 1)) for number in run_numbers(connection)}
    return {number: connection.execute(last, keys).fetchone()[0] or 0 for number, keys in ranges.items()}


def _check_structure(connection: sqlite3.Connection) -> None:
    """Raise DamagedError if the structure of the file is damaged: rows could be lost
    unnoticed.
    """
    (answer,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    if answer != "ok":
        raise DamagedError(str(answer).removeprefix("*** in database main ***\n"))
    # A changed key may be outside of every run.
    first, last = connection.execute("SELECT min(key), max(key) FROM rows").fetchone()
    if {key >> chain.RUN_BITS for key in (first, last) if key is not None} - set(run_numbers(connection)):
        raise DamagedError("it has rows of no run")


def _newer(path: str, version: int) -> JournalError:
    return JournalError(
        f'"{path}" was written by a newer version of Atomic (format {version}, this one reads {FORMAT}); '
        "it was left as it is"
    )
