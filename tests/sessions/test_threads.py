"""One SqliteJournal object that several threads use at once, as a web server or `asyncio.to_thread` does."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

from atomic.sessions import SqliteJournal
from tests.sessions.processes import environment
from tests.sessions.rows import start_row, step_row

# In a separate process: the tested code once crashed the interpreter.
RUNS = """
    import asyncio, sys, threading
    from typing import Annotated
    from atomic.workflows import SqliteJournal, State, graph, reducers

    class Count(State):
        n: Annotated[int, reducers.sum] = 0

    async def one(ctx):
        await asyncio.sleep(0)
        return {"n": 1}

    counting = graph(Count)
    for place in range(20):
        counting = counting.node(f"n{place}", one)
    counting = counting.compile("counting")
    problems = []

    def work(worker, journal):
        try:
            for turn in range(5):
                run_id = f"{worker}-{turn}"
                result = asyncio.run(counting.run(journal=journal, execution_id=run_id))
                assert result.status == "completed" and result.state.n == 20, result
                assert len(journal.records(run_id)) == 20
                assert counting.load(journal, run_id, at=7).n == 7
                journal.list()
                journal.delete(journal.fork(run_id, at=3))
        except BaseException as error:
            problems.append(repr(error))

    async def beside(journal):
        await asyncio.gather(*(asyncio.to_thread(work, worker, journal) for worker in range(6)))

    with SqliteJournal(sys.argv[1]) as journal:
        asyncio.run(beside(journal))
        assert journal.recovered is None
        print(problems or len(journal.list()))
"""


def test_runs_in_several_threads_share_one_journal(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", textwrap.dedent(RUNS), str(tmp_path / "journal.db")],
        env=environment(), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout.strip()) == (0, "30"), done.stderr[-3000:]
    with SqliteJournal(tmp_path / "journal.db") as journal:
        assert journal.recovered is None
        assert {info.status for info in journal.list()} == {"completed"}


def test_a_forked_child_is_not_stopped_by_a_lock_of_its_parent(tmp_path: Path) -> None:
    """Fork while threads hold locks: the child inherits locks whose threads it lacks."""
    with SqliteJournal(tmp_path / "journal.db") as journal:
        log = journal.create("run", start_row("run"))
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                number += 1
                log.append([step_row(number)], sync=False)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            codes = [_list_in_child(journal) for _ in range(10)]
        finally:
            stop.set()
            writer.join()
        assert codes == [3] * 10


def _list_in_child(journal: SqliteJournal) -> int:
    """Fork; the child is refused (3), works (4), or hangs until its alarm ends it (-SIGALRM)."""
    import signal

    from atomic.graph.engine.errors import JournalError

    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            journal.list()
        except JournalError:
            os._exit(3)
        os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
