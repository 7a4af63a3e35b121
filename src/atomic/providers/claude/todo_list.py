"""Track the agent's to-do list through the tools that change it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from atomic.providers.events import PlanItem

TOOLS = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList"})


class _Todo(msgspec.Struct, frozen=True):
    content: str
    status: str = "pending"


class _Todos(msgspec.Struct, frozen=True):
    todos: list[_Todo]


class _Task(msgspec.Struct, frozen=True):
    id: str
    subject: str
    status: str = "pending"


class _Created(msgspec.Struct, frozen=True):
    task: _Task


class _Listed(msgspec.Struct, frozen=True):
    tasks: list[_Task]


class _Update(msgspec.Struct, frozen=True, rename="camel"):
    task_id: str
    subject: str | None = None
    status: str | None = None


class Plan:
    """The current list; `TodoWrite` replaces it, the task tools change single lines."""

    def __init__(self) -> None:
        self._lines: dict[str, PlanItem] = {}

    @property
    def items(self) -> tuple[PlanItem, ...]:
        return tuple(self._lines.values())

    def used(self, tool: str, input: Mapping[str, Any], result: Any) -> bool:
        """Apply a successful call and return whether the list changed.

        Raise msgspec.ValidationError for an unknown shape.
        """
        before = self.items
        match tool:
            case "TodoWrite":
                todos = msgspec.convert(input, _Todos).todos
                self._lines = {str(at): PlanItem(one.content, one.status) for at, one in enumerate(todos)}
            case "TaskCreate":
                self._put(msgspec.convert(result, _Created).task)
            case "TaskList":
                self._lines.clear()
                for task in msgspec.convert(result, _Listed).tasks:
                    self._put(task)
            case _:
                update = msgspec.convert(input, _Update)
                line = self._lines.get(update.task_id)
                if update.status == "deleted":
                    self._lines.pop(update.task_id, None)
                elif line is not None:
                    self._lines[update.task_id] = PlanItem(update.subject or line.text, update.status or line.status)
        return self.items != before

    def _put(self, task: _Task) -> None:
        self._lines[task.id] = PlanItem(task.subject, task.status)
