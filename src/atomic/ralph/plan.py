"""A planner's answer: its format, and how its tasks are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any

import msgspec

from atomic.base.errors import AtomicError
from atomic.providers.answers import documents_in
from atomic.providers.base import CustomTool
from atomic.tasks import NoTaskListError, ProblemKind, TaskList, TaskStatus

MAX_TASKS = 500
MAX_CHECK = 1000  # characters of a check
MAX_DOCUMENTS = 1000  # in one answer
FATAL = (ProblemKind.CYCLE, ProblemKind.UNKNOWN_BLOCKER, ProblemKind.NO_TEXT)
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
                    "description": {"type": "string", "description": "complete: what, where, what must not change"},
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
    """An answer is not a plan; the message is for the planner and the user."""


def read_plan(source: object) -> TaskList:
    """Return the tasks of a submitted plan. Raises PlanError."""
    try:
        plan = TaskList.parse(source)
    except NoTaskListError as error:
        raise PlanError(error.reason) from error
    if not plan.tasks:
        raise PlanError("the plan has no tasks")
    if len(plan.tasks) > MAX_TASKS:
        raise PlanError(f"the plan has {len(plan.tasks)} tasks; at most {MAX_TASKS} can be worked on")
    if unnamed := [task.id for task in plan.tasks if not task.title.strip()]:
        raise PlanError(f"tasks without a title: {', '.join(unnamed)}")
    if wrong := [str(problem) for problem in plan.problems if problem.kind in FATAL]:
        raise PlanError("; ".join(wrong))
    pending = [msgspec.structs.replace(task, status=TaskStatus.PENDING) for task in plan.tasks]
    return TaskList(pending, metadata=plan.metadata, problems=plan.problems)


def check_in(plan: TaskList) -> str:
    """Return the check that a plan names, if it is one line of a shell."""
    named = plan.metadata.get("check")
    text = named.strip() if isinstance(named, str) else ""
    return text if text.isprintable() and len(text) <= MAX_CHECK else ""


def plan_in(text: str) -> TaskList:
    """Return the plan in an answer: all of it, a fenced block, or JSON somewhere in it.

    Raises PlanError.
    """
    plan: TaskList | None = None
    problem = PlanError("the answer has no JSON in it")
    for data in islice(documents_in(text), MAX_DOCUMENTS):
        try:
            plan = read_plan(data)  # the last one counts: earlier ones are drafts or quotes
        except PlanError as error:
            problem = error
    if plan is None:
        raise problem
    return plan


def plan_tool(submit: Callable[[Any], None]) -> CustomTool:
    """Return the tool with which a planner submits its plan.

    It answers with the problems.
    """

    async def run(arguments: Mapping[str, Any]) -> str:
        given = msgspec.to_builtins(arguments)
        plan = read_plan(given)
        submit(given)
        return f"The plan was accepted: {len(plan.tasks)} tasks. End your turn now."

    return CustomTool(name="submit_plan", description="Submit the plan.", schema=_SCHEMA, run=run, replayed=True)
