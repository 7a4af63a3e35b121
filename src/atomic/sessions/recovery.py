"""Builds a new journal from the rows of a damaged one that can still be proved.

The damaged files are copied first, and the copies are never changed. Several readings
of them are tried, since damage to one part (the log, the first page) leaves others
readable. Of each run the longest reading with an intact chain of checksums is used.
Other rows are dropped: a step that runs twice is better than one that never ran.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Any

from atomic.graph.engine.errors import JournalError
from atomic.graph.engine.journal import Row, StartBody, decode_body
from atomic.sessions import chain, durability, wal_reader
from atomic.sessions.chain import Snapshot
from atomic.sessions.durability import PAGE_SIZE, SQLITE_ERRORS
from atomic.sessions.errors import DamagedError, FactsLostError, Recovery
from atomic.sessions.facts import is_facts, run_of
from atomic.sessions.files import copy_file, install_rebuilt, keep_aside, rebuilt_path, size_of, sync_file, sync_folder
from atomic.sessions.owner import Owner
from atomic.sessions.tables import MAX_RUNS, OWNER_COLUMNS, TABLES, Run, create, read_snapshot


@dataclass(slots=True)
class _Reading:
    """One way to read the damaged files."""

    path: str
    without_log: bool
    as_found: bool = False
    runs: dict[str, _Found] = field(default_factory=dict[str, "_Found"])
    lost: dict[int, str] = field(default_factory=dict[int, str])  # runs without a first row, by number
    complete: bool = True

    def connect(self) -> sqlite3.Connection:
        return durability.connect(self.path, read_only=True, without_log=self.without_log)


@dataclass(slots=True)
class _Found:
    """The proved rows of one run: its first ones and, if a snapshot bridges a gap,
    those after it.
    """

    reading: _Reading
    number: int
    execution_id: str
    first: int
    seen: int = 0
    is_counted: bool = False  # whether `seen` counts all rows that were written
    snapshot: Snapshot | None = None
    after: int = 0  # rows after the snapshot
    owner: Owner | None = None

    @property
    def bridged(self) -> bool:
        return self.snapshot is not None and self.snapshot.seq >= self.first

    @property
    def end(self) -> int:
        """The number after that of its last row."""
        if self.snapshot is not None and self.bridged:
            return self.snapshot.seq + 1 + self.after
        return self.first

    @property
    def kept(self) -> int:
        return self.first + self.after

    def is_better_than(self, other: _Found) -> bool:
        """Return whether this has more rows.

        An unbroken row is preferred to a later one after a gap.
        """
        if self._fills_gap_of(other):
            return True
        return self.end > other.end and not other._fills_gap_of(self)

    def _fills_gap_of(self, other: _Found) -> bool:
        """Return whether this has the rows that the other only bridges by its snapshot."""
        return other.bridged and other.snapshot is not None and self.first > other.snapshot.seq


def recover(path: str, damage: DamagedError, *, ours: Mapping[int, Run]) -> Recovery:
    """Replace a damaged journal by its proved rows; the caller has exclusive access.

    `ours` are the runs that the caller owns.

    Raises:
        JournalError: nothing can be read, or another process uses it; the file is not changed.
        FactsLostError: facts of a run are damaged; the file is not changed, so later attempts fail too.
    """
    with suppress(FileNotFoundError):
        shutil.rmtree(_work_folder(path))
    kept_as = keep_aside(path)
    try:
        os.mkdir(_work_folder(path), 0o700)
        readings = list(_readings(path, kept_as, damage))
        runs = _best(readings)
        _refuse_if_owned(path, runs.values(), kept_as)
        _build(f"{_work_folder(path)}/new", runs, ours)
        if not runs and not _was_empty(readings, damage):
            raise JournalError(f'"{path}" is damaged: {damage.reason}; no run in it can be read', kept_as=kept_as)
        recovery = _report(path, damage, kept_as, readings, runs)
        _refuse_if_facts_are_lost(path, damage, recovery, readings, runs)
        os.rename(f"{_work_folder(path)}/new", rebuilt_path(path))
        sync_folder(path)
        install_rebuilt(path)
    except (*SQLITE_ERRORS, OSError) as error:
        reason = f"{damage.reason}; it could not be recovered: {error}"
        raise JournalError(f'"{path}" is damaged: {reason}', kept_as=kept_as) from error
    finally:
        shutil.rmtree(_work_folder(path), ignore_errors=True)
        with suppress(FileNotFoundError):
            os.unlink(f"{kept_as}-shm")
    return recovery


def _work_folder(path: str) -> str:
    return f"{path}.recovering"


def _readings(path: str, kept_as: str, damage: DamagedError) -> Iterator[_Reading]:
    """Read the files with and without the log.

    If rows are missing, also in all other ways.
    """
    first: list[_Reading] = []
    if size_of(kept_as):  # SQLite deletes the log of an empty file when it opens that
        has_log = size_of(f"{kept_as}-wal") > 0
        first = [_Reading(kept_as, without_log=not has_log, as_found=True)]
        first += [_Reading(kept_as, without_log=True)] if has_log else []
    for reading in first:
        yield _survey(reading)
    if not damage.lost_bytes and _is_clean(first):
        return
    for number, log_pages in enumerate(_log_variants(kept_as)):
        for new_first_page in (False, True):
            copy = f"{_work_folder(path)}/{number}-{new_first_page}"
            _copy_with_pages(kept_as, copy, *log_pages, new_first_page=new_first_page)
            reading = _survey(_Reading(copy, without_log=True))
            yield reading
            if _is_clean([reading]):
                return


def _is_clean(readings: list[_Reading]) -> bool:
    is_complete = any(reading.complete and not reading.lost for reading in readings)
    return is_complete and all(run.kept == run.seen for run in _best(readings).values())


def _log_variants(kept_as: str) -> Iterator[tuple[dict[int, bytes], int]]:
    """Yield the pages of the log: of all frames, of those with a good checksum, and
    none.
    """
    if size_of(f"{kept_as}-wal"):
        yield wal_reader.pages(kept_as, verified=False)
        yield wal_reader.pages(kept_as, verified=True)
    yield {}, 0


def _copy_with_pages(source: str, copy: str, log_pages: dict[int, bytes], count: int, *, new_first_page: bool) -> None:
    copy_file(source, copy)
    largest = (size_of(source) + size_of(f"{source}-wal")) // PAGE_SIZE + 1
    count = count or size_of(copy) // PAGE_SIZE
    with open(copy, "r+b") as file:
        for number, page in log_pages.items():
            if 0 < number <= largest:  # a damaged number must not create a file of terabytes
                file.seek((number - 1) * PAGE_SIZE)
                file.write(page)
        if new_first_page:
            file.seek(0)
            file.write(_first_page(f"{copy}-empty", min(max(1, count), largest)))


def _first_page(scratch: str, pages: int) -> bytes:
    """Return the first page, which is the same in every journal except for the page
    count.
    """
    create(scratch)
    with open(scratch, "rb") as file:
        page = bytearray(file.read(PAGE_SIZE))
    page[28:40] = pages.to_bytes(4, "big") + bytes(8)  # no free pages: an unused one does no harm
    return bytes(page)


def _survey(reading: _Reading) -> _Reading:
    try:
        with closing(reading.connect()) as connection:
            known = _known_runs(connection, reading)
            for number in sorted(known.keys() | _numbers_of_rows(connection, reading)):
                _survey_run(connection, reading, number, known.get(number))
    except SQLITE_ERRORS:
        reading.complete = False
    return reading


def _known_runs(connection: sqlite3.Connection, reading: _Reading) -> dict[int, tuple[Any, ...]]:
    # Do not read other tables: one might be a view.
    tables = dict(connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'"))
    if any(tables.get(name) != sql for name, sql in TABLES.items()):
        raise sqlite3.DatabaseError("the tables are not those of a journal")
    known: dict[int, tuple[Any, ...]] = {}
    try:
        for number, *rest in connection.execute(f"SELECT number, id, {OWNER_COLUMNS} FROM runs"):
            if 0 < number < MAX_RUNS:
                known[number] = tuple(rest)
    except SQLITE_ERRORS:
        reading.complete = False
    return known


def _numbers_of_rows(connection: sqlite3.Connection, reading: _Reading) -> set[int]:
    """Return the numbers of the runs that have rows, whatever the table of runs has."""
    numbers: set[int] = set()
    key = chain.first_key(1)
    try:
        while found := connection.execute(
            "SELECT key FROM rows WHERE key >= ? ORDER BY key LIMIT 1", (key,)
        ).fetchone():
            number = found[0] >> chain.RUN_BITS
            if number >= MAX_RUNS or number in numbers:
                break
            numbers.add(number)
            key = chain.first_key(number + 1)
    except SQLITE_ERRORS:
        reading.complete = False
    return numbers


def _survey_run(connection: sqlite3.Connection, reading: _Reading, number: int, known: tuple[Any, ...] | None) -> None:
    known_id, *columns = known or (None,)
    keys = (chain.first_key(number), chain.first_key(number + 1))
    execution_id = _id_of(connection, keys[0], known_id)
    first = 0
    if execution_id is not None:
        first = sum(1 for _ in _proved(connection, number, 0, chain.seed_of(execution_id)))
    if execution_id is None or first == 0:
        reading.lost[number] = known_id if isinstance(known_id, str) else f"number {number}"
        return
    run = _Found(reading, number, execution_id, first)
    reading.runs[execution_id] = run
    with suppress(ValueError):
        run.owner = Owner.from_columns(tuple(columns)) if columns else None
    run.snapshot = _find_snapshot(connection, run)
    if run.snapshot and run.bridged:
        run.after = sum(1 for _ in _proved(connection, number, run.snapshot.seq + 1, run.snapshot.chain))
    run.seen = run.kept
    with suppress(*SQLITE_ERRORS):
        (run.seen,) = connection.execute("SELECT count(*) FROM rows WHERE key >= ? AND key < ?", keys).fetchone()
        run.is_counted = True


def _id_of(connection: sqlite3.Connection, key: int, known_id: Any) -> str | None:
    """Return the id of the run that the first row belongs to, if it can be proved."""
    try:
        row = connection.execute("SELECT kind, step, body, crc FROM rows WHERE key = ?", (key,)).fetchone()
    except SQLITE_ERRORS:
        return None
    if row is None:
        return None
    candidates = [known_id] if isinstance(known_id, str) else []
    with suppress(JournalError, TypeError):
        candidates.append(decode_body(Row(*row[:3]), StartBody).execution_id)
    return next((each for each in candidates if chain.is_link(chain.seed_of(each), 0, row[:3], row[3])), None)


def _proved(connection: sqlite3.Connection, number: int, seq: int, previous: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows from `seq` on that can be proved."""
    first = chain.first_key(number)
    for key, kind, step, body, crc in _stored(connection, first + seq, chain.first_key(number + 1)):
        if key != first + seq or not chain.is_link(previous, seq, (kind, step, body), crc):
            return
        yield key, kind, step, body, crc
        seq += 1
        previous = crc


def _stored(connection: sqlite3.Connection, key: int, end: int) -> Iterator[tuple[Any, ...]]:
    """Yield the rows up to the first one that cannot be read."""
    sql = "SELECT key, kind, step, body, crc FROM rows WHERE key >= ? AND key < ? ORDER BY key"
    with suppress(*SQLITE_ERRORS):
        for row in connection.execute(sql, (key, end)):
            key = row[0] + 1
            yield row
    # Python's cursor reads one row ahead, so an error hides the row before it.
    with suppress(*SQLITE_ERRORS):
        yield from connection.execute(f"{sql} LIMIT 1", (key, end)).fetchall()


def _find_snapshot(connection: sqlite3.Connection, run: _Found) -> Snapshot | None:
    try:
        found = read_snapshot(connection, run.number, run.execution_id)
        if found is None or found.seq >= run.first:
            return found
        key = chain.first_key(run.number) + found.seq
        row = connection.execute("SELECT crc FROM rows WHERE key = ?", (key,)).fetchone()
    except SQLITE_ERRORS:
        return None
    return found if row == (found.chain,) else None


def _best(readings: list[_Reading]) -> dict[str, _Found]:
    best: dict[str, _Found] = {}
    numbers: dict[int, str] = {}
    for reading in readings:
        for execution_id, run in reading.runs.items():
            if numbers.setdefault(run.number, execution_id) != execution_id:
                continue
            if execution_id not in best or run.is_better_than(best[execution_id]):
                best[execution_id] = run
    return best


def _was_empty(readings: list[_Reading], damage: DamagedError) -> bool:
    """Return whether there was no run: at most the first write to a new journal was
    unfinished.
    """
    if damage.lost_commits > 1:
        return False
    return any(reading.as_found and reading.complete and not reading.lost for reading in readings)


def _refuse_if_owned(path: str, runs: Iterable[_Found], kept_as: str) -> None:
    for run in runs:
        if run.owner and not run.owner.is_this_process() and run.owner.is_alive():
            raise JournalError(
                f'"{path}" is damaged, and process {run.owner.pid} is at work with run "{run.execution_id}" in it; '
                "open it again when that has ended",
                kept_as=kept_as,
            )


def _refuse_if_facts_are_lost(
    path: str, damage: DamagedError, recovery: Recovery, readings: list[_Reading], runs: Mapping[str, _Found]
) -> None:
    """Raise FactsLostError if a run would lose its caps, its checks or the list of the
    user's files.
    """
    lost = [name for name in recovery.runs_dropped if is_facts(name)]
    for name in filter(is_facts, runs):
        found = [reading.runs[name] for reading in readings if name in reading.runs]
        missing = max(run.seen for run in found) - runs[name].kept
        is_counted = any(run.is_counted and run.end >= runs[name].end for run in found)
        # A power cut may leave the last write unfinished: it was never reported as
        # done.
        is_cut_short = missing == 1 and damage.lost_bytes > 0 and damage.lost_commits <= 1
        if (missing > 0 and not is_cut_short) or not is_counted:
            lost.append(name)
    if lost:
        raise FactsLostError(path, damage.reason, run_of(lost[0]), kept_as=recovery.kept_as)


def _build(target: str, runs: dict[str, _Found], ours: Mapping[int, Run]) -> None:
    create(target)
    with closing(durability.connect(target)) as connection:
        # Safe, because the whole file is synced before it gets its name.
        connection.executescript("PRAGMA synchronous=OFF; BEGIN;")
        for run in sorted(runs.values(), key=lambda run: run.number):
            if not _copy_run(connection, run, ours.get(run.number)):
                run.reading.lost[run.number] = run.execution_id
                del runs[run.execution_id]
        connection.execute("COMMIT")
        # Closing would do the same, but without an error if the disk is full.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    sync_file(target)


def _copy_run(connection: sqlite3.Connection, run: _Found, ours: Run | None) -> bool:
    """Copy the proved rows of a run; return False without rows."""
    # Prove and count again: a damaged tree may give other rows the second time.
    with closing(run.reading.connect()) as source:
        run.first = _copy_rows(connection, _proved(source, run.number, 0, chain.seed_of(run.execution_id)))
        if run.first == 0:
            return False
        if run.snapshot and run.bridged:
            rows = _proved(source, run.number, run.snapshot.seq + 1, run.snapshot.chain)
            run.after = _copy_rows(connection, rows)
    if run.snapshot:
        crc = chain.snapshot_checksum(run.execution_id, run.snapshot)
        seq, step, previous, body = run.snapshot
        values = (run.number, seq, step, previous, crc, body)
        connection.execute("INSERT INTO snapshots VALUES (?, ?, ?, ?, ?, ?)", values)
    # The owner is gone, or it is the caller, who keeps its fence.
    fence = ours.fence if ours else int.from_bytes(os.urandom(6), "big")
    columns = ours.owner.columns if ours and ours.owner else (None,) * 8
    connection.execute(
        f"INSERT INTO runs (number, id, fence, {OWNER_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (run.number, run.execution_id, fence, *columns),
    )
    return True


def _copy_rows(connection: sqlite3.Connection, rows: Iterable[tuple[Any, ...]]) -> int:
    return max(0, connection.executemany("INSERT INTO rows VALUES (?, ?, ?, ?, ?)", rows).rowcount)


def _report(
    path: str, damage: DamagedError, kept_as: str, readings: list[_Reading], runs: Mapping[str, _Found]
) -> Recovery:
    seen = {name: max(each.runs[name].seen for each in readings if name in each.runs) for name in runs}
    cut = {name: seen[name] - run.kept for name, run in runs.items() if run.kept < seen[name]}
    numbers = {run.number for run in runs.values()}
    lost = {number: name for each in readings for number, name in each.lost.items()}
    dropped = tuple(name for number, name in sorted(lost.items()) if number not in numbers and name not in runs)
    unfinished = damage.lost_bytes and damage.lost_commits <= 1 and not cut and not dropped
    if unfinished:
        parts = [f'"{path}" ended in an unfinished write; its {damage.lost_bytes} bytes were dropped']
    else:
        parts = [f'"{path}" was damaged ({damage.reason}) and was recovered']
    parts += [f'run "{name}" was cut to its last good record, {count} rows are gone' for name, count in cut.items()]
    parts += [f'run "{name}" could not be read' for name in dropped]
    parts += [f"the damaged files are kept as {kept_as}"]
    return Recovery(
        kept_as=kept_as,
        message="; ".join(parts),
        lost_rows=sum(cut.values()),
        lost_bytes=damage.lost_bytes,
        runs_cut=tuple(cut),
        runs_dropped=dropped,
    )
