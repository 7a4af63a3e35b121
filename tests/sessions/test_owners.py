"""A run has one owner at a time, and a replaced owner can no longer write."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from atomic.graph.engine.errors import JournalError, RunOwnedError
from atomic.sessions import SqliteJournal
from atomic.sessions.owner import STALE_SECONDS, Owner
from tests.sessions.processes import environment, start
from tests.sessions.rows import start_row, step_row
from tests.support.waits import wait_until


class Worker:
    """Another process that has the journal open."""

    def __init__(self, path: Path) -> None:
        self.process = start("worker.py", str(path))

    @property
    def pid(self) -> int:
        return self.process.pid

    def send(self, do: str, run: str = "", **more: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"do": do, "run": run, **more}) + "\n")
        self.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        assert line, "the worker has died"
        return json.loads(line)

    def do(self, do: str, run: str = "", **more: Any) -> dict[str, Any]:
        self.send(do, run, **more)
        return self.answer()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe:
                pipe.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def worker(path: Path) -> Iterator[Callable[[], Worker]]:
    workers: list[Worker] = []

    def make() -> Worker:
        workers.append(Worker(path))
        return workers[-1]

    yield make
    for each in workers:
        each.end()


def expire(path: Path) -> None:
    """Make all leases old, as if their owners had been stopped for long."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE runs SET ticked = ticked - ?", (STALE_SECONDS + 1,))
    connection.close()


def steps(journal: SqliteJournal, run: str) -> list[int | None]:
    return [row.step for row in journal.history(run).rows]


def test_of_two_that_reach_for_a_run_one_gets_it(path: Path, worker: Callable[[], Worker]) -> None:
    runs = [f"run-{n}" for n in range(60)]
    former = worker()
    for run in runs:
        assert former.do("create", run)["ok"]
    former.process.kill()
    pair = (worker(), worker())
    for each in pair:
        assert not each.do("acquire", "nothing")["ok"]  # it is there and has the file open
    for run in runs:
        at = time.monotonic() + 0.002
        for each in pair:
            each.send("acquire", run, at=at)
        answers = [each.answer() for each in pair]
        assert sorted(answer["ok"] for answer in answers) == [False, True], run
        winner = pair[0] if answers[0]["ok"] else pair[1]
        lost = next(answer for answer in answers if not answer["ok"])
        assert (lost["error"], lost["pid"]) == ("RunOwnedError", winner.pid)


def test_a_run_of_a_killed_process_is_free_at_once(path: Path, worker: Callable[[], Worker]) -> None:
    owner = worker()
    owner.do("create", "run")
    owner.do("append", "run", steps=[1, 2])
    with SqliteJournal(path) as journal:
        with pytest.raises(RunOwnedError, match=f"process {owner.pid}") as refused:
            journal.acquire("run")
        assert refused.value.pid == owner.pid
        # The dead process is not collected here: it is a zombie in the process table.
        os.kill(owner.pid, signal.SIGKILL)
        wait_until(lambda: Path(f"/proc/{owner.pid}/stat").read_text().split(")")[-1].split()[0] == "Z")
        journal.acquire("run").append([step_row(3)])
        assert steps(journal, "run") == [1, 2, 3]


@pytest.mark.ci  # it waits for the end of a lease
def test_a_stopped_owner_is_replaced_and_can_write_nothing_more(path: Path, worker: Callable[[], Worker]) -> None:
    stopped = worker()
    living = worker()
    stopped.do("create", "run")
    stopped.do("append", "run", steps=[1])
    living.do("create", "other")
    stopped.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    with SqliteJournal(path) as journal:

        def acquire() -> bool:
            nonlocal log
            try:
                log = journal.acquire("run")
            except RunOwnedError:
                return False
            return True

        log = None
        wait_until(acquire)
        assert log is not None
        # It had renewed its lease at most five seconds before it was stopped.
        assert time.monotonic() - began > STALE_SECONDS - 6
        with pytest.raises(RunOwnedError):
            journal.acquire("other")  # whose owner lives and has renewed its lease
        log.append([step_row(2, text="new")])
        stopped.process.send_signal(signal.SIGCONT)
        attempts: list[tuple[str, list[int]]] = [("append", [2]), ("append", [2, 3]), ("each", [4]), ("snapshot", [])]
        for do, numbers in attempts:
            answer = stopped.do(do, "run", steps=numbers)
            assert (answer["ok"], answer["error"]) == (False, "RunOwnedError"), do
        assert stopped.do("release", "run")["ok"]
        with pytest.raises(RunOwnedError):
            journal.acquire("run")  # it is still ours
        log.append([step_row(3, text="new")])
        assert journal.history("run").rows == [step_row(1), step_row(2, text="new"), step_row(3, text="new")]
        assert journal.history("run").snapshot is None


def test_the_replaced_owner_learns_who_replaced_it(path: Path, worker: Callable[[], Worker]) -> None:
    other = worker()
    with SqliteJournal(path) as journal:
        log = journal.create("run", start_row("run"))
        expire(path)
        assert other.do("acquire", "run")["ok"]
        with pytest.raises(RunOwnedError, match=f"taken over by process {other.pid}") as replaced:
            log.append([step_row(1), step_row(2)])
        assert replaced.value.pid == other.pid
        assert steps(journal, "run") == []
        log.release()  # takes nothing away from the new owner
        assert other.do("append", "run", steps=[1])["ok"]


def test_a_run_has_one_owner_inside_a_process_too(path: Path) -> None:
    with SqliteJournal(path) as journal, SqliteJournal(path) as same:
        log = journal.create("run", start_row("run"))
        for each in (journal, same):
            with pytest.raises(RunOwnedError) as refused:
                each.acquire("run")
            assert refused.value.pid == os.getpid()
        log.release()
        second = same.acquire("run")
        with pytest.raises(RunOwnedError):
            log.append([step_row(1)])
        second.append([step_row(1)])


def test_a_lease_is_renewed_while_the_owner_lives(path: Path) -> None:
    with SqliteJournal(path) as journal:
        journal.create("run", start_row("run"))
        connection = sqlite3.connect(path)

        def ticked() -> float:
            return connection.execute("SELECT ticked FROM runs").fetchone()[0]

        first = ticked()
        wait_until(lambda: ticked() > first + 1)
        connection.close()


def test_a_process_ends_although_it_owns_a_run(path: Path) -> None:
    script = f"""
from atomic.sessions import SqliteJournal
from tests.sessions.rows import start_row
journal = SqliteJournal({str(path)!r})
log = journal.create("run", start_row("run"))
"""
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True, timeout=30)
    with SqliteJournal(path) as journal:
        journal.acquire("run")


def test_two_processes_write_their_runs_into_one_file(path: Path, worker: Callable[[], Worker]) -> None:
    pair = (worker(), worker())
    numbers = list(range(1, 151))
    for name, each in zip("ab", pair, strict=True):
        assert each.do("create", name)["ok"]
        each.send("each", name, steps=numbers)
    assert [each.answer() for each in pair] == [{"ok": True}] * 2
    with SqliteJournal(path) as journal:
        assert steps(journal, "a") == steps(journal, "b") == numbers


def test_a_journal_that_others_have_open_is_not_recovered(path: Path, worker: Callable[[], Worker]) -> None:
    other = worker()
    other.do("create", "run")
    other.do("append", "run", steps=[1, 2, 3])
    connection = sqlite3.connect(path)
    with connection:
        connection.execute("UPDATE rows SET body = x'00' WHERE step = 2")
    connection.close()
    with SqliteJournal(path) as journal:
        with pytest.raises(JournalError, match="others have it open"):
            journal.history("run")
        assert journal.recovered is None
        assert other.do("append", "run", steps=[4])["ok"]
        assert other.do("close")["ok"]
        assert steps(journal, "run") == [1]
        assert journal.recovered is not None
        assert journal.recovered.runs_cut == ("run",)
        assert journal.recovered.lost_rows == 3


ME = Owner.this_process("token")


@pytest.mark.parametrize(
    ("owner", "lives"),
    [
        (ME, True),
        (replace(ME, renewed=0.0), True),  # the wall clock was set: it does not matter here
        (replace(ME, host="renamed"), True),  # the same boot is the same machine
        (replace(ME, born="1"), False),  # the pid was given to another process
        (replace(ME, pid=2**30), False),
        (replace(ME, boot="before"), False),
        (replace(ME, boot=""), True),  # unknown boot: only the lease decides
        (replace(ME, ticked=ME.ticked - STALE_SECONDS - 1), False),
        (replace(ME, ticked=ME.ticked + 3600), False),
        (replace(ME, host="other", boot="other", born="1"), True),
        (replace(ME, host="other", boot="other", renewed=ME.renewed - STALE_SECONDS - 60), False),
        (replace(ME, space="pid:[1]", born="1"), True),  # in a container: only the lease decides
    ],
)
def test_an_owner_lives_if_its_process_does_and_its_lease_is_new(owner: Owner, lives: bool) -> None:
    now = Owner.this_process("")
    age = now.ticked - ME.ticked  # since this list was made at import
    owner = replace(owner, ticked=owner.ticked + age, renewed=owner.renewed + age)
    assert owner.is_alive() is lives
