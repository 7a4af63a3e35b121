"""A list of tasks: what is in it, what is wrong with it, and which task may start now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from atomic.tasks.errors import NoTaskListError, TaskNotFoundError, TasksError
from atomic.tasks.file import AnyPath, read_file, write_file
from atomic.tasks.ids import clean_id, unique_ids
from atomic.tasks.lenient import read_status, read_tasks
from atomic.tasks.readiness import Readiness
from atomic.tasks.task import Task, TaskProblem, TaskStatus

VERSION = "1.0"


class _Document(msgspec.Struct):
    version: str
    tasks: list[Task]
    metadata: dict[str, Any]


class TaskList:
    """Tasks in the order of their file. Only statuses change; a changed list is on the disk after `write`."""

    def __init__(
        self,
        tasks: Iterable[Task] = (),
        *,
        metadata: Mapping[str, Any] | None = None,
        problems: Iterable[TaskProblem] = (),
    ) -> None:
        self._tasks, renamed = _with_clean_ids(list(tasks))
        self._number = {task.id: i for i, task in enumerate(self._tasks)}
        self._readiness = Readiness(self._tasks)
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.problems: tuple[TaskProblem, ...] = (*problems, *renamed, *self._readiness.problems())

    @classmethod
    def parse(cls, source: object) -> Self:
        """Read JSON text, or the data that it stands for: `{"tasks": [...]}`, `{"features": [...]}` or the list alone.

        Raises:
            NoTaskListError: it is no task list; whatever is wrong with single tasks is in `problems`.
        """
        reading = read_tasks(source)
        return cls(reading.tasks, metadata=reading.metadata, problems=reading.problems)

    @classmethod
    def read(cls, path: AnyPath) -> Self:
        """Read a file.

        Raises:
            TaskFileError: it cannot be read.
            NoTaskListError: it is no task list.
        """
        data = read_file(path)
        try:
            return cls.parse(data)
        except NoTaskListError as error:
            raise NoTaskListError(error.reason, path=str(path)) from error

    @property
    def tasks(self) -> list[Task]:
        """All tasks, in the order of the file."""
        return list(self._tasks)

    def require(self, id: str) -> Task:
        """Find a task by its id.

        Raises:
            TaskNotFoundError: there is none.
        """
        return self._tasks[self._require(id)]

    def ready(self) -> list[Task]:
        """List the tasks that may start now, most urgent first."""
        return [self._tasks[i] for i in self._readiness.ready()]

    def waiting(self) -> dict[str, str]:
        """Say why each task cannot start that is neither ready nor running nor ended."""
        return self._readiness.waiting()

    def set_status(self, id: str, status: TaskStatus | str) -> Task:
        """Change the status of a task; one that is set in progress is being worked on and not ready.

        Raises:
            TaskNotFoundError: there is no such task.
            UnknownStatusError: there is no such status.
        """
        i, status = self._require(id), read_status(status)
        task = self._tasks[i] = msgspec.structs.replace(self._tasks[i], status=status)
        self._readiness.change(i, status)
        return task

    def dump(self) -> str:
        """Write the list as JSON: every field, keys in one order, for people and for `git diff`.

        Raises:
            TasksError: somebody put something into a task that is no data.
        """
        document = _Document(VERSION, self._tasks, self.metadata)
        try:
            data = msgspec.json.encode(document, order="deterministic")
        except (TypeError, ValueError, RecursionError) as error:
            raise TasksError(f"Task list cannot be written as JSON: {error}") from error
        return msgspec.json.format(data, indent=2).decode() + "\n"

    def write(self, path: AnyPath) -> None:
        """Replace the file as a whole; when this returns it survives a power cut.

        Raises:
            TaskFileError: it cannot be written; the old content stands.
        """
        write_file(path, self.dump().encode())

    def _require(self, id: str) -> int:
        number = self._number.get(clean_id(id))
        if number is None:
            raise TaskNotFoundError(id, self._number)
        return number


def convert_feature_list(source: object) -> TaskList:
    """Make tasks of a feature list, as `TaskList.parse` does.

    Raises:
        NoTaskListError: it is no feature list.
    """
    return TaskList.parse(source)


def _with_clean_ids(tasks: list[Task]) -> tuple[list[Task], list[TaskProblem]]:
    """Bring the ids of tasks that somebody built to the form that reading gives them."""
    ids, problems = unique_ids([clean_id(task.id) for task in tasks])
    return [_with_ids(task, id) for task, id in zip(tasks, ids, strict=True)], problems


def _with_ids(task: Task, id: str) -> Task:
    blockers = [clean_id(blocker) for blocker in task.blocked_by]
    blocked_by = [blocker for blocker in dict.fromkeys(blockers) if blocker]
    if (task.id, task.blocked_by) == (id, blocked_by):
        return task
    return msgspec.structs.replace(task, id=id, blocked_by=blocked_by)
