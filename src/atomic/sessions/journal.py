"""SqliteJournal: the journal of runs in one SQLite file.

A run is its rows, each chained to the one before it (`chain`). The table of runs has
the range of keys and the owner of each run. Every write is checked against the run's
fence number, which grows with each new owner, so that an owner that was believed dead
and continues cannot write.

A journal may be used from several threads: each operation holds the file's lock,
because they share one connection.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import uuid4

from atomic.graph.engine.errors import JournalError, RunNotFoundError, RunOwnedError
from atomic.graph.engine.journal import (
    FACTS_SUFFIX,
    History,
    Records,
    Row,
    RunLog,
    Runs,
    Signals,
    describe_run,
    forked_rows,
    is_run,
    records_of,
    rows_until,
)
from atomic.graph.engine.sent_signals import check_can_receive, packed_signal
from atomic.sessions.chain import End, Snapshot, first_key, link
from atomic.sessions.errors import DamagedError, Recovery
from atomic.sessions.owner import Leases, Owner
from atomic.sessions.signals import SentSignals, delete_signals, is_signals, leave_signals, send_signal

if TYPE_CHECKING:
    from atomic.base.redaction import Redactor
    from atomic.sessions.journal_file import JournalFile
    from atomic.sessions.row_redaction import RowRedaction
    from atomic.sessions.tables import Run, Tables

ResultT = TypeVar("ResultT")


def open_journal(path: str | os.PathLike[str], *, is_new: bool) -> SqliteJournal:
    """Open the SQLite journal at a path; only with `is_new` a file is created.

    Raises JournalError.
    """
    if not is_new and not os.path.exists(path):
        raise JournalError(
            f'There is no journal "{os.fspath(path)}": a run continues only with the journal that it was recorded in'
        )
    return SqliteJournal(path)


def open_redacting(path: str | os.PathLike[str], redactor: Redactor) -> SqliteJournal:
    """Open or create the SQLite journal at a path, which removes secrets as it writes.

    Raises JournalError.
    """
    from atomic.sessions.row_redaction import RowRedaction

    journal = SqliteJournal(path)
    journal.redaction = RowRedaction(redactor)
    return journal


class SqliteJournal:
    """Runs in one SQLite file, which survives a kill and a power cut.

    A damaged file is recovered to the last good record of each run, or refused.
    `recovered` describes that, and a copy of the damaged file is always kept. A journal
    may be used from several threads; each run belongs to one of them.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        # Imported here: a program that opens no journal does not load SQLite.
        from atomic.sessions.journal_file import JournalFile

        try:
            real = os.path.realpath(path)
        except ValueError as error:
            raise JournalError(f"{os.fspath(path)!r} is not a path: {error}") from error
        self._file: JournalFile = JournalFile(real)
        self.redaction: RowRedaction | None = None
        self._leases = Leases(real)
        self._logs: dict[int, _SqliteLog] = {}
        # A journal that is garbage without being closed must release its runs.
        self._ended = weakref.finalize(self, _end, self._file, self._leases)
        self._ended.atexit = False

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def recovered(self) -> Recovery | None:
        """Return the report of a recovery, if the file was damaged."""
        return self._file.recovered

    def create(self, execution_id: str, start: Row) -> RunLog:
        """Create a run and own it. Raises JournalError if the id exists."""
        if is_signals(execution_id):
            raise JournalError(f'"{execution_id}" cannot be the id of a run: this end of an id is for its signals')

        def create() -> RunLog:
            first = start if self.redaction is None else self.redaction.row(start)
            with self._file.writing() as tables:
                if tables.find(execution_id) is not None:
                    raise JournalError(f'Run "{execution_id}" exists already; resume it, or give another id')
                run, end = tables.insert(execution_id, [first], _me())
            return self._own(run, end)

        try:
            execution_id.encode()
        except UnicodeEncodeError as error:
            raise JournalError(f"{execution_id!r} cannot be the id of a run: {error}") from error
        return self._repaired(create)

    def acquire(self, execution_id: str) -> RunLog:
        """Own an existing run. Raises RunNotFoundError, RunOwnedError."""

        def acquire() -> RunLog:
            with self._file.writing() as tables:
                run = self._require_free(tables, execution_id).owned_by(_me())
                end = tables.end(run)
                tables.set_owner(run)
            return self._own(run, end)

        return self._repaired(acquire)

    def history(self, execution_id: str, *, at: int | None = None) -> History:
        """Read a run, up to its `at`-th finished step, without owning it."""

        def history() -> History:
            with self._file.reading() as tables:
                return _history(tables, tables.require(execution_id), at)

        return self._repaired(history)

    def redacted(self, packed: bytes) -> bytes:
        """Return a msgpack value without the secrets that the journal removes."""
        return packed if self.redaction is None else self.redaction.packed(packed)

    def list(self) -> Runs:
        """Return all runs in the order of their creation.

        Only the ends of each are read.
        """

        def describe() -> Runs:
            with self._file.reading() as tables:
                starts = [(run, tables.start(run)[0]) for run in tables.runs()]
                return [describe_run(start, tables.newest_first(run)) for run, start in starts if is_run(start)]

        return self._repaired(describe)

    def records(self, execution_id: str) -> Records:
        """Return the finished steps of a run."""

        def records() -> Records:
            with self._file.reading() as tables:
                run = tables.require(execution_id)
                start, first = tables.start(run)
                return records_of(start, tables.rows(run, first))

        return self._repaired(records)

    def fork(self, execution_id: str, *, at: int | None = None, update: Mapping[str, Any] | None = None) -> str:
        """Copy a run up to its `at`-th finished step under a new id, and return that
        id.

        The copy begins with `update` merged into the state of that step. Whether it fits
        is checked when the copy is loaded or continued.
        """
        new_id = str(uuid4())

        def fork() -> None:
            with self._file.writing() as tables:
                run = tables.require(execution_id)
                start, first = tables.start(run)
                rows = rows_until(tables.rows(run, first), at)
                copied = forked_rows(start, rows, new_id, update)
                if update is not None and self.redaction is not None:
                    copied[-1] = self.redaction.row(copied[-1])
                tables.insert(new_id, copied, None)
                leave_signals(tables, execution_id, new_id)

        self._repaired(fork)
        return new_id

    def signal(self, execution_id: str, name: str, data: Any = None) -> None:
        """Send a signal to a run, which may belong to another process.

        It is on the disk when this returns. Raises RunNotFoundError, SignalError.
        """
        packed = packed_signal(name, data)

        def send() -> None:
            with self._file.writing(size=len(packed)) as tables:
                run = tables.require(execution_id)
                check_can_receive(execution_id, next(iter(tables.newest_first(run))))
                send_signal(tables, execution_id, name, packed, self.redaction)

        self._repaired(send)
        self._file.signals_sent += 1

    def signals(self, execution_id: str) -> Signals:
        """Return all signals that were sent to a run, in order."""

        def signals() -> Signals:
            with self._file.reading() as tables:
                tables.require(execution_id)
            return SentSignals(self._file, execution_id).new()

        return self._repaired(signals)

    def delete(self, execution_id: str) -> None:
        """Remove a run and all its rows. Raises RunNotFoundError, RunOwnedError."""

        def delete() -> None:
            with self._file.writing() as tables:
                tables.delete(self._require_free(tables, execution_id))
                facts = tables.find(f"{execution_id}{FACTS_SUFFIX}")
                if facts is not None:
                    tables.delete(facts)
                delete_signals(tables, execution_id)

        self._repaired(delete)

    def close(self) -> None:
        """Release all runs and close the file; a second call does nothing."""
        with self._file.thread_lock:
            for log in tuple(self._logs.values()):
                log.release()
            self._ended()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _require_free(self, tables: Tables, execution_id: str) -> Run:
        run = tables.require(execution_id)
        if run.owner is not None and run.owner.is_alive():
            raise RunOwnedError(execution_id, run.owner.pid)
        return run

    def _own(self, run: Run, end: End) -> RunLog:
        log = _SqliteLog(self._file, run, end, self._disown, self.redaction)
        self._logs[run.number] = log
        self._leases.add(run.number, run.fence)
        return log

    def _disown(self, number: int) -> None:
        self._logs.pop(number, None)
        self._leases.remove(number)

    def _repaired(self, action: Callable[[], ResultT]) -> ResultT:
        """Call an action.

        If the file is damaged, recover it and call the action again.
        """
        with self._file.thread_lock:
            try:
                return action()
            except DamagedError as damage:
                self._repair(damage)
            try:
                return action()
            except DamagedError as damage:
                kept_as = self.recovered.kept_as if self.recovered else None
                raise JournalError(f'"{self.path}" is damaged: {damage.reason}', kept_as=kept_as) from damage

    def _repair(self, damage: DamagedError) -> None:
        if any(log.has_written for log in self._logs.values()):
            # A running engine remembers rows that a recovery may remove.
            raise JournalError(
                f'"{self.path}" is damaged: {damage.reason}; end its runs, then open it again to recover it'
            ) from damage
        self._leases.pause()
        try:
            self._file.repair(damage, ours={number: log.run for number, log in self._logs.items()})
        finally:
            self._leases.resume()
        for log in tuple(self._logs.values()):
            with suppress(RunNotFoundError), self._file.reading() as tables:
                log.rewind(tables.end(tables.require(log.run.execution_id)))


class _SqliteLog:
    """Writes the rows of a run that this process owns."""

    def __init__(
        self, file: JournalFile, run: Run, end: End, disown: Callable[[int], None], redaction: RowRedaction | None
    ) -> None:
        self.run = run
        self.has_written = False
        self._file = file
        self._disown = disown
        self._redaction = redaction
        self._released = False
        self._signals: SentSignals | None = None
        self._number = run.number
        self._fence = run.fence
        self._first_key = first_key(run.number)
        self._seq, self._crc = end

    def append(self, rows: Sequence[Row], *, sync: bool = True) -> None:
        if self._redaction is not None:
            rows = [self._redaction.row(row) for row in rows]
        with self._file.thread_lock:
            if self._released:
                raise RunOwnedError(self.run.execution_id, None, taken_over=True)
            seq = self._seq
            crc = self._crc
            try:
                if len(rows) == 1:
                    # Nearly every append has one row, so this path builds no list.
                    kind, step, body = rows[0]
                    seq += 1
                    crc = link(crc, seq, kind, step, body)
                    key = self._first_key + seq
                    written = self._file.append((key, kind, step, body, crc, self._number, self._fence), sync=sync)
                else:
                    values: list[tuple[int | bytes | None, ...]] = []
                    for kind, step, body in rows:
                        seq += 1
                        crc = link(crc, seq, kind, step, body)
                        values.append((self._first_key + seq, kind, step, body, crc, self._number, self._fence))
                    written = not values or self._file.append_all(values, sync=sync)
            except DamagedError as damage:
                raise self._cannot_write(damage) from damage
            if not written:
                raise self._taken_over()
            self._seq = seq
            self._crc = crc
            self.has_written = True

    def snapshot(self, step: int, body: bytes) -> None:
        if self._redaction is not None:
            body = self._redaction.packed(body)
        with self._file.thread_lock:
            if self._released:
                raise RunOwnedError(self.run.execution_id, None, taken_over=True)
            try:
                # A snapshot is a cache, so it is not synced.
                with self._file.writing(sync=False, size=len(body)) as tables:
                    owned = tables.owns(self.run)
                    if owned:
                        tables.set_snapshot(self.run, Snapshot(self._seq, step, self._crc, body))
            except DamagedError as damage:
                raise self._cannot_write(damage) from damage
            if not owned:
                raise self._taken_over()

    def redacted(self, packed: bytes) -> bytes:
        return packed if self._redaction is None else self._redaction.packed(packed)

    def new_signals(self) -> Signals:
        with self._file.thread_lock:
            if self._signals is None:
                self._signals = SentSignals(self._file, self.run.execution_id)
            try:
                return self._signals.new()
            except DamagedError as damage:
                raise JournalError(f'Cannot read "{self._file.path}": it is damaged ({damage.reason})') from damage

    def release(self) -> None:
        with self._file.thread_lock:
            if self._released:
                return
            self._released = True
            self._disown(self._number)
            # If this fails, the lease expires.
            with suppress(JournalError, DamagedError), self._file.writing(sync=False) as tables:
                if tables.owns(self.run):
                    tables.set_owner(self.run._replace(owner=None))

    def rewind(self, end: End) -> None:
        """Continue after the rows that a recovery has kept."""
        self._seq, self._crc = end
        self._signals = None

    def _cannot_write(self, damage: DamagedError) -> JournalError:
        return JournalError(f'Cannot write "{self._file.path}": it is damaged ({damage.reason})')

    def _taken_over(self) -> RunOwnedError:
        """Release the run after another process took or deleted it, and return the
        error.
        """
        self._released = True
        self._disown(self._number)
        pid = None
        with suppress(JournalError, DamagedError), self._file.reading() as tables:
            run = tables.find(self.run.execution_id)
            pid = run.owner.pid if run is not None and run.owner is not None else None
        return RunOwnedError(self.run.execution_id, pid, taken_over=True)


def _history(tables: Tables, run: Run, at: int | None) -> History:
    start, first = tables.start(run)
    snapshot = tables.snapshot_for(run, at)
    if snapshot is not None:
        rows = _rows_after(tables, run, snapshot, at)
        if rows is not None:
            return History(start, snapshot.body, rows)
    return History(start, None, rows_until(tables.rows(run, first), at))


def _rows_after(tables: Tables, run: Run, snapshot: Snapshot, at: int | None) -> list[Row] | None:
    """Return the rows after a snapshot, up to the `at`-th finished step.

    None if there is no such step.
    """
    kept: list[Row] = []
    if at == snapshot.step:
        return kept
    for row in tables.rows(run, snapshot.end):
        kept.append(row)
        if at is not None and row.step == at:
            return kept
    return kept if at is None else None


def _me() -> Owner:
    return Owner.this_process(os.urandom(8).hex())


def _end(file: JournalFile, leases: Leases) -> None:
    leases.pause()
    file.close()
