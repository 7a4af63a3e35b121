"""Writes the rows of a run in order, with one disk sync for rows of the same moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from atomic.graph.engine.journal import Row, RunLog, Signals

_SNAPSHOT_BYTES = 1_000_000
_ROW_COST = 200  # reading a row costs about as much as this many bytes of it


class JournalWriter:
    """Writes rows to a run's log.

    A single walker writes directly, which is cheaper than any hand-over. When several
    run at the same time, the rows of one turn of the event loop share a transaction,
    and each walker continues when its row is on disk.
    """

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._queue: list[Row] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._sync = False
        self._unfolded = 0  # bytes that a reader has to read after the last snapshot
        self._snapshot_at = _SNAPSHOT_BYTES
        # Whether rows of concurrent writers wait for `write_held`, to share a sync with later ones.
        self.is_held: Callable[[], bool] | None = None
        self._held_since = 0.0
        self.shared = 0  # number of active task groups; above 0, writers are concurrent

    def later(self, row: Row) -> None:
        """Write this row together with the next one that is awaited."""
        self._queue.append(row)

    def now(self, row: Row) -> None:
        """Write and sync a row before returning."""
        if self._queue:
            self._queue.append(row)
            self._flush(sync=True)
            return
        self._log.append((row,))
        self._unfolded += len(row.body) + _ROW_COST

    def discard(self) -> None:
        """Forget the rows that are not written yet."""
        self._queue.clear()

    def flush(self) -> None:
        """Write and sync the queued rows before returning."""
        self._flush(sync=True)

    async def write(self, row: Row, *, sync: bool = True) -> None:
        """Write a row together with others of the same moment.

        Return when it is on disk.
        """
        self._queue.append(row)
        await self.settle(sync=sync)

    async def settle(self, *, sync: bool = True) -> None:
        """Write the queued rows. Return when they are on disk.

        Without `sync` they survive the death of this process, but not of the machine.
        """
        if not self.shared:
            self._flush(sync=sync)
            return
        loop = asyncio.get_running_loop()
        written: asyncio.Future[None] = loop.create_future()
        if not self._waiting:
            self._held_since = time.monotonic()
            loop.call_soon(self._flush_waiting)
        self._waiting.append(written)
        self._sync = self._sync or sync
        await written

    def write_held(self, *, older_than: float = 0.0) -> None:
        """Write the rows of concurrent writers, if they have waited so many seconds."""
        if self._waiting and time.monotonic() - self._held_since >= older_than:
            self._write_waiting()

    def _flush_waiting(self) -> None:
        if self.is_held is None or not self.is_held():
            self._write_waiting()

    def _write_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        sync, self._sync = self._sync, False
        error: Exception | None = None
        try:
            self._flush(sync=sync)
        except Exception as failure:  # every writer must see the error: none may assume that its row is safe
            error = failure
        for written in waiting:
            if written.done():
                continue
            if error is None:
                written.set_result(None)
            else:
                written.set_exception(error)

    def _flush(self, *, sync: bool) -> None:
        if not self._queue:
            return
        rows, self._queue = self._queue, []
        self._log.append(rows, sync=sync)
        self._unfolded += sum(len(row.body) + _ROW_COST for row in rows)

    def new_signals(self) -> Signals:
        """Return the signals of the run that were sent since the last call."""
        return self._log.new_signals()

    @property
    def wants_snapshot(self) -> bool:
        return self._unfolded > self._snapshot_at

    def snapshot(self, step: int, body: bytes, *, forced: bool = False) -> None:
        """Store a snapshot if it saves the reader work.

        A state as large as its log would only double the size.
        """
        if not forced and len(body) * 3 > self._unfolded:
            self._snapshot_at *= 2
            return
        self._flush(sync=True)
        self._log.snapshot(step, body)
        self._unfolded = 0
        self._snapshot_at = max(_SNAPSHOT_BYTES, 4 * len(body))
