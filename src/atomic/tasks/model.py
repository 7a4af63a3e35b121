"""A list of tasks: read, write and change it, and find the tasks that may start now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from atomic.base.files import AnyPath, replace_file
from atomic.tasks.lenient import read_status, read_tasks
from atomic.tasks.readiness import Readiness
from atomic.tasks.task import (
    NoTaskListError,
    Task,
    TaskFileError,
    TaskNotFoundError,
    TaskProblem,
    TasksError,
    TaskStatus,
    clean_id,
    unique_ids,
)

VERSION = "1.0"
MAX_BYTES = 256 * 1024 * 1024  # far above any usable list; a wrong path must not fill the memory


class TaskDocument(msgspec.Struct, kw_only=True):
    """A `tasks.json` as it is written. A reader accepts more, see `lenient`."""

    version: str = VERSION
    tasks: list[Task]
    metadata: dict[str, Any] = {}


class TaskList:
    """Tasks in the order of their file.

    Only statuses change, and only `write` saves them.
    """

    def __init__(
        self,
        tasks: Iterable[Task] = (),
        *,
        metadata: Mapping[str, Any] | None = None,
        problems: Iterable[TaskProblem] = (),
    ) -> None:
        tasks = list(tasks)
        ids, renamed = unique_ids([clean_id(task.id) for task in tasks])
        self._tasks = [_with_ids(task, id) for task, id in zip(tasks, ids, strict=True)]
        self._number = {task.id: i for i, task in enumerate(self._tasks)}
        self._readiness = Readiness(self._tasks)
        self.metadata: dict[str, Any] = dict(metadata or {})
        self.problems: tuple[TaskProblem, ...] = (*problems, *renamed, *self._readiness.problems())

    @classmethod
    def parse(cls, source: object) -> Self:
        """Read JSON text or data: `{"tasks": [...]}`, `{"features": [...]}` or only the
        list.

        Raises:
            NoTaskListError: it is not a task list. Problems of single tasks are in `problems`.
        """
        reading = read_tasks(source)
        return cls(reading.tasks, metadata=reading.metadata, problems=reading.problems)

    @classmethod
    def read(cls, path: AnyPath) -> Self:
        """Read a regular file.

        Raises:
            TaskFileError: it cannot be read.
            NoTaskListError: it is not a task list.
        """
        # Imported on use: it imports pathlib, and authors import this module.
        from atomic.base.untrusted_files import read_bounded

        try:
            data = read_bounded(path, MAX_BYTES)
        except OSError as error:
            raise TaskFileError("read", str(path), error.strerror or str(error)) from error
        except ValueError as error:  # a NUL in the name
            raise TaskFileError("read", str(path), str(error)) from error
        try:
            return cls.parse(data)
        except NoTaskListError as error:
            raise NoTaskListError(error.reason, path=str(path)) from error

    @property
    def tasks(self) -> list[Task]:
        """Return all tasks, in the order of the file."""
        return list(self._tasks)

    def require(self, id: str) -> Task:
        """Return a task by its id.

        Raises:
            TaskNotFoundError: the list has no such task.
        """
        return self._tasks[self._require(id)]

    def ready(self) -> list[Task]:
        """Return the tasks that may start now, most urgent first."""
        return [self._tasks[i] for i in self._readiness.ready()]

    def waiting(self) -> dict[str, str]:
        """Return why tasks cannot start, by id, for all that are not ready, running or
        ended.
        """
        return self._readiness.waiting()

    def set_status(self, id: str, status: TaskStatus | str) -> Task:
        """Change the status of a task.

        A task that is set in progress is no longer ready.

        Raises:
            TaskNotFoundError: the list has no such task.
            UnknownStatusError: the status does not exist.
        """
        i = self._require(id)
        status = read_status(status)
        task = self._tasks[i] = msgspec.structs.replace(self._tasks[i], status=status)
        self._readiness.change(i, status)
        return task

    def dump(self) -> str:
        """Return the list as JSON with every field, in a fixed order for `git diff`.

        Raises:
            TasksError: a task contains a value that JSON cannot represent.
        """
        document = TaskDocument(tasks=self._tasks, metadata=self.metadata)
        try:
            data = msgspec.json.encode(document, order="deterministic")
        except (TypeError, ValueError, RecursionError) as error:
            raise TasksError(f"Task list cannot be written as JSON: {error}") from error
        return msgspec.json.format(data, indent=2).decode() + "\n"

    def write(self, path: AnyPath) -> None:
        """Replace the file atomically.

        The new content survives a power cut after this call.

        Raises:
            TaskFileError: it cannot be written; the old content stays.
        """
        data = self.dump().encode()
        try:
            replace_file(path, data)
        except OSError as error:
            raise TaskFileError("written", str(path), error.strerror or str(error)) from error
        except ValueError as error:  # a NUL in the name
            raise TaskFileError("written", str(path), str(error)) from error

    def _require(self, id: str) -> int:
        number = self._number.get(clean_id(id))
        if number is None:
            raise TaskNotFoundError(id, self._number)
        return number


def convert_feature_list(source: object) -> TaskList:
    """Read a feature list, as `TaskList.parse` does.

    Raises:
        NoTaskListError: it is not a feature list.
    """
    return TaskList.parse(source)


def _with_ids(task: Task, id: str) -> Task:
    blockers = [clean_id(blocker) for blocker in task.blocked_by]
    blocked_by = [blocker for blocker in dict.fromkeys(blockers) if blocker]
    if (task.id, task.blocked_by) == (id, blocked_by):
        return task
    return msgspec.structs.replace(task, id=id, blocked_by=blocked_by)
