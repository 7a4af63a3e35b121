"""Journals as `kill -9` leaves them: cut after any row."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.graph import Journal, MemoryJournal, Record
from atomic.graph.engine.journal import History, Row, RunLog, Signals


class KeptJournal(MemoryJournal):
    """A memory journal that can be cut: it keeps the first row and its snapshots."""

    def __init__(self) -> None:
        super().__init__()
        self.first: Row | None = None
        # Number of rows before it, number of steps before it, content.
        self.snapshots: list[tuple[int, int, bytes]] = []
        self.reads_snapshots = False

    def create(self, execution_id: str, start: Row) -> RunLog:
        self.first = start
        return _KeptLog(super().create(execution_id, start), self, execution_id)

    def acquire(self, execution_id: str) -> RunLog:
        return _KeptLog(super().acquire(execution_id), self, execution_id)

    def rows(self, execution_id: str) -> list[Row]:
        """Return all rows after the first."""
        return super().history(execution_id).rows

    def history(self, execution_id: str, *, at: int | None = None) -> History:
        whole = super().history(execution_id, at=at)
        usable = [found for found in self.snapshots if found[0] <= len(whole.rows)]
        if not usable or not self.reads_snapshots:
            return whole
        place, _, body = usable[-1]
        return History(whole.start, body, whole.rows[place:])

    def cut(self, execution_id: str, rows: int, *, snapshots: bool = False) -> KeptJournal:
        """Return the journal of a process that was killed after this number of rows."""
        assert self.first is not None
        result = KeptJournal()
        write(result, execution_id, [self.first, *self.rows(execution_id)[:rows]])
        result.snapshots = [found for found in self.snapshots if found[0] <= rows]
        result.reads_snapshots = snapshots
        return result


class _KeptLog:
    def __init__(self, log: RunLog, journal: KeptJournal, execution_id: str) -> None:
        self._log = log
        self._journal = journal
        self._id = execution_id

    def append(self, rows: Sequence[Row], *, sync: bool = True) -> None:
        self._log.append(rows, sync=sync)

    def snapshot(self, step: int, body: bytes) -> None:
        self._journal.snapshots.append((len(self._journal.rows(self._id)), step, body))

    def redacted(self, packed: bytes) -> bytes:
        return self._log.redacted(packed)

    def new_signals(self) -> Signals:
        return self._log.new_signals()

    def release(self) -> None:
        self._log.release()


def write(journal: Journal, execution_id: str, rows: Sequence[Row]) -> None:
    """Write rows into a journal like an owner that dies afterwards."""
    log = journal.create(execution_id, rows[0])
    if len(rows) > 1:
        log.append(rows[1:])
    log.release()


def finished(records: Sequence[Record]) -> list[Record]:
    return [record for record in records if record.step is not None]
