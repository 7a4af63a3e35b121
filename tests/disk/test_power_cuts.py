"""A power cut at any point loses no promised row, whatever the disk keeps."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.workflows import SqliteJournal
from tests.disk.cases import Case, Place, read_rows, traced
from tests.disk.cuts import Cut, Tally, all_places, check_all, cuts, some_places, temporary_folder
from tests.disk.disk import Fate, Image, write_image
from tests.disk.order import files_named, ledger_lines
from tests.disk.trace import Wrote

pytestmark = pytest.mark.ci

SEED = 7


def show(tally: Tally, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f"\n{tally}, seed {SEED}")


def test_the_run_wraps_its_log_several_times(watched: Case) -> None:
    """Otherwise the cuts would not cover checkpoints and a log that overwrites itself."""
    log = set(files_named(watched.trace, f"{watched.place.journal}-wal"))
    headers = [op for op in watched.trace.ops if isinstance(op, Wrote) and op.file in log and op.offset == 0]
    assert len(headers) >= 3


def test_a_power_cut_loses_nothing_that_was_promised(watched: Case, capsys: pytest.CaptureFixture[str]) -> None:
    tally = check_all(watched, some_places(len(watched.trace.ops), 210, SEED), SEED)
    show(tally, capsys)
    assert tally.problems == []
    assert (tally.cuts, min(tally.fates.values()) > 30) == (210, True)


@pytest.mark.full
def test_a_power_cut_at_every_operation_loses_nothing(watched: Case, capsys: pytest.CaptureFixture[str]) -> None:
    tally = check_all(watched, all_places(len(watched.trace.ops)), SEED)
    show(tally, capsys)
    assert tally.problems == []
    assert tally.cuts >= 2000


def test_folders_that_the_journal_makes_survive_too(capsys: pytest.CaptureFixture[str]) -> None:
    with traced(inner="sessions/1") as case:
        first = next(at for _, at in ledger_lines(case.trace, str(case.place.ledger)))
        tally = check_all(case, all_places(first + 20, every=8), SEED)
    show(tally, capsys)
    assert tally.problems == []


def test_a_step_that_was_killed_knows_that_it_had_begun(watched: Case, capsys: pytest.CaptureFixture[str]) -> None:
    """KEPT is the state that a kill leaves: here directly after each start of a step."""
    lines = ledger_lines(watched.trace, str(watched.place.ledger))
    tally = check_all(watched, [(at + 1, Fate.KEPT) for words, at in lines if words[0] == "start"])
    show(tally, capsys)
    assert (tally.problems, tally.forgotten) == ([], [])


@pytest.mark.parametrize("fault", ["synchronous=OFF", "synchronous=NORMAL", "no fsync of files", "no fsync of folders"])
def test_a_missing_sync_is_detected(fault: str) -> None:
    with traced(fault) as case:
        last = len(case.trace.ops)
        tally = check_all(case, [(at, Fate.DROPPED) for at in range(last // 2, last, 20)], SEED)
    assert len(tally.problems) >= 5


def test_a_power_cut_during_a_recovery_loses_nothing(watched: Case, capsys: pytest.CaptureFixture[str]) -> None:
    tally = cut_recovery(*torn_cut(watched, len(watched.trace.ops) // 2), number=40)
    show(tally, capsys)
    assert tally.problems == []


@pytest.mark.full
@pytest.mark.parametrize("part", [0.25, 0.5, 0.9])
def test_a_power_cut_anywhere_in_a_recovery_loses_nothing(
    watched: Case, part: float, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = cut_recovery(*torn_cut(watched, int(len(watched.trace.ops) * part)))
    show(tally, capsys)
    assert tally.problems == []
    assert tally.cuts >= 300


def torn_cut(case: Case, at: int) -> tuple[Cut, int]:
    """Return the next cut that leaves a torn journal, and how many rows are saved."""
    for cut in cuts(case, [(place, Fate.TORN) for place in range(at, len(case.trace.ops))], SEED):
        with temporary_folder() as folder:
            place = Place(folder)
            place.run.mkdir()
            write_image(cut.image, place.run)
            with SqliteJournal(place.journal) as journal:
                if journal.recovered is not None:
                    return cut, len(read_rows(place.journal))
    raise AssertionError("no cut needs a repair")


def cut_recovery(torn: Cut, rows: int, *, number: int | None = None) -> Tally:
    """Repair a torn journal under the tracer, and cut the power during and after it."""
    with traced(image=torn.image) as case:
        first = next(at for _, at in ledger_lines(case.trace, str(case.place.ledger)))
        last = min(first + 20, len(case.trace.ops))
        places = some_places(last, number, SEED) if number else all_places(last, every=2)
        for cut in cuts(case, places, SEED, promised=rows):
            assert is_kept(torn.image, cut.image), f"the damaged files are gone, cut after {cut.at} operations"
        return check_all(case, places, SEED, promised=rows)


def is_kept(original: Image, image: Image) -> bool:
    """Return whether the damaged files still exist, in place or set aside."""
    names = [name for name in image if name == "journal.db" or Path(name).name.startswith("journal.db.damaged-")]
    files = (original.get("journal.db"), original.get("journal.db-wal") or b"")
    return any((image[name], image.get(f"{name}-wal") or b"") == files for name in names)
