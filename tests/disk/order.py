"""Check in a trace that every record was on the disk before a dependent step started.

A record is on the disk when the whole transaction that first held it was written, and a
sync of the log then began and ended. That must happen before the step begins to write
its start to the ledger.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from atomic.sessions.durability import PAGE_SIZE
from tests.disk.trace import AnyOp, Created, FolderSynced, Renamed, Resized, Synced, Trace, Wrote
from tests.disk.workflow import done_mark, needs

_LOG_HEADER = 32
_FRAME_HEADER = 24


@dataclass(frozen=True, slots=True)
class Start:
    """A step's start in the ledger; `at` is the number of operations that had ended."""

    step_id: str
    at: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction in the log: its pages, and the operation that wrote the last of them."""

    file: int
    last: int
    pages: bytes


@dataclass(frozen=True, slots=True)
class Findings:
    checked: int  # pairs of a start and a record it depends on
    violations: list[str]


def starts(trace: Trace, ledger: str) -> list[Start]:
    lines = ledger_lines(trace, ledger)
    return [Start(words[1], trace.ops[at].began) for words, at in lines if words[0] == "start"]


def ledger_lines(trace: Trace, ledger: str) -> Iterator[tuple[list[str], int]]:
    """Yield the words of each line, and the operation that wrote it."""
    files = set(files_named(trace, ledger))
    for at, op in enumerate(trace.ops):
        if isinstance(op, Wrote) and op.file in files:
            yield op.data.decode().split(), at


def files_named(trace: Trace, path: str) -> Iterator[int]:
    """Yield all files that were created under this name."""
    if path in trace.files:
        yield trace.files[path]
    yield from (op.file for op in trace.ops if isinstance(op, Created) and op.path == path)


def check_records(trace: Trace, journal: str, ledger: str) -> Findings:
    """Find starts of steps whose predecessors were not on the disk yet."""
    log = list(commits(trace, f"{journal}-wal"))
    old = list(trace.contents.values())
    waits_for = needs()
    found = list[str]()
    checked = 0
    for start in starts(trace, ledger):
        for before in waits_for[start.step_id] or ["start"]:
            mark = done_mark(before).encode()
            if any(mark in content for content in old):
                continue  # recorded before the trace began
            checked += 1
            first = next((commit for commit in log if mark in commit.pages), None)
            if not _is_synced(trace.ops, first, start.at):
                found.append(f"{start.step_id} started before the record of {before} was on the disk")
    return Findings(checked, found)


def _is_synced(ops: Sequence[AnyOp], commit: Commit | None, before: int) -> bool:
    if commit is None:
        return False
    between = ops[commit.last + 1 : before]
    return any(isinstance(op, Synced) and op.file == commit.file and op.began > commit.last for op in between)


def commits(trace: Trace, log: str) -> Iterator[Commit]:
    """Yield the transactions of a log in the order in which they were written."""
    files = set(files_named(trace, log))
    pages = b""
    is_last = False
    for position, op in enumerate(trace.ops):
        if not isinstance(op, Wrote) or op.file not in files:
            continue
        if len(op.data) == _FRAME_HEADER:
            is_last = op.data[4:8] != bytes(4)
        elif len(op.data) == PAGE_SIZE:
            pages += op.data
            if is_last:
                yield Commit(op.file, position, pages)
                pages = b""
        else:
            assert (op.offset, len(op.data)) == (0, _LOG_HEADER), f"SQLite writes its log in an unknown way: {op}"


def check_tasks(trace: Trace, tasks: str, ledger: str) -> Findings:
    """Find workers that started before the task list on the disk showed it."""
    found = [f"{tasks} was written in place" for _ in _writes_in_place(trace, tasks)]
    workers = [(start, task) for start in starts(trace, ledger) if (task := task_of(start.step_id)) is not None]
    for start, task in workers:
        if not any(_statuses(trace, at)[task] == "in_progress" for at in _replacements(trace, tasks, start.at)):
            found.append(f"{start.step_id} started before the task list on the disk showed it")
    return Findings(len(workers), found)


def task_of(step_id: str) -> str | None:
    """Return the task if this step begins one."""
    _, found, rest = step_id.partition(":worker[")
    return rest.partition("]")[0] if found else None


def _writes_in_place(trace: Trace, path: str) -> Iterator[AnyOp]:
    file = trace.files.get(path)
    for op in trace.ops:
        if isinstance(op, Renamed) and op.target == path:
            file = op.file
        if isinstance(op, (Wrote, Resized)) and op.file == file:
            yield op


def _replacements(trace: Trace, path: str, before: int) -> Iterator[int]:
    """Yield durable renames to this path whose content was durable first."""
    for at, op in enumerate(trace.ops[:before]):
        if not isinstance(op, Renamed) or op.target != path:
            continue
        written = max(number for number, each in enumerate(trace.ops[:at]) if _changes(each, op.file))
        was_synced = any(
            isinstance(each, Synced) and each.file == op.file and each.began > written
            for each in trace.ops[written + 1 : op.began]
        )
        is_synced = any(
            isinstance(each, FolderSynced) and each.folder == os.path.dirname(path) and each.began > at
            for each in trace.ops[at + 1 : before]
        )
        if was_synced and is_synced:
            yield at


def _changes(op: AnyOp, file: int) -> bool:
    return isinstance(op, (Wrote, Resized)) and op.file == file


def statuses_in(text: bytes) -> Mapping[str, str]:
    """Return the status of each task in a list, read without Atomic."""
    content: dict[str, Any] = json.loads(text)
    return {task["id"]: task["status"] for task in content["tasks"]}


def _statuses(trace: Trace, at: int) -> Mapping[str, str]:
    """Return the statuses in the file that this operation renamed."""
    renamed = trace.ops[at]
    assert isinstance(renamed, Renamed)
    parts = [op for op in trace.ops[:at] if isinstance(op, Wrote) and op.file == renamed.file]
    return statuses_in(b"".join(part.data for part in parts))
