"""A task, its status, and what can be wrong with it: the values that the rest of this room is about."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class TaskStatus(StrEnum):
    """How far a task is; the words of `tasks.json`."""

    PENDING = "pending"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    FAILED = "failed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"

    @property
    def is_done(self) -> bool:
        """Whether tasks that wait for this one may start."""
        return self is TaskStatus.COMPLETED or self is TaskStatus.SKIPPED


class Task(msgspec.Struct, frozen=True):
    """A piece of work that one worker can do; `blocked_by` names the tasks that must be done before."""

    id: str
    title: str
    description: str = ""
    status: TaskStatus = TaskStatus.PENDING
    priority: int | float | None = None  # lower is sooner, None is last
    blocked_by: list[str] = []
    acceptance: list[str] = []
    metadata: dict[str, Any] = {}

    def __post_init__(self) -> None:
        """Let a status be given by its word; msgspec does so only when it reads."""
        if type(self.status) is not TaskStatus:
            msgspec.structs.force_setattr(self, "status", TaskStatus(self.status))


class ProblemKind(StrEnum):
    """What is wrong; the first two keep a task from ever being ready."""

    CYCLE = "cycle"
    UNKNOWN_BLOCKER = "unknown_blocker"
    DUPLICATE_ID = "duplicate_id"
    MISSING_ID = "missing_id"
    UNKNOWN_STATUS = "unknown_status"
    UNREADABLE = "unreadable"
    NO_TEXT = "no_text"


class TaskProblem(msgspec.Struct, frozen=True):
    """Something in a task list that a person should look at; `task_id` is empty where it is no task."""

    task_id: str
    kind: ProblemKind
    message: str

    def __str__(self) -> str:
        return f"{self.task_id}: {self.message}" if self.task_id else self.message


def named(ids: list[str], *, limit: int = 10) -> str:
    """List ids for a person: quoted, and not more than can be read."""
    shown = ", ".join(f'"{id}"' for id in ids[:limit])
    return shown if len(ids) <= limit else f"{shown} and {len(ids) - limit} more"
