"""The hardest case for a repair: a restarted log whose first transaction is torn.

There, old pages lie after and between the new ones, and a snapshot can hide a missing
row. A traced run reaches this state only rarely, so these tests build it by hand.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from atomic.graph.engine.journal import Row
from atomic.sessions import SqliteJournal
from tests.disk.cases import read_rows
from tests.disk.cuts import temporary_folder
from tests.disk.disk import SECTOR
from tests.sessions.rows import start_row, step_row

STEPS = 15


def row(step: int) -> Row:
    return step_row(step, n=step, text=Random(step).randbytes(30_000 if step % 5 == 0 else 400).hex())


def wrapped_log(folder: Path, *, with_snapshot: bool) -> tuple[bytes, bytes, bytes]:
    """Return the database, its last synced log, and the log after its first new transaction."""
    path = folder / "journal.db"
    with SqliteJournal(path) as journal:
        log = journal.create("run", start_row("run"))
        for step in range(1, STEPS + 1):
            log.append([row(step)])
        if with_snapshot:
            log.snapshot(STEPS, Random(0).randbytes(3000))
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[0] == 0
        before = Path(f"{path}-wal").read_bytes()
        log.append([row(STEPS + 1)])
        database = path.read_bytes()
        after = Path(f"{path}-wal").read_bytes()
    assert before[:32] != after[:32], "the log was not restarted"
    # SQLite syncs a new header before the pages after it.
    return database, after[:32] + before[32:], after


def torn(before: bytes, after: bytes, choose: Random) -> bytes:
    """Return the log with each sector either old or new."""
    newest = choose.choice((0.1, 0.5, 0.9))
    places = range(0, max(len(before), len(after)), SECTOR)
    return b"".join((after if choose.random() < newest else before)[at : at + SECTOR] for at in places)


@pytest.mark.parametrize("with_snapshot", [False, True])
def test_a_torn_transaction_in_a_wrapped_log_takes_nothing_away(
    with_snapshot: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    recovered = 0
    with temporary_folder() as folder:
        database, before, after = wrapped_log(folder, with_snapshot=with_snapshot)
        steps = list(range(1, STEPS + 1))
        for seed in range(100):
            path = folder / str(seed) / "journal.db"
            path.parent.mkdir()
            path.write_bytes(database)
            Path(f"{path}-wal").write_bytes(torn(before, after, Random(seed)))
            with SqliteJournal(path) as journal:
                recovered += journal.recovered is not None
                found = [record.step for record in journal.records("run")]
                assert found in (steps, [*steps, STEPS + 1]), f"seed {seed}"
                assert [each[3] for each in read_rows(path)[1:]] == [
                    row(step).body for step in range(1, len(found) + 1)
                ]
    with capsys.disabled():
        print(f"\n100 torn transactions in a wrapped log, {recovered} recovered")
