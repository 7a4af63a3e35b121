"""A planner's answer -> tasks, or the reason why it is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec

from atomic.errors import AtomicError
from atomic.providers.answers import documents_in
from atomic.providers.base import CustomTool
from atomic.tasks import NoTaskListError, ProblemKind, Task, TaskList, TaskStatus

MOST_TASKS = 500
MOST_CHECK = 1000  # characters of a check
MOST_DOCUMENTS = 1000  # in one answer
_FATAL = (ProblemKind.CYCLE, ProblemKind.UNKNOWN_BLOCKER, ProblemKind.NO_TEXT)
_TEXTS = {"type": "array", "items": {"type": "string"}}
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "tasks": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "string"},
                    "title": {"type": "string", "description": "one line, imperative"},
                    "description": {"type": "string", "description": "stands alone: what, where, what must not change"},
                    "priority": {"type": "number", "description": "lower is sooner"},
                    "blocked_by": {**_TEXTS, "description": "ids of tasks whose result this one needs"},
                    "acceptance": {**_TEXTS, "description": "sentences that a command or a test can decide"},
                },
                "required": ["id", "title"],
            },
        },
        "check": {
            "type": "string",
            "description": "if the project has no check: the command that must pass in the end, such as cargo test",
        },
    },
    "required": ["tasks"],
}


class PlanError(AtomicError):
    """An answer that is no plan; the words are for the planner and for the user."""


def read_plan(source: object) -> TaskList:
    """The tasks of a plan that somebody handed in. Raises PlanError."""
    try:
        plan = TaskList.parse(source)
    except NoTaskListError as error:
        raise PlanError(error.reason) from error
    if not plan.tasks:
        raise PlanError("the plan has no tasks")
    if len(plan.tasks) > MOST_TASKS:
        raise PlanError(f"the plan has {len(plan.tasks)} tasks; at most {MOST_TASKS} can be worked on")
    if unnamed := [task.id for task in plan.tasks if not task.title.strip()]:
        raise PlanError(f"tasks without a title: {', '.join(unnamed)}")
    if wrong := [str(problem) for problem in plan.problems if problem.kind in _FATAL]:
        raise PlanError("; ".join(wrong))
    return TaskList([_fresh(task) for task in plan.tasks], metadata=plan.metadata, problems=plan.problems)


def check_in(plan: TaskList) -> str:
    """The check that a plan names; nothing if it names none that is one line of a shell."""
    named = plan.metadata.get("check")
    text = named.strip() if isinstance(named, str) else ""
    return text if text.isprintable() and len(text) <= MOST_CHECK else ""


def plan_in(text: str) -> TaskList:
    """The plan in an answer: the whole of it, a fenced block, or JSON somewhere in it. Raises PlanError."""
    plan: TaskList | None = None
    problem = PlanError("the answer has no JSON in it")
    for data in islice(documents_in(text), MOST_DOCUMENTS):
        try:
            plan = read_plan(data)  # the last one counts: before it stands what was thought, or quoted
        except PlanError as error:
            problem = error
    if plan is None:
        raise problem
    return plan


def plan_tool(hand_in: Callable[[Any], None]) -> CustomTool:
    """The tool with which a planner hands in its plan; what is wrong with it, it is told at once."""

    async def run(arguments: Mapping[str, Any]) -> str:
        given = msgspec.to_builtins(arguments)
        plan = read_plan(given)
        hand_in(given)
        return f"The plan is taken: {len(plan.tasks)} tasks. End your turn now."

    return CustomTool(name="submit_plan", description="Hand in the plan.", schema=_SCHEMA, run=run, replayed=True)


def _fresh(task: Task) -> Task:
    """A planned task is still to be done, whatever the planner says."""
    return task if task.status is TaskStatus.PENDING else msgspec.structs.replace(task, status=TaskStatus.PENDING)
