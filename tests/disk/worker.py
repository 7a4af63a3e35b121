"""The process that is watched: `worker.py JOURNAL TASKS LEDGER FAULT`.

It begins or resumes the run and tells each start of a node to a ledger that Atomic knows nothing of. A fault takes
something away on purpose, to see that the checks notice it.
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
    """A line for each thing that happens. It needs no fsync: the watcher sees the write itself."""

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def start(self, step_id: str, attempt: int) -> None:
        os.write(self._fd, f"start {step_id} {attempt}\n".encode())

    def told(self, status: RunStatus) -> None:
        os.write(self._fd, f"told {status}\n".encode())


def in_a_hurry() -> ExitStack:
    """What happens every few seconds or megabytes happens in this short run too: a thread renews leases, logs wrap."""
    stack = ExitStack()
    stack.enter_context(patch("atomic.sessions.owner.RENEW_SECONDS", 0.02))
    stack.enter_context(patch("atomic.sessions.database.CHECKPOINT_PAGES", 40))
    return stack


def spoil(fault: str) -> ExitStack:
    """Take a sync away, behind the back of the code that relies on it."""
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
    with in_a_hurry(), spoil(fault), SqliteJournal(journal_path) as journal:
        result = asyncio.run(run_to_the_end(compiled, journal, ledger.told))
    if result.status is not RunStatus.COMPLETED:
        raise SystemExit(f"{result.status}: {result.error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
