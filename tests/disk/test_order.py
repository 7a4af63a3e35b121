"""A record is on the disk before the next step that depends on it starts: seen from outside of the process."""

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
    """The model, with every operation played, is what the system shows: no write and no name was missed."""
    disk = Disk(watched.trace)
    for op in watched.trace.ops:
        disk.do(op)
    assert disk.image(Fate.KEPT) == watched.found
    assert len(watched.trace.threads) > 1, "the thread that renews the lease was not followed"


def test_records_are_synced_before_dependent_steps_start(watched: Case, capsys: pytest.CaptureFixture[str]) -> None:
    place, trace = watched.place, watched.trace
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
    """The process was killed in the middle; the next one takes the run over and goes on."""
    middle = len(watched.trace.ops) // 2
    (killed,) = cuts(watched, [(middle, Fate.KEPT)], 0)
    with traced(image=killed.image) as case:
        found = check_records(case.trace, str(case.place.journal), str(case.place.ledger))
    assert found.violations == []
    assert found.checked > 20


@pytest.mark.parametrize("fault", ["synchronous=OFF", "synchronous=NORMAL"])
def test_a_journal_without_sync_is_found_out(fault: str) -> None:
    with traced(fault) as case:
        found = check_records(case.trace, str(case.place.journal), str(case.place.ledger))
    assert len(found.violations) > found.checked // 2


@pytest.mark.parametrize("fault", ["no fsync of files", "no fsync of folders"])
def test_a_task_list_without_sync_is_found_out(fault: str) -> None:
    with traced(fault) as case:
        found = check_tasks(case.trace, str(case.place.tasks), str(case.place.ledger))
    assert len(found.violations) == found.checked == 6


def test_a_machine_without_ptrace_is_a_clear_failure() -> None:
    """No process may trace itself: the same refusal as on a machine that allows it to nobody."""
    with pytest.raises(TracerError, match="does not allow it"):
        seize(os.getpid())
