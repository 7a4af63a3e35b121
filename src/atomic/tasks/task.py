"""Tasks, their ids and statuses, and the problems and errors of a task list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec

from atomic.base.errors import AtomicError, did_you_mean


class TaskStatus(StrEnum):
    """The statuses of a task, as in `tasks.json`."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"

    @property
    def is_done(self) -> bool:
        """Return whether tasks that wait for this one may start."""
        return self is TaskStatus.COMPLETED or self is TaskStatus.SKIPPED


class Task(msgspec.Struct, frozen=True):
    """A unit of work for one worker.

    `blocked_by` names tasks that must be done first.
    """

    id: str
    title: str
    description: str = ""
    status: TaskStatus = TaskStatus.PENDING
    priority: int | float | None = None  # lower is sooner, None is last
    blocked_by: list[str] = []
    acceptance: list[str] = []
    metadata: dict[str, Any] = {}

    def __post_init__(self) -> None:
        """Convert a status that is given as text.

        Msgspec does so only when it decodes.
        """
        if type(self.status) is not TaskStatus:
            msgspec.structs.force_setattr(self, "status", TaskStatus(self.status))


class ProblemKind(StrEnum):
    """The kinds of problems. With one of the first two a task is never ready."""

    CYCLE = "cycle"
    UNKNOWN_BLOCKER = "unknown_blocker"
    DUPLICATE_ID = "duplicate_id"
    MISSING_ID = "missing_id"
    UNKNOWN_STATUS = "unknown_status"
    UNREADABLE = "unreadable"
    NO_TEXT = "no_text"


class TaskProblem(msgspec.Struct, frozen=True):
    """A problem of a task list that the user should know.

    Without an id it is not about a task.
    """

    task_id: str
    kind: ProblemKind
    message: str

    def __str__(self) -> str:
        return f"{self.task_id}: {self.message}" if self.task_id else self.message


def named(ids: list[str], *, limit: int = 10) -> str:
    """Return ids for a message: quoted, and at most `limit` of them."""
    shown = ", ".join(f'"{id}"' for id in ids[:limit])
    return shown if len(ids) <= limit else f"{shown} and {len(ids) - limit} more"


def clean_id(value: object) -> str:
    """Return an id as text without `#` and spaces around it.

    An empty text if it is not an id.
    """
    if isinstance(value, str):
        return value.strip().lstrip("#").strip()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def unique_ids(ids: Sequence[str]) -> tuple[list[str], list[TaskProblem]]:
    """Make ids unique and report each change.

    A task without an id gets its position. A task whose id is taken gets the next free
    `id-2`, `id-3`, and so on; it is not dropped, because either task may be meant.
    """
    taken = set(ids)
    seen: set[str] = set()
    problems: list[TaskProblem] = []
    # The last suffix of each id, so that many equal ids do not take quadratic time.
    suffixes: dict[str, int] = {}

    def free(wanted: str) -> str:
        id = wanted
        while id in taken:
            number = suffixes[wanted] = suffixes.get(wanted, 1) + 1
            id = f"{wanted}-{number}"
        taken.add(id)
        return id

    result: list[str] = []
    for position, id in enumerate(ids, 1):
        if not id:
            new = free(str(position))
            message = f"the task at position {position} has no id and gets this one"
            problems.append(TaskProblem(new, ProblemKind.MISSING_ID, message))
        elif id in seen:
            new = free(id)
            message = f'duplicate id "{id}": the task at position {position} becomes "{new}"'
            problems.append(TaskProblem(id, ProblemKind.DUPLICATE_ID, message))
        else:
            new = id
            seen.add(id)
        result.append(new)
    return result, problems


class TasksError(AtomicError):
    """A task list cannot be read, written or changed as asked."""


class NoTaskListError(TasksError):
    """The text or data is not a task list."""

    def __init__(self, reason: str, *, path: str | None = None) -> None:
        self.reason = reason
        self.path = path
        what = f'No task list: "{path}"' if path else "No task list"
        super().__init__(f'{what}: {reason} (expected {{"tasks": [...]}}, {{"features": [...]}} or a list of tasks)')


class TaskFileError(TasksError):
    """The file of a task list cannot be read or written."""

    def __init__(self, action: str, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f'Task list cannot be {action}: "{path}": {reason}')


class TaskNotFoundError(TasksError):
    """The list has no task with this id."""

    def __init__(self, id: str, known: Iterable[str]) -> None:
        self.id = id
        super().__init__(f'Task not found: "{id}"{did_you_mean(id, known)}')


class UnknownStatusError(TasksError):
    """The status does not exist."""

    def __init__(self, status: str, known: Iterable[str]) -> None:
        self.status = status
        super().__init__(f'Unknown status: "{status}" (one of {", ".join(known)})')
