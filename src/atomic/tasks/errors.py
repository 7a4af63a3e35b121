"""What can be wrong with a task list as a whole; what is wrong with single tasks is in `TaskList.problems`."""

from __future__ import annotations

from collections.abc import Iterable

from atomic.base.errors import AtomicError, did_you_mean


class TasksError(AtomicError):
    """A task list cannot be read, written or changed as asked."""


class NoTaskListError(TasksError):
    """What was read is no task list at all."""

    def __init__(self, reason: str, *, path: str | None = None) -> None:
        self.reason, self.path = reason, path
        what = f'No task list: "{path}"' if path else "No task list"
        super().__init__(f'{what}: {reason} (expected {{"tasks": [...]}}, {{"features": [...]}} or a list of tasks)')


class TaskFileError(TasksError):
    """The file of a task list cannot be read or written."""

    def __init__(self, action: str, path: str, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f'Task list cannot be {action}: "{path}": {reason}')


class TaskNotFoundError(TasksError):
    """A task was named that is not in the list."""

    def __init__(self, id: str, known: Iterable[str]) -> None:
        self.id = id
        super().__init__(f'Task not found: "{id}"{did_you_mean(id, known)}')


class UnknownStatusError(TasksError):
    """A status was given that no task can have."""

    def __init__(self, status: str, known: Iterable[str]) -> None:
        self.status = status
        super().__init__(f'Unknown status: "{status}" (one of {", ".join(known)})')
