"""SqliteJournal as an engine and its users see it."""

from __future__ import annotations

import os
import sqlite3
import stat
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from atomic.graph.engine.errors import JournalError, RunNotFoundError, RunOwnedError
from atomic.graph.engine.journal import Journal, Row, RunLog, StartBody, decode_body
from atomic.sessions import SqliteJournal
from atomic.workflows import Flow, workflow
from tests.sessions.processes import environment
from tests.sessions.rows import (
    BEGIN,
    ended_row,
    reference_rows,
    resumed_row,
    start_row,
    started_row,
    step_row,
)
from tests.support.timing import judge
from tests.support.waits import wait_until


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqliteJournal]:
    with SqliteJournal(path) as journal:
        yield journal


def write(journal: Journal, execution_id: str, rows: list[Row]) -> RunLog:
    log = journal.create(execution_id, rows[0])
    for row in rows[1:]:
        log.append([row])
    return log


def change(path: Path, sql: str, *values: object) -> None:
    """Change the file without the journal."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(sql, values)
    connection.close()


def test_a_run_reads_back_as_it_was_written(path: Path) -> None:
    rows = reference_rows("run")
    with SqliteJournal(path) as journal:
        write(journal, "run", rows)
    with SqliteJournal(path) as journal:
        history = journal.history("run")
        assert history.start == decode_body(rows[0], StartBody)
        assert (history.snapshot, history.rows) == (None, rows[1:])
        assert journal.recovered is None


def test_runs_in_one_file_do_not_mix(journal: SqliteJournal) -> None:
    originals = {f"run-{n}": reference_rows(f"run-{n}", steps=9) for n in range(20)}
    logs = {name: journal.create(name, rows[0]) for name, rows in originals.items()}
    for index in range(1, 10):
        for name, log in logs.items():
            log.append([originals[name][index]])
    assert {name: journal.history(name).rows for name in originals} == {
        name: rows[1:10] for name, rows in originals.items()
    }


def test_rows_of_one_call_are_written_together(journal: SqliteJournal) -> None:
    rows = reference_rows("run")
    log = journal.create("run", rows[0])
    log.append(rows[1:8])
    log.append([])
    log.append(rows[8:9], sync=False)
    log.append(rows[9:], sync=False)
    assert journal.history("run").rows == rows[1:]


def test_a_run_continues_where_it_ended(path: Path) -> None:
    rows = reference_rows("run")
    for start in range(0, len(rows), 5):
        with SqliteJournal(path) as journal:
            log = journal.acquire("run") if start else journal.create("run", rows[0])
            log.append(rows[max(1, start) : start + 5])
    with SqliteJournal(path) as journal:
        assert journal.history("run").rows == rows[1:]


def test_history_ends_at_the_requested_step(journal: SqliteJournal) -> None:
    rows = [start_row("run"), step_row(1), resumed_row(), step_row(None), step_row(2), started_row("b"), step_row(3)]
    write(journal, "run", [*rows, ended_row()])
    assert journal.history("run", at=0).rows == []
    assert journal.history("run", at=1).rows == rows[1:2]
    assert journal.history("run", at=2).rows == rows[1:5]
    with pytest.raises(JournalError, match="There is no step 4; the run has 3"):
        journal.history("run", at=4)


def test_a_snapshot_spares_the_rows_before_it(journal: SqliteJournal) -> None:
    log = write(journal, "run", [start_row("run"), step_row(1), step_row(2)])
    log.snapshot(2, b"one and two")
    log.append([resumed_row(), step_row(3)])
    history = journal.history("run")
    assert (history.snapshot, history.rows) == (b"one and two", [resumed_row(), step_row(3)])
    assert [record.step for record in journal.records("run")] == [1, 2, 3]


def test_a_snapshot_is_not_used_for_a_step_before_it(journal: SqliteJournal) -> None:
    log = write(journal, "run", [start_row("run"), step_row(1), step_row(2), resumed_row()])
    log.snapshot(2, b"one and two, and more")
    log.append([step_row(3), step_row(4)])
    assert journal.history("run", at=1) == (journal.history("run").start, None, [step_row(1)])
    # As many steps as requested, but it includes the row after them.
    assert journal.history("run", at=2).snapshot is None
    assert journal.history("run", at=3)[1:] == (b"one and two, and more", [step_row(3)])
    log.snapshot(4, b"four")
    assert journal.history("run", at=4)[1:] == (b"four", [])
    assert journal.history("run", at=3).snapshot is None
    with pytest.raises(JournalError, match="There is no step 5; the run has 4"):
        journal.history("run", at=5)


@pytest.mark.parametrize("damage", ["body = x'00'", "seq = seq - 1", "step = step + 1", "chain = chain + 1", "crc = 0"])
def test_a_damaged_snapshot_is_ignored(path: Path, damage: str) -> None:
    with SqliteJournal(path) as journal:
        log = write(journal, "run", [start_row("run"), step_row(1), step_row(2)])
        log.snapshot(2, b"one and two")
        log.append([step_row(3)])
    change(path, f"UPDATE snapshots SET {damage}")
    with SqliteJournal(path) as journal:
        assert journal.history("run")[1:] == (None, [step_row(1), step_row(2), step_row(3)])
        assert journal.recovered is None


def test_records_are_the_finished_steps(journal: SqliteJournal) -> None:
    write(journal, "run", [start_row("run"), started_row("x"), step_row(1, text="a"), step_row(None, status="failed")])
    first, failed = journal.records("run")
    assert (first.step, first.update, first.step_id) == (1, {"log": ["a"]}, "run:node-1#1")
    assert (failed.step, failed.status) == (None, "failed")


def test_the_list_has_the_progress_of_each_run(journal: SqliteJournal) -> None:
    write(journal, "new", [start_row("new")])
    write(journal, "going", [start_row("going"), step_row(1), step_row(2, n=7), resumed_row()])
    write(journal, "done", [start_row("done"), step_row(1), ended_row("completed")])
    listed = [(run.execution_id, run.status, run.steps, run.updated - BEGIN) for run in journal.list()]
    assert listed == [("new", "running", 0, 0), ("going", "running", 2, 7.5), ("done", "completed", 1, 1000)]


def test_the_list_reads_only_the_ends_of_a_run(path: Path) -> None:
    with SqliteJournal(path) as journal:
        write(journal, "run", reference_rows("run"))
    change(path, "UPDATE rows SET body = x'00' WHERE step = 3")  # a list that read this row would fail
    with SqliteJournal(path) as journal:
        assert journal.list()[0].steps == 24
        assert journal.recovered is None


def test_a_fork_goes_its_own_way(journal: SqliteJournal) -> None:
    rows = [start_row("run"), step_row(1), resumed_row(), step_row(2), step_row(3)]
    write(journal, "run", rows)
    whole = journal.fork("run")
    part = journal.fork("run", at=2)
    none = journal.fork("run", at=0)
    assert [journal.history(each).rows for each in (whole, part, none)] == [rows[1:], rows[1:4], []]
    start = journal.history(part).start
    assert (start.execution_id, start.forked_from, start.graph) == (part, "run", "reference")
    log = journal.acquire(part)  # a fork has no owner
    log.append([step_row(3, text="another way")])
    assert journal.history("run").rows == rows[1:]
    assert journal.records(part)[-1].update == {"log": ["another way"]}
    with pytest.raises(JournalError, match="There is no step 9"):
        journal.fork("run", at=9)


def test_a_deleted_run_is_gone_and_its_id_free(journal: SqliteJournal) -> None:
    log = write(journal, "run", reference_rows("run"))
    log.snapshot(24, b"state")
    write(journal, "other", reference_rows("other"))
    with pytest.raises(RunOwnedError) as owned:
        journal.delete("run")
    assert owned.value.pid == os.getpid()
    log.release()
    journal.delete("run")
    assert [run.execution_id for run in journal.list()] == ["other"]
    write(journal, "run", [start_row("run"), step_row(1)])
    assert journal.history("run")[1:] == (None, [step_row(1)])


def test_a_log_of_a_deleted_run_cannot_write_into_the_run_after_it(path: Path, journal: SqliteJournal) -> None:
    old = write(journal, "old", [start_row("old"), step_row(1)])
    change(path, "UPDATE runs SET ticked = ticked - 100")  # it looks as if it had stopped
    with SqliteJournal(path) as other:
        other.delete("old")
        write(other, "new", [start_row("new")])
        with pytest.raises(RunOwnedError):
            old.append([step_row(2)])
        assert other.history("new").rows == []


def test_an_id_is_given_once(journal: SqliteJournal) -> None:
    journal.create("run", start_row("run"))
    with pytest.raises(JournalError, match='"run" exists already'):
        journal.create("run", start_row("run"))
    with pytest.raises(JournalError, match="cannot be the id"):
        journal.create("\ud800", start_row("x"))


@pytest.mark.parametrize("name", ["acquire", "history", "records", "fork", "delete"])
def test_a_run_that_is_not_there_is_named_with_the_nearest(journal: SqliteJournal, name: str) -> None:
    journal.create("nightly", start_row("nightly"))
    with pytest.raises(RunNotFoundError, match=r'"nihgtly".*did you mean "nightly"'):
        getattr(journal, name)("nihgtly")
    with pytest.raises(RunNotFoundError):
        getattr(journal, name)("\ud800")


@pytest.mark.parametrize("execution_id", ["", "'; DROP TABLE rows; --", "a\0b", "ünïcode 🧠", "x" * 10_000])
def test_any_text_can_be_an_id(journal: SqliteJournal, execution_id: str) -> None:
    journal.create("other", start_row("other"))
    write(journal, execution_id, [start_row(execution_id), step_row(1)])
    assert journal.history(execution_id).rows == [step_row(1)]
    assert [run.execution_id for run in journal.list()] == ["other", execution_id]


def test_only_the_user_may_read_the_files(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        journal = SqliteJournal(tmp_path / "new" / "folder" / "journal.db")
        write(journal, "run", [start_row("run"), step_row(1)])
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "new").rglob("*")}
    assert modes.pop("folder") == stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o700
    assert set(modes) > {"journal.db", "journal.db-wal", "journal.db-shm"}
    assert set(modes.values()) == {0o600}
    journal.close()


def test_a_file_that_others_could_read_is_closed_to_them(path: Path) -> None:
    SqliteJournal(path).close()
    path.chmod(0o644)
    with SqliteJournal(path) as journal:
        journal.create("run", start_row("run"))
        assert {stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()} == {0o600}


def test_a_closed_journal_is_one_file(path: Path) -> None:
    with SqliteJournal(path) as journal:
        write(journal, "run", reference_rows("run"))
    assert [file.name for file in path.parent.iterdir()] == ["journal.db"]


def test_an_empty_file_is_not_taken_for_a_new_journal(path: Path) -> None:
    path.touch()
    for _ in range(2):  # it stays as it is, so a program that tries again is refused again
        with pytest.raises(JournalError, match=r"is empty, which a journal never is.*or delete it to begin"):
            SqliteJournal(path)
        assert path.read_bytes() == b""
    path.unlink()
    with SqliteJournal(path) as journal:
        assert (journal.list(), journal.recovered) == ([], None)


async def test_a_run_in_an_empty_journal_is_reported_and_not_begun_again(path: Path) -> None:
    begun: list[str] = []

    @workflow
    async def pay(flow: Flow) -> None:
        begun.append("pay")

    path.touch()
    for verb in (pay.resume(str(path), "mine"), pay.start("mine", journal=str(path)), pay.run(journal=str(path))):
        with pytest.raises(JournalError, match="is empty"):
            await verb
    assert (begun, path.read_bytes()) == ([], b"")


def test_a_link_is_followed(path: Path) -> None:
    with SqliteJournal(path) as journal:
        write(journal, "run", [start_row("run"), step_row(1)])
    link = path.parent / "sub" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with SqliteJournal(link) as journal, SqliteJournal(path) as same:
        assert journal.path == same.path == str(path)
        journal.acquire("run")
        with pytest.raises(RunOwnedError):
            same.acquire("run")


def test_names_with_odd_letters_are_names(tmp_path: Path) -> None:
    path = tmp_path / "a?b#c%20*[d].db"
    with SqliteJournal(path) as journal:
        write(journal, "run", [start_row("run"), step_row(1)])
    with SqliteJournal(path) as journal:
        assert journal.history("run").rows == [step_row(1)]
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_path_that_cannot_hold_a_journal_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    for wrong, reason in [
        (tmp_path, "is not a file"),
        (tmp_path / "file" / "journal.db", "Not a directory"),
        (tmp_path / "nul\0", "is not a path"),
        (tmp_path / ("x" * 300), "File name too long"),
    ]:
        with pytest.raises(JournalError, match=reason):
            SqliteJournal(wrong)


def test_a_closed_journal_refuses_calls(path: Path) -> None:
    journal = SqliteJournal(path)
    log = write(journal, "run", [start_row("run"), step_row(1)])
    journal.close()
    journal.close()
    for action in (journal.list, lambda: journal.history("run"), lambda: journal.acquire("run")):
        with pytest.raises(JournalError, match="is closed"):
            action()
    with pytest.raises(RunOwnedError):
        log.append([step_row(2)])
    with pytest.raises(RunOwnedError):
        log.snapshot(1, b"")
    log.release()


def test_a_write_that_fails_leaves_the_journal_as_it_was(path: Path) -> None:
    # A limit of the file's size is as good as a full disk, and needs no disk.
    script = f"""
import resource
from atomic.graph.engine.errors import JournalError
from atomic.sessions import SqliteJournal
from tests.sessions.rows import start_row, step_row

journal = SqliteJournal({str(path)!r})
log = journal.create("run", start_row("run"))
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
step = 0
try:
    while step < 100:
        log.append([step_row(step + 1, text="x" * 3000)])
        step += 1
except JournalError as error:
    assert {str(path)!r} in str(error), error
for rows in ([step_row(99), step_row(100)], [step_row(99)]):
    for sync in (True, False):
        try:
            log.append(rows, sync=sync)
        except JournalError:
            continue
        raise AssertionError("there is no room for this")
assert [row.step for row in journal.history("run").rows] == list(range(1, step + 1)), step
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
log.append([step_row(step + 1)])
print(step + 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with SqliteJournal(path) as journal:
        assert [row.step for row in journal.history("run").rows] == list(range(1, int(done.stdout) + 1))
        assert journal.recovered is None


def test_a_journal_that_was_deleted_takes_no_more_rows(path: Path, journal: SqliteJournal) -> None:
    log = write(journal, "run", [start_row("run"), step_row(1)])
    aside = path.rename(path.parent / "aside.db")

    def refused() -> bool:
        try:
            log.append([resumed_row()], sync=False)
        except JournalError as error:
            return "deleted or replaced" in str(error)
        return False

    wait_until(refused)
    with pytest.raises(JournalError, match="deleted or replaced"):
        log.append([step_row(2), step_row(3)])
    aside.rename(path)
    log.append([step_row(2)])
    assert [row.step for row in journal.history("run").rows if row.step] == [1, 2]


def test_a_forked_child_does_not_use_its_parents_journal(path: Path, journal: SqliteJournal) -> None:
    log = write(journal, "run", [start_row("run"), step_row(1)])
    child = os.fork()
    if child == 0:
        refusals = 0
        for action in (lambda: log.append([step_row(2)]), lambda: journal.history("run")):
            try:
                action()
            except JournalError:
                refusals += 1
        journal.close()
        os._exit(refusals)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
    log.append([step_row(2)])
    with SqliteJournal(path) as other, pytest.raises(RunOwnedError):
        other.acquire("run")
    assert journal.history("run").rows == [step_row(1), step_row(2)]


def test_sqlite_is_loaded_with_the_first_journal_only(tmp_path: Path) -> None:
    script = f"""
import sys
from atomic.sessions import SqliteJournal
assert "sqlite3" not in sys.modules
SqliteJournal({str(tmp_path / "journal.db")!r}).close()
assert "sqlite3" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], env=environment(), check=True)


def test_a_thousand_rows_of_a_kilobyte_take_little_more_than_a_megabyte(path: Path) -> None:
    with SqliteJournal(path) as journal:
        log = journal.create("run", start_row("run"))
        for step in range(1, 1001):
            log.append([step_row(step, n=step, text="x" * 1060)], sync=False)
    assert path.stat().st_size <= 1_300_000


@pytest.mark.timed
@pytest.mark.full
def test_an_append_costs_little_more_than_sqlite_itself(path: Path, journal: SqliteJournal) -> None:
    raw = sqlite3.connect(path.parent / "raw.db", isolation_level=None)
    raw.executescript(
        "PRAGMA page_size=8192; PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=256;"
        "CREATE TABLE rows (key INTEGER PRIMARY KEY, body BLOB NOT NULL)"
    )
    cursor = raw.cursor()
    log = journal.create("run", start_row("run"))

    def cpu(action: Callable[[Row], object], rows: list[Row]) -> float:
        before = time.process_time()
        for row in rows:
            action(row)
        return time.process_time() - before

    ours: list[float] = []
    theirs: list[float] = []
    for turn in range(40):  # in turns: the machine may be shared
        rows = [step_row(turn * 50 + step, text="x" * 1060) for step in range(50)]
        ours.append(cpu(lambda row: log.append([row]), rows))
        theirs.append(cpu(lambda row: cursor.execute("INSERT INTO rows VALUES (?, ?)", row[1:]), rows))
    raw.close()
    judge(statistics.median(ours), 1.5 * statistics.median(theirs))


def test_the_thread_that_renews_ends_with_the_last_run(journal: SqliteJournal) -> None:
    def renewing() -> bool:
        return any(thread.name == "atomic-leases" for thread in threading.enumerate())

    assert not renewing()
    logs = [journal.create(name, start_row(name)) for name in ("one", "two")]
    assert renewing()
    logs[0].release()
    assert renewing()
    logs[1].release()
    assert not renewing()
    journal.acquire("one")
    assert renewing()
    journal.close()
    assert not renewing()


def test_an_unclosed_journal_releases_its_runs(path: Path) -> None:
    journal = SqliteJournal(path)
    write(journal, "run", [start_row("run"), step_row(1)])
    del journal
    import gc

    gc.collect()
    wait_until(lambda: not any(thread.name == "atomic-leases" for thread in threading.enumerate()))
    change(path, "UPDATE runs SET ticked = ticked - 100")
    with SqliteJournal(path) as journal:
        assert journal.recovered is None
        journal.acquire("run").append([step_row(2)])
