"""Task lists without secrets, as they are written into the folder of a session."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from atomic.base.redaction import Redactor
from atomic.tasks import Task, TaskList


class CleanTasks:
    """Writes task lists: without secrets in the folder of the session, unchanged elsewhere."""

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
