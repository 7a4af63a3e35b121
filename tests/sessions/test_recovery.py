"""Damaged journals: refused, recovered and reported; other files are not changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from functools import partial
from pathlib import Path

import pytest

from atomic.graph.engine.errors import JournalError, RunNotFoundError
from atomic.sessions import SqliteJournal
from tests.sessions.processes import start
from tests.sessions.rows import reference_rows, start_row, step_row

RUNS = ("one", "two")
ROWS = {name: reference_rows(name, steps=12) for name in RUNS}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Make a closed journal with two runs."""
    path = tmp_path / "journal.db"
    with SqliteJournal(path) as journal:
        for name, rows in ROWS.items():
            journal.create(name, rows[0]).append(rows[1:])
    return path


def change(path: Path, *statements: str) -> None:
    """Damage the content of the journal, not the structure of the database."""
    connection = sqlite3.connect(path, isolation_level=None)
    for sql in statements:
        connection.execute(sql)
    connection.close()


def kept(path: Path) -> list[str]:
    return sorted(str(file) for file in path.parent.iterdir() if ".damaged-" in file.name)


def add_snapshot(path: Path) -> None:
    """Add a snapshot after all rows of both runs, and two more rows to the second run."""
    with SqliteJournal(path) as journal:
        for name in RUNS:
            journal.acquire(name).snapshot(12, f"state of {name}".encode())
        journal.close()
    with SqliteJournal(path) as journal:
        journal.acquire("two").append([step_row(13), step_row(14)])


@pytest.mark.parametrize("content", [b"\x89PNG\r\n\x1a\n" * 700_000, b"print('hello')\n", bytes(50_000)], ids=len)
def test_a_file_that_is_not_a_journal_is_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content)
    with pytest.raises(JournalError, match="not a journal of Atomic") as refused:
        SqliteJournal(path)
    assert refused.value.kept_as is None
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["journal.db"]


def test_five_megabytes_of_junk_are_not_a_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(content := os.urandom(5_000_000))
    with pytest.raises(JournalError):
        SqliteJournal(path)
    assert path.read_bytes() == content


def test_a_database_of_another_program_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "places.sqlite"
    other = sqlite3.connect(path, isolation_level=None)
    other.executescript("PRAGMA journal_mode=WAL; CREATE TABLE runs (id); INSERT INTO runs VALUES ('mine')")
    before = path.read_bytes(), Path(f"{path}-wal").read_bytes()
    with pytest.raises(JournalError, match="not a journal of Atomic"):
        SqliteJournal(path)
    assert (path.read_bytes(), Path(f"{path}-wal").read_bytes()) == before
    assert kept(path) == []
    other.close()


def test_a_newer_journal_is_not_changed(path: Path) -> None:
    change(path, "PRAGMA user_version = 2")
    before = path.read_bytes()
    with pytest.raises(JournalError, match="newer version of Atomic"):
        SqliteJournal(path)
    assert path.read_bytes() == before
    assert kept(path) == []


def test_a_version_that_never_was_is_damage(path: Path) -> None:
    change(path, "PRAGMA user_version = 0")
    with SqliteJournal(path) as journal:
        assert {name: journal.history(name).rows for name in RUNS} == {name: ROWS[name][1:] for name in RUNS}
        assert journal.recovered is not None
        assert (journal.recovered.lost_rows, journal.recovered.runs_dropped) == (0, ())


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE rows SET body = substr(body, 1, length(body) - 1) WHERE key = {five}",
        "UPDATE rows SET body = CAST('text' AS TEXT) WHERE key = {five}",
        "UPDATE rows SET kind = kind + 1 WHERE key = {five}",
        "UPDATE rows SET kind = 2.5 WHERE key = {five}",
        "UPDATE rows SET step = 4294967296 WHERE key = {five}",
        "UPDATE rows SET crc = crc + 1 WHERE key = {five}",
        "UPDATE rows SET crc = x'00' WHERE key = {five}",
        "UPDATE rows SET key = key + 4294967296 WHERE key = {five}",
        "DELETE FROM rows WHERE key = {five}",
    ],
)
def test_a_run_ends_at_its_last_good_record(path: Path, damage: str) -> None:
    change(path, damage.format(five=(1 << 40) + 5))
    with SqliteJournal(path) as journal:
        assert journal.history("two").rows == ROWS["two"][1:]
        assert journal.recovered is None
        assert journal.history("one").rows == ROWS["one"][1:5]
        assert journal.history("two").rows == ROWS["two"][1:]
        recovery = journal.recovered
    assert recovery is not None
    assert (recovery.runs_cut, recovery.runs_dropped) == (("one",), ())
    assert recovery.lost_rows >= 9
    assert 'run "one" was cut to its last good record' in recovery.message
    assert kept(path) == [recovery.kept_as]
    with SqliteJournal(path) as journal:
        assert journal.recovered is None
        journal.acquire("one").append([step_row(5)])
        assert journal.history("one").rows == [*ROWS["one"][1:5], step_row(5)]


def test_rows_that_changed_places_are_noticed(path: Path) -> None:
    five = (1 << 40) + 5
    six = (1 << 40) + 6
    change(path, *(f"UPDATE rows SET key = {new} WHERE key = {old}" for old, new in ((five, 1), (six, five), (1, six))))
    with SqliteJournal(path) as journal:
        assert journal.history("one").rows == ROWS["one"][1:5]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET id = 'onf' WHERE number = 1",
        "UPDATE runs SET id = x'ff' WHERE number = 1",
        "UPDATE runs SET number = 77 WHERE number = 1",
        "UPDATE runs SET number = -1 WHERE number = 1",
        "UPDATE runs SET number = 9223372036854775807 WHERE number = 1",
        "UPDATE runs SET fence = 'x'",
        "UPDATE runs SET pid = 'x'",
        "DELETE FROM runs WHERE number = 1",
        "DELETE FROM runs WHERE number = 2",
        "DELETE FROM runs",
    ],
)
def test_the_table_of_runs_can_be_made_again_from_the_rows(path: Path, damage: str) -> None:
    change(path, damage)
    with SqliteJournal(path) as journal:
        assert {name: journal.history(name).rows for name in RUNS} == {name: ROWS[name][1:] for name in RUNS}
        assert [run.execution_id for run in journal.list()] == list(RUNS)
        assert journal.recovered is not None
        assert journal.recovered.lost_rows == 0
        for name in RUNS:
            journal.acquire(name)


def test_a_run_without_its_beginning_is_dropped_and_named(path: Path) -> None:
    change(path, f"UPDATE rows SET body = x'00' WHERE key = {1 << 40}")
    with SqliteJournal(path) as journal:
        with pytest.raises(RunNotFoundError):
            journal.history("one")
        assert journal.recovered is not None
        assert journal.recovered.runs_dropped == ("one",)
        assert journal.history("two").rows == ROWS["two"][1:]


def test_a_journal_in_which_nothing_can_be_read_is_refused_and_stays(path: Path) -> None:
    change(path, "UPDATE rows SET body = x'00'")
    before = path.read_bytes()
    copies: set[str | None] = set()
    for _ in range(3):
        with SqliteJournal(path) as journal, pytest.raises(JournalError, match="no run in it can be read") as refused:
            journal.history("one")
        copies.add(refused.value.kept_as)
    assert copies == set(kept(path))
    (copy,) = kept(path)  # who tries again does not fill the disk
    assert Path(copy).read_bytes() == path.read_bytes() == before


def test_damage_before_a_snapshot_does_not_cost_the_run(path: Path) -> None:
    add_snapshot(path)
    change(path, "UPDATE rows SET body = x'00' WHERE step = 5")
    with SqliteJournal(path) as journal:
        assert journal.history("one")[1:] == (b"state of one", [])
        assert journal.history("two")[1:] == (b"state of two", [step_row(13), step_row(14)])
        for ask in (journal.records, journal.fork, partial(journal.history, at=7)):
            with pytest.raises(JournalError, match="can be resumed from its snapshot after step 12"):
                ask("one")
        assert len(journal.history("one", at=3).rows) == 3  # before the damage
        assert journal.recovered is None


def test_a_recovery_keeps_rows_that_a_snapshot_proves(path: Path) -> None:
    add_snapshot(path)
    change(path, "UPDATE rows SET body = x'00' WHERE step = 5", "PRAGMA user_version = 0")
    for turn in range(2):
        with SqliteJournal(path) as journal:
            assert (journal.recovered is None) == bool(turn)
            assert journal.history("one")[1:] == (b"state of one", [step_row(13)] * turn)
            assert journal.history("two")[1:] == (b"state of two", [step_row(13), step_row(14)] + [step_row(15)] * turn)
            assert [run.execution_id for run in journal.list()] == ["one", "two"]
            for name in RUNS:
                with pytest.raises(JournalError, match="cannot be shown"):
                    journal.records(name)
            if turn == 0:
                journal.acquire("one").append([step_row(13)])
                journal.acquire("two").append([step_row(15)])


def test_a_running_run_is_not_cut(path: Path) -> None:
    with SqliteJournal(path) as journal:
        log = journal.acquire("one")
        log.append([step_row(13)])
        change(path, "UPDATE rows SET body = x'00' WHERE step = 5 AND key < 2199023255552")
        with pytest.raises(JournalError, match="end its runs"):
            journal.history("one")
        log.append([step_row(14)])
        log.release()
        # The row was changed in the log; the file itself still has it as it was.
        assert journal.history("one").rows == ROWS["one"][1:]


def test_a_recovery_that_was_killed_is_finished(path: Path) -> None:
    good = path.read_bytes()
    journal = SqliteJournal(path)
    journal.create("three", start_row("three")).append([step_row(1)])
    # As a crash leaves it: the new file is there, the old one and its log are in its place.
    shutil.copy(f"{path}-wal", path.parent / "log")
    journal.close()
    shutil.move(path.parent / "log", f"{path}-wal")
    Path(f"{path}.recovered").write_bytes(good)
    Path(f"{path}.recovering").mkdir()
    with SqliteJournal(path) as journal:
        assert [run.execution_id for run in journal.list()] == ["one", "two"]
        assert journal.history("one").rows == ROWS["one"][1:]
    assert not Path(f"{path}.recovered").exists()


def test_a_first_write_that_was_cut_short_leaves_a_new_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    empty = path.read_bytes()
    journal.create("run", start_row("run", text="x" * 20_000))
    log = Path(f"{path}-wal").read_bytes()
    journal.close()
    for size in range(1, len(log), 4001):
        path.write_bytes(empty)
        Path(f"{path}-wal").write_bytes(log[:size])
        with SqliteJournal(path) as journal:
            assert journal.list() == []


def test_the_dropped_end_of_a_log_is_reported_in_bytes(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    journal = SqliteJournal(path)
    log = journal.create("run", start_row("run"))
    log.append([step_row(1)])
    log.append([step_row(2)])
    files = {suffix: Path(f"{path}{suffix}").read_bytes() for suffix in ("", "-wal")}
    journal.close()
    path.write_bytes(files[""])
    Path(f"{path}-wal").write_bytes(files["-wal"][:-100])
    with SqliteJournal(path) as journal:
        assert journal.history("run").rows == [step_row(1)]
        assert journal.recovered is not None
        assert journal.recovered.lost_bytes == 8192 + 24 - 100
        assert "ended in an unfinished write; its 8116 bytes were dropped" in journal.recovered.message
        assert Path(f"{journal.recovered.kept_as}-wal").read_bytes() == files["-wal"][:-100]


def test_a_journal_that_a_living_process_works_with_is_not_recovered(tmp_path: Path) -> None:
    # A copy: only the table of runs shows that its owner is alive.
    path = tmp_path / "journal.db"
    owner = start("worker.py", str(path))
    assert owner.stdin
    assert owner.stdout
    try:
        owner.stdin.write('{"do": "create", "run": "run"}\n')
        owner.stdin.flush()
        owner.stdout.readline()
        copy = tmp_path / "copy.db"
        shutil.copy(path, copy)
        shutil.copy(f"{path}-wal", f"{copy}-wal")
        with Path(f"{copy}-wal").open("ab") as log:
            log.write(bytes(5000))
        with pytest.raises(JournalError, match=f"process {owner.pid} is at work") as refused:
            SqliteJournal(copy)
        assert refused.value.kept_as is not None
    finally:
        owner.kill()
        owner.communicate()
    with SqliteJournal(copy) as journal:
        assert journal.recovered is not None
        assert journal.history("run").rows == []
