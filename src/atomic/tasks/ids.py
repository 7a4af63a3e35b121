"""Ids as they are compared, and an id of its own for each task."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.tasks.task import ProblemKind, TaskProblem


def clean_id(value: object) -> str:
    """Bring an id to the form in which ids are compared: text, no `#` and no blanks around it; empty if it is none."""
    if isinstance(value, str):
        return value.strip().lstrip("#").strip()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def unique_ids(ids: Sequence[str]) -> tuple[list[str], list[TaskProblem]]:
    """Give a task without an id its position, and one whose id is taken the next free `id-2`, `id-3`, ...

    Neither task of a pair is dropped: nobody can know which of them was meant.
    """
    taken = set(ids)
    seen: set[str] = set()
    problems: list[TaskProblem] = []
    suffixes: dict[str, int] = {}  # where to go on: ten thousand times the same id must not take ten thousand squared

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
            message = f"the task at position {position} has no id; it gets this one"
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
