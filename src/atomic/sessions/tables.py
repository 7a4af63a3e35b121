"""The tables of a journal.

Only rows that the chain of checksums proves are returned.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from atomic.graph.engine.errors import JournalError, RunNotFoundError
from atomic.graph.engine.journal import Row, StartBody, decode_body, is_run
from atomic.sessions import chain
from atomic.sessions.chain import End, Snapshot, first_key
from atomic.sessions.durability import PAGE_SIZE, SQLITE_ERRORS, explain
from atomic.sessions.errors import BrokenChainError, DamagedError
from atomic.sessions.owner import Owner

APPLICATION_ID = 0x41744A31  # "AtJ1": identifies a journal among SQLite files
FORMAT = 1

# The order matters: recovery relies on the root pages that these statements produce.
# `runs.id` has no index: a damaged one would hide a run, and a journal has few runs.
TABLES = {
    "runs": "CREATE TABLE runs (number INTEGER PRIMARY KEY, id TEXT NOT NULL, fence INTEGER NOT NULL,"
    " host TEXT, boot TEXT, space TEXT, pid INTEGER, born TEXT, token TEXT, ticked REAL, renewed REAL)",
    "rows": "CREATE TABLE rows (key INTEGER PRIMARY KEY, kind INTEGER NOT NULL, step INTEGER, body BLOB NOT NULL,"
    " crc INTEGER NOT NULL)",
    "snapshots": "CREATE TABLE snapshots (run INTEGER PRIMARY KEY, seq INTEGER NOT NULL, step INTEGER NOT NULL,"
    " chain INTEGER NOT NULL, crc INTEGER NOT NULL, body BLOB NOT NULL)",
}
OWNER_COLUMNS = "host, boot, space, pid, born, token, ticked, renewed"

MAX_RUNS = 1 << (62 - chain.RUN_BITS)

_RUNS = f"SELECT number, id, fence, {OWNER_COLUMNS} FROM runs"
_ROWS = "SELECT key, kind, step, body, crc FROM rows WHERE key >= ? AND key < ? ORDER BY key"
_NOBODY = (None,) * 8
_MAX_FENCE = 1 << 62


class Run(NamedTuple):
    """A row of the table of runs."""

    number: int
    execution_id: str
    fence: int
    owner: Owner | None

    def owned_by(self, owner: Owner) -> Run:
        return self._replace(fence=self.fence + 1, owner=owner)

    @property
    def keys(self) -> tuple[int, int]:
        """The first key of its rows, and the first key after them."""
        return first_key(self.number), first_key(self.number + 1)


class Tables:
    """The tables inside one transaction.

    Raises DamagedError if they differ from what was written.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def runs(self) -> list[Run]:
        """Return all runs in the order of their creation."""
        return [_run(columns) for columns in self._connection.execute(f"{_RUNS} ORDER BY number")]

    def find(self, execution_id: str) -> Run | None:
        try:
            columns = self._connection.execute(f"{_RUNS} WHERE id = ?", (execution_id,)).fetchone()
        except UnicodeEncodeError:
            return None  # no journal has an id that is not UTF-8
        return None if columns is None else _run(columns)

    def require(self, execution_id: str) -> Run:
        run = self.find(execution_id)
        if run is None:
            # Raises DamagedError if the wanted id may be damaged.
            starts = [self.start(each)[0] for each in self.runs()]
            names = [start.execution_id for start in starts if is_run(start)]
            raise RunNotFoundError(execution_id, names)
        return run

    def start(self, run: Run) -> tuple[StartBody, End]:
        """Return the first row of a run, and its position."""
        columns = self._connection.execute(_ROWS, (run.keys[0], run.keys[0] + 1)).fetchall()
        try:
            (row,) = chain.verified(columns, run.number, 0, chain.seed_of(run.execution_id))
        except (BrokenChainError, ValueError) as error:
            raise DamagedError(f'the first row of run "{run.execution_id}" is damaged') from error
        return decode_body(row, StartBody), End(0, columns[0][4])

    def rows(self, run: Run, after: End) -> Iterator[Row]:
        """Yield the rows after a position, in order."""
        first, end = run.keys
        stored = self._connection.execute(_ROWS, (first + after.seq + 1, end))
        try:
            yield from chain.verified(stored, run.number, after.seq + 1, after.crc)
        except BrokenChainError as broken:
            raise self._broken(run, broken.seq) from broken
        (key,) = self._connection.execute("SELECT max(key) FROM rows WHERE key >= ? AND key < ?", run.keys).fetchone()
        last = -1 if key is None else key - first
        if self._snapshot_seq(run) > max(last, after.seq) and self.snapshot(run):
            raise self._broken(run, last + 1)

    def newest_first(self, run: Run) -> Iterator[Row]:
        """Yield the rows from last to first.

        One is read ahead, since the row before proves each.
        """
        return (row for row, _ in self._backwards(run))

    def end(self, run: Run) -> End:
        for _, end in self._backwards(run):
            snapshot = self.snapshot(run) if self._snapshot_seq(run) > end.seq else None
            return end if snapshot is None else snapshot.end  # a recovery may keep it without the rows before it
        raise DamagedError(f'run "{run.execution_id}" has no rows')

    def snapshot(self, run: Run) -> Snapshot | None:
        return read_snapshot(self._connection, run.number, run.execution_id)

    def snapshot_for(self, run: Run, at: int | None) -> Snapshot | None:
        """Return the snapshot if it fits its rows and is not newer than the `at`-th
        finished step.
        """
        snapshot = self.snapshot(run)
        if snapshot is None:
            return None
        key = run.keys[0] + snapshot.seq
        row = self._connection.execute("SELECT step, crc FROM rows WHERE key = ?", (key,)).fetchone()
        if row is not None and row[1] != snapshot.chain:
            return None
        # A snapshot after the `at`-th step may include later rows that do not finish a
        # step.
        exact = row is not None and row[0] == at
        return snapshot if at is None or snapshot.step < at or exact else None

    def insert(self, execution_id: str, rows: Iterable[Row], owner: Owner | None) -> tuple[Run, End]:
        # The first fence is random: the number of a deleted run is reused, its fence is
        # not.
        run = Run(self._next_number(), execution_id, int.from_bytes(os.urandom(6), "big"), owner)
        values = (run.number, execution_id, run.fence, *_columns(owner))
        self._connection.execute(
            f"INSERT INTO runs (number, id, fence, {OWNER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values
        )
        end = End(-1, chain.seed_of(execution_id))
        for row in rows:
            seq = end.seq + 1
            end = End(seq, chain.link(end.crc, seq, *row))
            self._connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (run.keys[0] + seq, *row, end.crc))
        return run, end

    def add(self, run: Run, row: Row) -> None:
        """Add a row to a run that no process owns."""
        end = self.end(run)
        seq = end.seq + 1
        crc = chain.link(end.crc, seq, *row)
        self._connection.execute("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", (run.keys[0] + seq, *row, crc))

    def set_owner(self, run: Run) -> None:
        """Write the run's fence and owner."""
        self._connection.execute(
            f"UPDATE runs SET fence = ?, ({OWNER_COLUMNS}) = (?, ?, ?, ?, ?, ?, ?, ?) WHERE number = ?",
            (run.fence, *_columns(run.owner), run.number),
        )

    def owns(self, run: Run) -> bool:
        """Return whether the run still has this owner and fence."""
        token = run.owner.token if run.owner else None
        found = self._connection.execute("SELECT fence, token FROM runs WHERE number = ?", (run.number,)).fetchone()
        return found == (run.fence, token)

    def set_snapshot(self, run: Run, snapshot: Snapshot) -> None:
        """Replace the snapshot of a run; older ones are never needed."""
        crc = chain.snapshot_checksum(run.execution_id, snapshot)
        seq, step, previous, body = snapshot
        self._connection.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", (run.number, seq, step, previous, crc, body)
        )

    def delete(self, run: Run) -> None:
        self._connection.execute("DELETE FROM rows WHERE key >= ? AND key < ?", run.keys)
        self._connection.execute("DELETE FROM snapshots WHERE run = ?", (run.number,))
        self._connection.execute("DELETE FROM runs WHERE number = ?", (run.number,))

    def _next_number(self) -> int:
        (number,) = self._connection.execute("SELECT max(number) FROM runs").fetchone()
        (key,) = self._connection.execute("SELECT max(key) FROM rows").fetchone()
        following = max(number or 0, (key or 0) >> chain.RUN_BITS) + 1
        if following >= MAX_RUNS:
            raise DamagedError("a run has an impossible number")
        return following

    def _backwards(self, run: Run) -> Iterator[tuple[Row, End]]:
        later: tuple[int, Row, Any] | None = None
        for key, kind, step, body, crc in self._connection.execute(f"{_ROWS} DESC", run.keys):
            seq = key - run.keys[0]
            if later is not None:
                if later[0] != seq + 1 or not chain.is_link(crc if type(crc) is int else 0, *later):
                    yield from self._bridged(run, later)
                    return
                yield later[1], End(later[0], later[2])
            later = (seq, Row(kind, step, body), crc)
        if later is None or later[0] != 0 or not chain.is_link(chain.seed_of(run.execution_id), *later):
            raise DamagedError(f'the first row of run "{run.execution_id}" is damaged')
        yield later[1], End(0, later[2])

    def _bridged(self, run: Run, row: tuple[int, Row, Any]) -> Iterator[tuple[Row, End]]:
        """Yield the row if it follows a snapshot: the rows before that may be lost."""
        snapshot = self.snapshot(run)
        if snapshot is None or snapshot.seq != row[0] - 1 or not chain.is_link(snapshot.chain, *row):
            raise self._broken(run, row[0])
        yield row[1], End(row[0], row[2])

    def _snapshot_seq(self, run: Run) -> int:
        found = self._connection.execute("SELECT seq FROM snapshots WHERE run = ?", (run.number,)).fetchone()
        return found[0] if found is not None and type(found[0]) is int else -1

    def _broken(self, run: Run, seq: int) -> JournalError | DamagedError:
        snapshot = self.snapshot(run)
        if snapshot is None or snapshot.seq < seq:
            return DamagedError(f'row {seq} of run "{run.execution_id}" is damaged')
        # Not DamagedError: a recovery would cut the run here, although it can be
        # resumed.
        return JournalError(
            f'Row {seq} of run "{run.execution_id}" is damaged. The run can be resumed from its snapshot after '
            f"step {snapshot.step}, but the steps before that cannot be shown"
        )


def create(path: str) -> None:
    """Fill an empty file with an empty journal."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.executescript(
            # The whole file is synced before it gets its name, so no sync for each
            # table.
            f"PRAGMA synchronous=OFF; PRAGMA page_size={PAGE_SIZE}; PRAGMA auto_vacuum=NONE;"
            f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={FORMAT};"
            f"{';'.join(TABLES.values())}; PRAGMA journal_mode=WAL;"
        )
    finally:
        connection.close()


def run_numbers(connection: sqlite3.Connection) -> list[int]:
    """Return the numbers of all runs in the order of their creation.

    Raises DamagedError for an impossible one.
    """
    numbers = [number for (number,) in connection.execute("SELECT number FROM runs ORDER BY number")]
    if not all(0 < number < MAX_RUNS for number in numbers):
        raise DamagedError("a run has an impossible number")
    return numbers


def read_snapshot(connection: sqlite3.Connection, number: int, execution_id: str) -> Snapshot | None:
    """Return the snapshot of a run.

    None if there is no usable one, since it is only a cache.
    """
    try:
        row = connection.execute(
            "SELECT seq, step, chain, body, crc FROM snapshots WHERE run = ?", (number,)
        ).fetchone()
    except SQLITE_ERRORS as error:
        if isinstance(explain("", error, "read"), JournalError):
            raise
        return None
    if row is None:
        return None
    snapshot = Snapshot(*row[:4])
    return snapshot if chain.is_snapshot(execution_id, snapshot, row[4]) else None


def _run(columns: tuple[Any, ...]) -> Run:
    number, execution_id, fence, *owner = columns
    if not isinstance(execution_id, str) or type(fence) is not int:
        raise DamagedError("the table of runs is damaged")
    if not (0 < number < MAX_RUNS and 0 <= fence < _MAX_FENCE):
        raise DamagedError("the table of runs is damaged")
    try:
        return Run(number, execution_id, fence, Owner.from_columns(tuple(owner)))
    except ValueError as error:
        raise DamagedError("the table of runs is damaged") from error


def _columns(owner: Owner | None) -> tuple[str | int | float | None, ...]:
    return _NOBODY if owner is None else owner.columns
