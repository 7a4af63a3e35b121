"""Renews the leases of the runs that this process owns: one thread per journal.

It is a thread and not a task, because a node that blocks the event loop for a minute must
not lose the run.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from atomic.sessions.owner import RENEW_SECONDS, clocks

if TYPE_CHECKING:
    from atomic.sessions.database import LogKeeper

_LOCK_SECONDS = 1.0  # the longest time that a caller waits for the end of this thread


class Leases:
    """Renews the leases of the runs that were added, while there are any."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._runs: dict[int, int] = {}
        # Only the thread writes this, and only callers write `_runs`, so no lock is needed.
        self._fenced: set[tuple[int, int]] = set()
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    def add(self, number: int, fence: int) -> None:
        self._runs[number] = fence
        self.resume()

    def remove(self, number: int) -> None:
        self._runs.pop(number, None)
        if not self._runs:
            self.pause()

    def pause(self) -> None:
        """End the thread and close its connection; the runs are remembered."""
        thread = self._thread
        self._thread = None
        if thread is not None:
            self._stopped.set()
            # The garbage collector may call this in the thread itself.
            if thread is not threading.current_thread():
                thread.join()

    def resume(self) -> None:
        if self._runs and self._thread is None:
            self._stopped = threading.Event()
            self._thread = threading.Thread(
                target=self._renew_until, args=(self._stopped,), name="atomic-leases", daemon=True
            )
            self._thread.start()

    def _renew_until(self, stopped: threading.Event) -> None:
        from atomic.sessions.database import LogKeeper

        keeper = LogKeeper(self._path)
        while not stopped.wait(RENEW_SECONDS):
            self._renew(keeper)

    def _renew(self, keeper: LogKeeper) -> None:
        from atomic.sessions.database import SQLITE_ERRORS, connect

        # A failure does not end the run: the next renewal tries again, and the fence protects the file.
        try:
            connection = connect(self._path, seconds=_LOCK_SECONDS)
        except SQLITE_ERRORS:
            return
        try:
            # A lease need not survive a power cut: it belongs to this boot.
            connection.executescript("PRAGMA synchronous=NORMAL; BEGIN IMMEDIATE;")
            for number, fence in set(self._runs.items()) - self._fenced:
                sql = "UPDATE runs SET ticked = ?, renewed = ? WHERE number = ? AND fence = ?"
                if connection.execute(sql, (*clocks(), number, fence)).rowcount == 0:
                    self._fenced.add((number, fence))  # another process took it over
            connection.execute("COMMIT")
            keeper.wrote(connection)  # a run may wait for days while only leases are written
        except SQLITE_ERRORS:
            pass
        finally:
            connection.close()
