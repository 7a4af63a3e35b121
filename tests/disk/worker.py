"""The traced process: `worker.py JOURNAL TASKS LEDGER FAULT`.

It starts or resumes the run and records each start of a node in a ledger that Atomic does
not know. A fault disables a sync on purpose, to test that the checks detect it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from unittest.mock import patch

from atomic.workflows import RunStatus, SqliteJournal
from tests.disk.tracer import wait_for_go
from tests.disk.workflow import disk_graph, run_to_the_end


class Ledger:
    """A line for each event. It needs no fsync: the tracer sees the write itself."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def start(self, step_id: str, attempt: int) -> None:
        os.write(self._fd, f"start {step_id} {attempt}\n".encode())

    def told(self, status: RunStatus) -> None:
        os.write(self._fd, f"told {status}\n".encode())


def shorten_intervals() -> ExitStack:
    """Set short limits, so that a short run renews leases and wraps logs."""
    stack = ExitStack()
    stack.enter_context(patch("atomic.sessions.owner.RENEW_SECONDS", 0.02))
    stack.enter_context(patch("atomic.sessions.durability.CHECKPOINT_PAGES", 40))
    return stack


def spoil(fault: str) -> ExitStack:
    """Disable a sync without the knowledge of the code that relies on it."""
    stack = ExitStack()
    fsync = os.fsync

    class Hasty(sqlite3.Connection):
        def executescript(self, sql_script: str, /) -> sqlite3.Cursor:
            return super().executescript(sql_script.replace("synchronous=FULL", fault))

    def no_fsync(fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode) != (fault == "no fsync of folders"):
            fsync(fd)

    if fault.startswith("synchronous="):
        stack.enter_context(patch("sqlite3.connect", partial(sqlite3.connect, factory=Hasty)))
    elif fault.startswith("no fsync of "):
        stack.enter_context(patch("os.fsync", no_fsync))
    return stack


def main(journal_path: str, tasks: str, ledger_path: str, fault: str) -> None:
    wait_for_go()
    ledger = Ledger(ledger_path)
    compiled = disk_graph(Path(tasks), ledger.start)
    with shorten_intervals(), spoil(fault), SqliteJournal(journal_path) as journal:
        result = asyncio.run(run_to_the_end(compiled, journal, ledger.told))
    if result.status is not RunStatus.COMPLETED:
        raise SystemExit(f"{result.status}: {result.error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
