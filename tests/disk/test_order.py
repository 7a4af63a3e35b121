"""A record is on the disk before a dependent step starts, as seen from outside."""

from __future__ import annotations

import os

import pytest

from tests.disk.cases import Case, traced
from tests.disk.cuts import cuts
from tests.disk.disk import Disk, Fate
from tests.disk.order import check_records, check_tasks, starts
from tests.disk.trace import Synced
from tests.disk.tracer import TracerError, seize
from tests.disk.workflow import needs


def test_the_trace_has_every_operation(watched: Case) -> None:
    """The model with all operations replayed equals the real files: nothing was missed."""
    disk = Disk(watched.trace)
    for op in watched.trace.ops:
        disk.do(op)
    assert disk.image(Fate.KEPT) == watched.found
    assert len(watched.trace.threads) > 1, "the thread that renews the lease was not followed"


def test_records_are_synced_before_dependent_steps_start(watched: Case, capsys: pytest.CaptureFixture[str]) -> None:
    place = watched.place
    trace = watched.trace
    found = check_records(trace, str(place.journal), str(place.ledger))
    assert found.violations == []
    assert {start.step_id for start in starts(trace, str(place.ledger))} == set(needs())
    assert found.checked >= len(needs())
    syncs = sum(isinstance(op, Synced) for op in trace.ops)
    with capsys.disabled():
        print(f"\n{len(needs())} steps, {found.checked} dependencies, {len(trace.ops)} file operations, {syncs} syncs")


def test_the_task_list_is_on_the_disk_before_a_worker_starts(watched: Case) -> None:
    found = check_tasks(watched.trace, str(watched.place.tasks), str(watched.place.ledger))
    assert found.violations == []
    assert found.checked == 6


def test_records_are_synced_after_a_resume_too(watched: Case) -> None:
    """A process is killed in the middle; the next one takes over and continues the run."""
    middle = len(watched.trace.ops) // 2
    (killed,) = cuts(watched, [(middle, Fate.KEPT)], 0)
    with traced(image=killed.image) as case:
        found = check_records(case.trace, str(case.place.journal), str(case.place.ledger))
    assert found.violations == []
    assert found.checked > 20


@pytest.mark.parametrize("fault", ["synchronous=OFF", "synchronous=NORMAL"])
def test_a_missing_sync_of_the_journal_is_detected(fault: str) -> None:
    with traced(fault) as case:
        found = check_records(case.trace, str(case.place.journal), str(case.place.ledger))
    assert len(found.violations) > found.checked // 2


@pytest.mark.parametrize("fault", ["no fsync of files", "no fsync of folders"])
def test_a_missing_sync_of_the_task_list_is_detected(fault: str) -> None:
    with traced(fault) as case:
        found = check_tasks(case.trace, str(case.place.tasks), str(case.place.ledger))
    assert len(found.violations) == found.checked == 6


def test_a_machine_without_ptrace_fails_with_a_clear_message() -> None:
    """A process cannot trace itself: the same error as on a machine that forbids ptrace."""
    with pytest.raises(TracerError, match="does not allow it"):
        seize(os.getpid())
