"""Signals between processes, in damaged journals, and without secrets."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from atomic.base.redaction import Redactor
from atomic.graph.engine.errors import JournalError, RunNotFoundError
from atomic.sessions import SqliteJournal
from atomic.sessions.chain import first_key
from atomic.sessions.journal import open_redacting
from atomic.sessions.journal_file import JournalFile
from tests.sessions.processes import start
from tests.sessions.rows import start_row, step_row
from tests.sessions.signal_worker import RUN, counting
from tests.support.waits import HANG, wait_until


@contextmanager
def worker(path: Path, count: int) -> Generator[subprocess.Popen[str]]:
    process = start("signal_worker.py", str(path), str(count))
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def has_run(path: Path) -> bool:
    if not path.exists():
        return False
    with SqliteJournal(path) as journal:
        return bool(journal.list())


def received(path: Path, count: int) -> list[int]:
    return counting(count).load(path, RUN).numbers


def test_another_process_receives_a_signal_while_it_owns_the_run(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with worker(path, 2) as process:
        wait_until(lambda: has_run(path), "run")
        with SqliteJournal(path) as journal:
            journal.signal(RUN, "number", 7)
            wait_until(lambda: received(path, 2) == [7], "signal in the state")
            journal.signal(RUN, "number", 8)
        assert process.wait(HANG) == 0
    assert received(path, 2) == [7, 8]


@pytest.mark.ci
def test_no_signal_is_lost_or_received_twice_when_the_run_is_killed_again_and_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    count = 60
    sent = threading.Event()
    dice = random.Random(17)

    def send() -> None:
        with SqliteJournal(path) as journal:
            for number in range(count):
                journal.signal(RUN, "number", number)
                time.sleep(dice.uniform(0.0, 0.15))
        sent.set()

    with worker(path, count):
        wait_until(lambda: has_run(path), "run")
    sender = threading.Thread(target=send)
    sender.start()
    kills = 0
    try:
        while not sent.is_set() or kills < 10:
            with worker(path, count) as process:
                with_signals = len(received(path, count))
                wait_until(lambda: process.poll() is not None or len(received(path, count)) > with_signals, "progress")  # noqa: B023
                time.sleep(dice.uniform(0.0, 0.05))
                process.send_signal(signal.SIGKILL)
                kills += 1
                if process.wait(HANG) == 0:
                    break
    finally:
        sender.join(HANG)
    with worker(path, count) as process:
        assert process.wait(HANG) == 0
    assert kills >= 5
    assert received(path, count) == list(range(count))


def test_signals_hold_no_secrets(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with open_redacting(path, Redactor(["s3cr3t-value-123"])) as journal:
        journal.create(RUN, start_row(RUN)).release()
        journal.signal(RUN, "go", {"token": "s3cr3t-value-123"})
        log = journal.acquire(RUN)
        (found,) = log.new_signals()
        assert b"s3cr3t" not in bytes(found.data)
    files = [file.read_bytes() for file in tmp_path.iterdir() if file.is_file()]
    assert b"s3cr3t-value" not in b"".join(files)


def test_recovery_keeps_the_signals_of_a_damaged_journal(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with SqliteJournal(path) as journal:
        log = journal.create(RUN, start_row(RUN))
        for step in range(1, 200):
            log.append([step_row(step)])
        journal.signal(RUN, "go", 1)
        journal.signal(RUN, "go", 2)
        log.release()
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE rows SET body = x'00' WHERE key = ?", (first_key(1) + 100,))
    connection.close()
    with SqliteJournal(path) as journal:
        assert len(journal.history(RUN).rows) == 99
        assert journal.recovered is not None
        journal.signal(RUN, "go", 3)
        log = journal.acquire(RUN)
        assert [bytes(found.data) for found in log.new_signals()] == [b"\x01", b"\x02", b"\x03"]


def test_a_run_of_an_earlier_version_may_have_the_id_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    with SqliteJournal(path) as journal:
        with pytest.raises(JournalError, match='"run/signals" cannot be the id of a run'):
            journal.create("run/signals", start_row("run/signals"))
        with pytest.raises(RunNotFoundError):
            journal.signal("run/signals", "go")


def test_reading_is_cheap_while_nobody_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "runs.db"
    with SqliteJournal(path) as journal:
        log = journal.create(RUN, start_row(RUN))
        journal.signal(RUN, "go", 1)
        assert [found.name for found in log.new_signals()] == ["go"]
        opened: list[str] = []

        def count(file: JournalFile) -> None:
            opened.append(file.path)

        monkeypatch.setattr(JournalFile, "reading", count)
        assert log.new_signals() == []
        assert opened == []
