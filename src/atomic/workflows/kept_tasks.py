"""The session's list of tasks: in the journal, with `tasks.json` as a copy for people.

The list is one fact. A status that changes later is a fact of its own, so that a long list is not written again for
each change. Nobody reads the copy back, except of a run that an older version started.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from atomic.sessions.facts import Facts
from atomic.tasks import Task, TaskFileError, TaskList, TasksError, TaskStatus
from atomic.workflows.clean_tasks import CleanTasks

COPY = "tasks.json"
_LIST = "tasks"


class _KeptList(msgspec.Struct, frozen=True):
    """A list as it was when it was made; `number` tells it from the lists before it."""

    number: int
    tasks: list[Task]
    metadata: dict[str, Any] = {}


def _name_of(number: int, task: Task) -> str:
    """Return the name of the fact that holds the status of a task."""
    return f"{_LIST}/{number}/{task.id}/status"


def read_kept_tasks(facts: Mapping[str, Any]) -> TaskList | None:
    """Return the list that the journal has; None where it has none."""
    kept = _list_in(facts)
    return None if kept is None else TaskList(_with_statuses(kept, facts), metadata=kept.metadata)


def _list_in(facts: Mapping[str, Any]) -> _KeptList | None:
    value = facts.get(_LIST)
    return None if value is None else msgspec.convert(value, _KeptList)


def _with_statuses(kept: _KeptList, facts: Mapping[str, Any]) -> Iterator[Task]:
    for task in kept.tasks:
        status = facts.get(_name_of(kept.number, task))
        yield task if status is None else msgspec.structs.replace(task, status=TaskStatus(status))


class KeptTasks:
    """Reads and writes the session's list of tasks."""

    def __init__(self, folder: Path, facts: Facts, clean: CleanTasks) -> None:
        self.path = folder / COPY
        self._facts, self._clean = facts, clean
        self._written: tuple[int, ...] | None = None  # the copy as this process left it
        self._last: TaskList | None = None  # what the journal has, so that it is not read for each change

    @property
    def exists(self) -> bool:
        return _LIST in self._facts or self.path.exists()

    def is_at(self, path: str | os.PathLike[str]) -> bool:
        """Return whether a path means the session's list."""
        return os.path.realpath(path) == os.path.realpath(self.path)

    def read(self) -> TaskList:
        """Return the list. Raises TaskFileError where there is none."""
        kept = read_kept_tasks(self._facts)
        return TaskList.read(self.path) if kept is None else kept

    def write(self, tasks: TaskList) -> None:
        """Keep the list in the journal, then write its copy. Raises JournalError."""
        if self._written is not None and self._written != _stamp(self.path):
            self._note_if_changed()
        clean = self._clean.of(tasks)
        self._keep(clean)
        self._write_copy(clean)

    def _keep(self, tasks: TaskList) -> None:
        self._adopt_copy()
        last = self._last or read_kept_tasks(self._facts)
        number: int = self._facts[_LIST]["number"] if last is not None else 0
        if last is None or not _is_same_list(last, tasks):
            self._facts.set(_LIST, _KeptList(number + 1, tasks.tasks, tasks.metadata))
        else:
            for task, before in zip(tasks.tasks, last.tasks, strict=True):
                if task.status is not before.status:
                    self._facts.set(_name_of(number, task), task.status)
        self._last = tasks

    def _adopt_copy(self) -> None:
        """Keep the list of a run that an older version started, so that its file is known to be ours."""
        if _LIST in self._facts:
            return
        try:
            found = TaskList.read(self.path)
        except TasksError:  # there is none, or another program has put something in its place
            return
        self._facts.set(_LIST, _KeptList(1, found.tasks, found.metadata))

    def restore_copy(self) -> None:
        """Write the copy again where it is not as the journal has the list, and note that it was changed."""
        kept = read_kept_tasks(self._facts)
        if kept is None or self._is_copied(kept):
            return
        self._note_if_changed()
        self._write_copy(kept)

    def _write_copy(self, kept: TaskList) -> None:
        try:
            kept.write(self.path)
            is_written = True
        except TaskFileError:  # the journal has it; a copy that cannot be written does not stop a run
            is_written = False
        self._written = _stamp(self.path)
        self._facts.note_written(COPY, is_written=is_written)

    def _is_copied(self, kept: TaskList) -> bool:
        try:
            return TaskList.read(self.path).dump() == kept.dump()
        except TasksError:
            return False

    def _note_if_changed(self) -> None:
        """Note that another program changed the copy. One that is a change behind was left so by a kill."""
        kept = _list_in(self._facts)
        if kept is None or self._facts.is_unwritten(COPY) or self._is_copy_of(kept):
            return
        before = self._facts.before(_LIST)
        is_behind = not os.path.lexists(self.path) if before is None else self._is_copy_of(_converted(before))
        if not is_behind:
            self._facts.note_changed(COPY)

    def _is_copy_of(self, kept: _KeptList) -> bool:
        try:
            found = TaskList.read(self.path)
        except TasksError:
            return False
        if not _is_same_list(TaskList(kept.tasks, metadata=kept.metadata), found):
            return False
        known = _with_statuses(kept, self._facts)
        return all(
            task.status in (now.status, self._facts.before(_name_of(kept.number, now)) or first.status)
            for task, now, first in zip(found.tasks, known, kept.tasks, strict=True)
        )


def _converted(value: Any) -> _KeptList:
    return msgspec.convert(value, _KeptList)


def _is_same_list(one: TaskList, other: TaskList) -> bool:
    """Return whether two lists differ in statuses at most."""
    ours, theirs = one.tasks, other.tasks
    return (
        len(ours) == len(theirs)
        and one.metadata == other.metadata
        and all(a is b or msgspec.structs.replace(a, status=b.status) == b for a, b in zip(ours, theirs, strict=True))
    )


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return what differs when a file was replaced or written to; None where it is missing."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
