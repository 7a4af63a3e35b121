"""Read tasks leniently, as people, agents and other tools write them.

A feature list is a task list with other names: `acceptanceCriteria` and `steps` are
`acceptance`, `passes` is a status.

Nothing is dropped silently. An unknown key goes to `metadata`. A value that cannot be
read goes there too and is reported as a problem. The order of tasks matters, the order
of keys does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import msgspec

from atomic.tasks.documents import Item, kind_of, read_document, text_of
from atomic.tasks.task import (
    ProblemKind,
    Task,
    TaskProblem,
    TaskStatus,
    UnknownStatusError,
    clean_id,
    unique_ids,
)

# The spellings of each field's key, best first. Case, "_", "-" and spaces may differ.
_SPELLINGS = {
    "id": ("id",),
    "title": ("title", "name", "content"),
    "description": ("description",),
    "status": ("status",),
    "priority": ("priority",),
    "blocked_by": ("blocked_by", "blockedBy", "dependencies", "depends_on"),
    "acceptance": ("acceptance", "acceptance_criteria"),
    "steps": ("steps",),
    "passes": ("passes",),
    "metadata": ("metadata",),
}
_SQUEEZE = str.maketrans("", "", "_- \t\r\n")
_EXACT = {key: (field, rank) for field, keys in _SPELLINGS.items() for rank, key in enumerate(keys)}
_SIMILAR = {key.translate(_SQUEEZE).casefold(): (field, rank + 100) for key, (field, rank) in _EXACT.items()}

_STATUSES = {status.translate(_SQUEEZE): status for status in TaskStatus} | {
    "passing": TaskStatus.COMPLETED,
    "done": TaskStatus.COMPLETED,
    "complete": TaskStatus.COMPLETED,
    "failing": TaskStatus.FAILED,
    "error": TaskStatus.FAILED,
}
_PASSES = {
    **dict.fromkeys(("true", "yes", "1", "passing"), True),
    **dict.fromkeys(("", "false", "no", "0", "failing"), False),
}
_PRIORITIES = {"critical": 0, "high": 1, "medium": 2, "low": 3}

FEATURES = "features"  # the key of a feature list

Report = Callable[[ProblemKind, str], None]


class Reading(msgspec.Struct):
    """The tasks, problems and metadata of a document."""

    tasks: list[Task]
    problems: list[TaskProblem]
    metadata: Item


def read_tasks(source: object) -> Reading:
    """Read a task list or a feature list from JSON text or from plain data.

    Raises:
        NoTaskListError: it is neither a list of tasks nor an object with one.
    """
    items, beside, key = read_document(source, ("tasks", FEATURES))
    beside.pop("version", None)
    reading = Reading([], [], _list_metadata(beside))
    drafts = [_Draft(item) for item in _objects(items, reading)]
    given: list[str] = []
    for position, draft in enumerate(drafts, 1):
        # Features often have no ids. They get their positions, which is not a problem.
        has_position = key == FEATURES or draft.is_feature
        given.append(draft.id or (str(position) if has_position else ""))
    ids, problems = unique_ids(given)
    reading.problems += problems
    reading.tasks = [draft.task(id, reading.problems) for draft, id in zip(drafts, ids, strict=True)]
    return reading


def read_status(value: object) -> TaskStatus:
    """Return the status that a word means; an empty one means pending.

    Raises:
        UnknownStatusError: the word means no status.
    """
    word = text_of(value).translate(_SQUEEZE).casefold()
    if not word:
        return TaskStatus.PENDING
    if word not in _STATUSES:
        raise UnknownStatusError(text_of(value), TaskStatus)
    return _STATUSES[word]


def _objects(items: list[Any], reading: Reading) -> list[Item]:
    for position, item in enumerate(items, 1):
        if not isinstance(item, dict):
            message = f"item {position} of the list is {kind_of(item)}, not a task: {text_of(item)[:80]}"
            reading.problems.append(TaskProblem("", ProblemKind.UNREADABLE, message))
    return [item for item in items if isinstance(item, dict)]


def _list_metadata(beside: Item) -> Item:
    metadata = beside.get("metadata")
    if isinstance(metadata, dict):
        del beside["metadata"]
        return {**beside, **metadata}
    return beside


class _Draft:
    """A task whose keys are assigned to fields but not read yet."""

    def __init__(self, item: Item) -> None:
        self._extra: Item = {}  # keys without a field
        self._given: dict[str, list[tuple[int, str, Any]]] = {}
        for key, value in item.items():
            field, rank = _EXACT.get(key) or _SIMILAR.get(key.translate(_SQUEEZE).casefold()) or ("", 0)
            if field:
                self._given.setdefault(field, []).append((rank, key, value))
            else:
                self._extra[key] = value
        for entries in self._given.values():
            if len(entries) > 1:
                entries.sort(key=lambda entry: entry[:2])

        self.id = clean_id(self._one("id"))
        self.is_feature = "passes" in self._given or "steps" in self._given
        self._item = item

    def task(self, id: str, problems: list[TaskProblem]) -> Task:
        """Return the task; values that cannot be read are reported under its id."""

        def report(kind: ProblemKind, message: str) -> None:
            problems.append(TaskProblem(id, kind, message))

        description = text_of(self._one("description"))
        title = self._one("title")
        task = Task(
            id=id,
            title=text_of(title) if title is not None else _first_line(description) or f"Task {id}",
            description=description,
            status=self._status(report),
            priority=self._priority(report),
            blocked_by=list(dict.fromkeys(filter(None, map(_blocker, self._all("blocked_by", split=","))))),
            acceptance=[text_of(line) for line in (*self._all("acceptance"), *self._all("steps"))],
            metadata=self._metadata(report),
        )
        has_text = text_of(title).strip() or description.strip() or task.acceptance
        if not has_text and not task.status.is_done:
            report(ProblemKind.NO_TEXT, "has neither a title nor a description, so no worker can do it: add one")
        return task

    def _one(self, field: str) -> Any:
        """Return the best value for a field: the first that is not empty.

        Others become metadata.
        """
        entries = [entry for entry in self._given.get(field, ()) if entry[2] is not None]
        if not entries:
            return None
        best = next((entry for entry in entries if entry[2] != ""), entries[0])
        self._extra.update({key: value for rank, key, value in entries if rank != best[0] or key != best[1]})
        return best[2]

    def _all(self, field: str, *, split: str | None = None) -> list[Any]:
        """Return all values for a field, each of which may be a list or a single value."""
        values: list[Any] = []
        for _, _, value in self._given.get(field, ()):
            if isinstance(value, str):
                values += value.split(split) if split else [value]
            else:
                values += cast("list[Any]", value) if isinstance(value, list) else [value]
        return [value for value in values if value is not None and value != ""]

    def _status(self, report: Report) -> TaskStatus:
        value = self._one("status")
        passes = self._one("passes")
        try:
            status = read_status(value)
        except UnknownStatusError as error:
            report(ProblemKind.UNKNOWN_STATUS, f'unknown status "{error.status}", taken as pending')
            self._extra["status"] = value
            return TaskStatus.PENDING
        return status if passes is None else _checked_status(status if value else None, passes, report)

    def _priority(self, report: Report) -> int | float | None:
        value = self._one("priority")
        if value is None:
            return None
        number = _number(value)
        if number is None:
            report(ProblemKind.UNREADABLE, f'priority "{text_of(value)}" is not a number, ignored')
            self._extra["priority"] = value
        return number

    def _metadata(self, report: Report) -> Item:
        metadata = self._one("metadata")
        if self.is_feature:  # everything is kept, so that the feature list can be restored
            self._extra = {**self._item, **self._extra}
            self._extra.pop("metadata", None)
        if not isinstance(metadata, dict):
            return self._extra if metadata is None else {**self._extra, "metadata": metadata}
        inner = cast("Item", metadata)
        for key in sorted(self._extra.keys() & inner.keys()):
            if self._extra[key] != inner[key]:
                message = f'"{key}" is in the metadata and in the task; the one in the task is ignored'
                report(ProblemKind.UNREADABLE, message)
        return {**self._extra, **inner}


def _checked_status(status: TaskStatus | None, passes: object, report: Report) -> TaskStatus:
    """Return the status of a feature: completed only if nothing contradicts that."""
    is_passing = _PASSES.get(text_of(passes).strip().casefold())
    if is_passing is None:
        message = f'"passes" is "{text_of(passes)}", neither true nor false'
    elif status is None:
        return TaskStatus.COMPLETED if is_passing else TaskStatus.PENDING
    elif is_passing is (status is TaskStatus.COMPLETED):
        return status
    else:
        message = f'"status" says {status} and "passes" says {text_of(is_passing)}'
    taken = TaskStatus.PENDING if status is None or status is TaskStatus.COMPLETED else status
    report(ProblemKind.UNREADABLE, f"{message}; taken as {taken}")
    return taken


def _blocker(value: object) -> str:
    """Return the id of a blocker.

    An unreadable one becomes an unknown id, so no task starts too early.
    """
    if isinstance(value, dict):
        value = cast("Item", value).get("id", value)
    return clean_id(value) or ("" if isinstance(value, str) else text_of(value))


def _number(value: object) -> int | float | None:
    if isinstance(value, str):
        word = value.strip().casefold()
        return _PRIORITIES[word] if word in _PRIORITIES else _parsed(word.removeprefix("p"))
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _parsed(digits: str) -> int | float | None:
    try:
        number = float(digits)
    except ValueError:
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() else number


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0].strip()
