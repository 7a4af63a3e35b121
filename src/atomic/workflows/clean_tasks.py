"""Lists of tasks as they are written into a session: without secrets."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from atomic.redact import Redactor
from atomic.tasks import Task, TaskList


class CleanTasks:
    """Writes lists of tasks; in the session's folder without secrets, elsewhere as they are: those are the user's."""

    def __init__(self, folder: Path, redactor: Redactor) -> None:
        self._folder, self._redactor = folder, redactor
        self._known: dict[str, tuple[Task, Task]] = {}  # a list is written for each change, and most of it is the same

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
            known = self._known[task.id] = (task, msgspec.convert(plain, type(task)))
        return known[1]
