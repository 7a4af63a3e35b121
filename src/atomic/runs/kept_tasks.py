"""The task list of a run: in the journal, with `tasks.json` as a readable copy.

The list is one fact. Each later change of a status is its own fact, so that a long list
is not written again for each change. The copy is read only for a run that an older
version started.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.base.redaction import Redactor
from atomic.sessions.facts import Facts
from atomic.tasks import Task, TaskFileError, TaskList, TasksError, TaskStatus

COPY = "tasks.json"
_LIST = "tasks"


class _KeptList(msgspec.Struct, frozen=True):
    """A list as it was created; `number` counts the lists of the run."""

    number: int
    tasks: list[Task]
    metadata: dict[str, Any] = {}


def _name_of(number: int, task: Task) -> str:
    """Return the name of the fact that holds the status of a task."""
    return f"{_LIST}/{number}/{task.id}/status"


def read_kept_tasks(facts: Mapping[str, Any]) -> TaskList | None:
    """Return the list that the journal has, if it has one."""
    kept = _list_in(facts)
    if kept is None:
        return None
    return TaskList(_with_statuses(kept, facts), metadata=kept.metadata)


def _list_in(facts: Mapping[str, Any]) -> _KeptList | None:
    value = facts.get(_LIST)
    return None if value is None else msgspec.convert(value, _KeptList)


def _with_statuses(kept: _KeptList, facts: Mapping[str, Any]) -> Iterator[Task]:
    for task in kept.tasks:
        status = facts.get(_name_of(kept.number, task))
        yield task if status is None else msgspec.structs.replace(task, status=TaskStatus(status))


class CleanTasks:
    """Writes task lists: without secrets in the folder of the session, unchanged
    elsewhere.
    """

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._folder = folder
        self._redactor = redactor
        self._known: dict[str, tuple[Task, Task]] = {}  # by id: a task and its clean copy, as most do not change

    def write(self, path: str | os.PathLike[str], tasks: TaskList) -> None:
        """Replace the file. Raises TaskFileError."""
        if Path(os.path.realpath(path)).is_relative_to(os.path.realpath(self._folder)):
            tasks = self.of(tasks)
        tasks.write(path)

    def of(self, tasks: TaskList) -> TaskList:
        """Return the list without secrets."""
        clean = [self._clean(task) for task in tasks.tasks]
        return TaskList(clean, metadata=self._redactor.data(tasks.metadata))

    def _clean(self, task: Task) -> Task:
        known = self._known.get(task.id)
        if known is None or known[0] != task:
            plain = self._redactor.data(msgspec.to_builtins(task))
            known = (task, msgspec.convert(plain, type(task)))
            self._known[task.id] = known
        return known[1]


class KeptTasks:
    """Reads and writes the task list of a session."""

    def __init__(self, folder: Path, facts: Facts, redactor: Redactor) -> None:
        self.path = folder / COPY
        self.clean = CleanTasks(folder, redactor)
        self._facts = facts
        self._written: tuple[int, ...] | None = None  # the stamp of the copy that this process wrote
        self._last: TaskList | None = None  # the list in the journal, cached for the next change

    @property
    def exists(self) -> bool:
        return _LIST in self._facts or self.path.exists()

    def is_at(self, path: str | os.PathLike[str]) -> bool:
        """Return whether a path is the session's list."""
        return os.path.realpath(path) == os.path.realpath(self.path)

    def read(self) -> TaskList:
        """Return the list. Raises TaskFileError if it does not exist."""
        kept = read_kept_tasks(self._facts)
        return TaskList.read(self.path) if kept is None else kept

    def write(self, tasks: TaskList) -> None:
        """Keep the list in the journal, then write its copy. Raises JournalError."""
        if self._written is not None and self._written != _stamp(self.path):
            self._note_if_changed()
        clean = self.clean.of(tasks)
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
        """Keep the list of a run that an older version started, so that its file is
        known as our copy.
        """
        if _LIST in self._facts:
            return
        try:
            found = TaskList.read(self.path)
        except TasksError:  # missing, or replaced by another program
            return
        self._facts.set(_LIST, _KeptList(1, found.tasks, found.metadata))

    def restore_copy(self) -> None:
        """Write the copy again if it differs from the journal, and note that it was
        changed.
        """
        kept = read_kept_tasks(self._facts)
        if kept is None or self._is_copied(kept):
            return
        self._note_if_changed()
        self._write_copy(kept)

    def _write_copy(self, kept: TaskList) -> None:
        try:
            kept.write(self.path)
            is_written = True
        except TaskFileError:  # the journal has the list, so the run continues
            is_written = False
        self._written = _stamp(self.path)
        self._facts.note_written(COPY, is_written=is_written)

    def _is_copied(self, kept: TaskList) -> bool:
        try:
            return TaskList.read(self.path).dump() == kept.dump()
        except TasksError:
            return False

    def _note_if_changed(self) -> None:
        """Note that another program changed the copy.

        A kill may leave a copy that lacks the last change.
        """
        kept = _list_in(self._facts)
        if kept is None or self._facts.is_unwritten(COPY) or self._is_copy_of(kept):
            return
        before = self._facts.before(_LIST)
        if before is None:
            is_behind = not os.path.lexists(self.path)
        else:
            is_behind = self._is_copy_of(msgspec.convert(before, _KeptList))
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


class RunTasks:
    """The task list of a run for its nodes.

    `changed` is called with each new version of a list.
    """

    def __init__(self, kept: KeptTasks, changed: Callable[[Sequence[Task]], object]) -> None:
        self._kept = kept
        self._changed = changed
        self._tasks: Sequence[Task] = ()
        self._planned: Sequence[Task] | None = None  # the list of the state, as it was last seen
        self._is_looped = False  # a loop works on a list
        self._is_kept_by_loop = False  # that list is the one of the session

    @property
    def path(self) -> Path:
        return self._kept.path

    def read(self) -> TaskList:
        """Return the list. Raises TaskFileError."""
        return self._kept.read()

    def write(self, tasks: TaskList) -> None:
        """Replace the list, and publish it."""
        self._replace(tuple(tasks.tasks))

    def _replace(self, tasks: Sequence[Task]) -> None:
        if tasks == self._tasks:
            return
        self._kept.write(TaskList(tasks))
        self._publish(tasks)

    def _publish(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks
        self._changed(tasks)

    def load(self, path: str) -> TaskList:
        """Return the list that a loop works on.

        Raises TaskFileError, NoTaskListError.
        """
        return self._kept.read() if self._kept.is_at(path) else TaskList.read(path)

    def keep(self, path: str, tasks: TaskList) -> None:
        """Replace the list that a loop works on.

        Without secrets in the folder of the session.
        """
        if self._kept.is_at(path):
            self._is_kept_by_loop = True
            self._kept.write(tasks)
        else:
            self._kept.clean.write(path, tasks)

    def resume_loop(self) -> None:
        """Ignore the list of the restored state: it is the plan, and the loop's list is
        further.
        """
        if self._kept.exists:
            self._planned = ()

    def handle_loop(self, tasks: Sequence[Task]) -> None:
        """Publish the list of a loop after a change."""
        self._is_looped = True
        self._publish(tuple(tasks))

    def handle_state(self, state: Any) -> None:
        """Keep and publish the `tasks` of a state if a node has changed them."""
        tasks = getattr(state, "tasks", None)
        if not isinstance(tasks, list) or not tasks:
            return
        if not all(isinstance(task, Task) for task in cast("list[Any]", tasks)):
            return
        before = self._planned
        self._planned = tuple(cast("list[Task]", tasks))
        if before is None or (before and before != self._planned):
            self._replace(self._planned)

    def restore_copy(self) -> None:
        """Write the copy again if it differs from the journal."""
        self._kept.restore_copy()

    def close(self) -> None:
        """Keep a copy of a list that the loop kept elsewhere. Raises JournalError."""
        if self._is_looped and not self._is_kept_by_loop:
            self._kept.write(TaskList(self._tasks))


def _is_same_list(one: TaskList, other: TaskList) -> bool:
    """Return whether two lists differ in statuses at most."""
    ours = one.tasks
    theirs = other.tasks
    return (
        len(ours) == len(theirs)
        and one.metadata == other.metadata
        and all(a is b or msgspec.structs.replace(a, status=b.status) == b for a, b in zip(ours, theirs, strict=True))
    )


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return values that change when a file is replaced or written.

    None if it is missing.
    """
    try:
        status = path.lstat()
    except OSError:
        return None
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)
