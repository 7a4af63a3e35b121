"""A task list's copy that is out of date after a kill or a full disk is not reported."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from atomic.base.redaction import Redactor
from atomic.runs.kept_tasks import KeptTasks
from atomic.sessions.facts import CHANGED_COPIES, Facts
from atomic.sessions.journal import SqliteJournal
from atomic.tasks import Task, TaskList, TaskStatus

PENDING = TaskStatus.PENDING
IN_PROGRESS = TaskStatus.IN_PROGRESS
COMPLETED = TaskStatus.COMPLETED
SAVE = "atomic.tasks.model.replace_file"


class Killed(BaseException):
    """The process ended here."""


@contextmanager
def process(folder: Path) -> Generator[tuple[Facts, KeptTasks]]:
    """Open the facts and tasks of a run like one of its processes."""
    with SqliteJournal(folder / "journal.db") as journal:
        facts = Facts(folder, Redactor([]))
        facts.open(journal, "run")
        yield facts, KeptTasks(folder, facts, Redactor([]))


def listed(*statuses: TaskStatus) -> TaskList:
    return TaskList([Task(id=str(number), title=f"t{number}", status=one) for number, one in enumerate(statuses)])


@pytest.mark.parametrize("later", [listed(IN_PROGRESS, PENDING), listed(PENDING, PENDING, PENDING)])
def test_an_outdated_file_is_not_reported_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: TaskList
) -> None:
    listed(PENDING, PENDING).write(tmp_path / "tasks.json")

    def die(*_: Any, **__: Any) -> None:
        raise Killed

    with process(tmp_path) as (_, tasks), monkeypatch.context() as patch:
        patch.setattr(SAVE, die)
        with pytest.raises(Killed):
            tasks.write(later)
    with process(tmp_path) as (facts, tasks):
        tasks.restore_copy()
        assert CHANGED_COPIES not in facts
        assert TaskList.read(tmp_path / "tasks.json").dump() == later.dump()


@pytest.mark.parametrize("is_new_process", [False, True])
def test_a_full_disk_during_several_changes_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new_process: bool
) -> None:
    def is_full(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with process(tmp_path) as (facts, tasks):
        tasks.write(listed(PENDING, PENDING))
        with monkeypatch.context() as patch:
            patch.setattr(SAVE, is_full)
            for one in ((IN_PROGRESS, PENDING), (COMPLETED, PENDING), (COMPLETED, IN_PROGRESS), (COMPLETED, COMPLETED)):
                tasks.write(listed(*one))
        if not is_new_process:
            tasks.restore_copy()
            assert CHANGED_COPIES not in facts
    with process(tmp_path) as (facts, tasks):
        tasks.restore_copy()
        assert CHANGED_COPIES not in facts
        assert TaskList.read(tmp_path / "tasks.json").dump() == listed(COMPLETED, COMPLETED).dump()
        listed(PENDING, PENDING).write(tmp_path / "tasks.json")
        tasks.restore_copy()
        assert facts[CHANGED_COPIES] == ["tasks.json"]  # this time another program changed it
