"""No process can write while a log is copied: SQLite up to 3.51.2 can lose commits then.

SQLite's documentation calls it the "WAL-reset bug". If one connection restarts the log
while another one copies it, the second may mark commits as copied that are not. The bug
cannot be triggered on demand, so these tests check the condition that rules it out.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from atomic.sessions import SqliteJournal, durability, owner
from tests.disk.cases import Place
from tests.disk.tracer import Entry, run_traced
from tests.disk.workflow import make_tasks
from tests.sessions.rows import start_row, step_row

WORKER = Path(__file__).with_name("worker.py")


def may_write(journal: Path) -> bool:
    """Return whether another process could write now."""
    with closing(sqlite3.connect(journal, timeout=0, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True


def copied_pages(place: Place) -> Iterator[bool]:
    """Yield for each page copied from the log whether another process could write."""
    arguments = [str(place.journal), str(place.tasks), str(place.ledger), "none"]
    with closing(run_traced(str(WORKER), arguments)) as stops:
        for stop in stops:
            if isinstance(stop, Entry) and stop.call == "pwrite64":
                fd = stop.args[0] & 0xFFFFFFFF
                if os.readlink(f"/proc/{stop.tid}/fd/{fd}") == str(place.journal):
                    yield may_write(place.journal)


def test_no_process_can_write_while_a_log_is_copied(tmp_path: Path) -> None:
    place = Place(tmp_path)
    for folder in (place.run, place.ledger.parent, place.tasks.parent):
        folder.mkdir()
    make_tasks(place.tasks)
    found = list(copied_pages(place))
    assert len(found) > 50
    # When the last connection closes the file, no other has it open; a new one waits.
    assert not any(found)


def life(log: Path) -> int:
    """Return the first salt of a log's header, which grows by one at each restart."""
    return int.from_bytes(log.read_bytes()[16:20], "big")


def test_the_log_of_a_run_that_only_waits_stays_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owner, "RENEW_SECONDS", 0.001)
    monkeypatch.setattr(durability, "CHECKPOINT_PAGES", 10)
    log = tmp_path / "journal.db-wal"
    deadline = time.monotonic() + 60
    with SqliteJournal(tmp_path / "journal.db") as journal:
        journal.create("run", start_row("run"))
        first = life(log)
        while life(log) - first & 0xFFFFFFFF < 5:
            assert time.monotonic() < deadline, f"the log has {log.stat().st_size} bytes and was not restarted"
            time.sleep(0.01)
        assert log.stat().st_size < 15 * durability.PAGE_SIZE


def test_a_log_that_another_process_writes_is_copied_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint does not wait for other processes, and nothing depends on it."""
    monkeypatch.setattr(durability, "CHECKPOINT_PAGES", 3)
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal, closing(sqlite3.connect(path, isolation_level=None)) as other:
        run = journal.create("run", start_row("run"))
        size = path.stat().st_size
        connect = durability.connect

        def too_late(*words: object, **options: object) -> sqlite3.Connection:
            """Let the other process write between a commit and the checkpoint after it."""
            if not other.in_transaction:
                other.execute("BEGIN IMMEDIATE")
            return connect(str(path), seconds=0)

        with monkeypatch.context() as patched:
            patched.setattr(durability, "connect", too_late)
            for step in (1, 2):
                run.append([step_row(step)])
                if other.in_transaction:
                    other.execute("ROLLBACK")
        assert path.stat().st_size == size
        run.append([step_row(3, text="x" * 30_000)])
        assert path.stat().st_size > size
