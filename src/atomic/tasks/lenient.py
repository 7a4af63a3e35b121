"""Make tasks of what people, agents and other tools write: read leniently, so that writing can be strict.

A feature list is a task list in other words: `acceptanceCriteria` and `steps` are `acceptance`, `passes` is a status.

Nothing is dropped in silence. A key that no field knows goes to `metadata`; a value that cannot be understood goes
there too and is a problem. The order of the tasks means something, the order of keys never does.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import msgspec

from atomic.tasks.documents import Item, kind_of, read_document, text_of
from atomic.tasks.errors import UnknownStatusError
from atomic.tasks.ids import clean_id, unique_ids
from atomic.tasks.task import ProblemKind, Task, TaskProblem, TaskStatus

# field -> the spellings of its key, best first; others may differ in case, "_", "-" and blanks
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
    """What was found in a document."""

    tasks: list[Task]
    problems: list[TaskProblem]
    metadata: Item


def read_tasks(source: object) -> Reading:
    """Read a task list or a feature list from JSON text or from plain data.

    Raises:
        NoTaskListError: it is neither a list of tasks nor an object that has one.
    """
    items, beside, key = read_document(source, ("tasks", FEATURES))
    beside.pop("version", None)
    reading = Reading([], [], _list_metadata(beside))
    drafts = [_Draft(item) for item in _objects(items, reading)]
    ids, problems = unique_ids(
        # Features often have no ids: their positions are their ids, and that is no problem.
        [
            draft.id or (str(position) if key == FEATURES or draft.is_feature else "")
            for position, draft in enumerate(drafts, 1)
        ]
    )
    reading.problems += problems
    reading.tasks = [draft.task(id, reading.problems) for draft, id in zip(drafts, ids, strict=True)]
    return reading


def read_status(value: object) -> TaskStatus:
    """Find the status that a word means; nothing means pending.

    Raises:
        UnknownStatusError: it means none.
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
            message = f"item {position} of the list is {kind_of(item)} and no task: {text_of(item)[:80]}"
            reading.problems.append(TaskProblem("", ProblemKind.UNREADABLE, message))
    return [item for item in items if isinstance(item, dict)]


def _list_metadata(beside: Item) -> Item:
    metadata = beside.get("metadata")
    if isinstance(metadata, dict):
        del beside["metadata"]
        return {**beside, **metadata}
    return beside


class _Draft:
    """A task on its way from loose keys to fields."""

    def __init__(self, item: Item) -> None:
        self._extra: Item = {}  # what no field takes
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
        """Fill in the fields; what cannot be understood is reported under the id that the task gets."""

        def report(kind: ProblemKind, message: str) -> None:
            problems.append(TaskProblem(id, kind, message))

        description, title = text_of(self._one("description")), self._one("title")
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
            report(ProblemKind.NO_TEXT, "has neither a title nor a description, so nobody can work on it: add one")
        return task

    def _one(self, field: str) -> Any:
        """Take the best value for a field: the first that says something; the others become metadata."""
        entries = [entry for entry in self._given.get(field, ()) if entry[2] is not None]
        if not entries:
            return None
        best = next((entry for entry in entries if entry[2] != ""), entries[0])
        self._extra.update({key: value for rank, key, value in entries if rank != best[0] or key != best[1]})
        return best[2]

    def _all(self, field: str, *, split: str | None = None) -> list[Any]:
        """Take all values for a field, each of which may be a list or a single one."""
        values: list[Any] = []
        for _, _, value in self._given.get(field, ()):
            if isinstance(value, str):
                values += value.split(split) if split else [value]
            else:
                values += cast("list[Any]", value) if isinstance(value, list) else [value]
        return [value for value in values if value is not None and value != ""]

    def _status(self, report: Report) -> TaskStatus:
        value, passes = self._one("status"), self._one("passes")
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
            report(ProblemKind.UNREADABLE, f'priority "{text_of(value)}" is no number, taken as none')
            self._extra["priority"] = value
        return number

    def _metadata(self, report: Report) -> Item:
        metadata = self._one("metadata")
        if self.is_feature:  # all of it is kept, so that a feature list can be made of the tasks again
            self._extra = {**self._item, **self._extra}
            self._extra.pop("metadata", None)
        if not isinstance(metadata, dict):
            return self._extra if metadata is None else {**self._extra, "metadata": metadata}
        inner = cast("Item", metadata)
        for key in sorted(self._extra.keys() & inner.keys()):
            if self._extra[key] != inner[key]:
                report(ProblemKind.UNREADABLE, f'"{key}" stands in the metadata and beside it, which is left out')
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
    """Read the id of a blocker; what is none stays as an id that no task has, so that nothing starts too early."""
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
