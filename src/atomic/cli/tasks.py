"""`atomic tasks`: look into a list of tasks, ask what is next, check it, convert a feature list."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import escaped_json, one_line
from atomic.base.text import table
from atomic.cli.streams import json_line, put, screen_width, tell
from atomic.tasks import Task, TaskList, TaskStatus
from atomic.tasks.errors import NoTaskListError, TaskFileError


def show_tasks(arguments: Arguments) -> int:
    """Print all tasks with their status, what they wait for, and how many are done."""
    file = arguments.words[0]
    as_json = arguments.has("--json")
    tasks = _read(file)
    if as_json:
        put(escaped_json(tasks.dump()))
        return ExitCode.DONE
    ready = {task.id for task in tasks.ready()}
    waiting = tasks.waiting()
    rows = [_cells(task, "ready" if task.id in ready else waiting.get(task.id, "")) for task in tasks.tasks]
    put("".join(f"{line}\n" for line in table(rows, screen_width())) or "The list is empty.\n")
    put(f"{_count(tasks)}\n")
    _tell_problems(file, tasks)
    return ExitCode.DONE


def next_task(arguments: Arguments) -> int:
    """Print the task that may start now; with none left to start, why: exit code 5 unless all are done."""
    file = arguments.words[0]
    as_json = arguments.has("--json")
    tasks = _read(file)
    ready = tasks.ready()
    is_over = all(task.status.is_done for task in tasks.tasks)
    if as_json:
        waiting = tasks.waiting()
        put(json_line({"task": ready[0] if ready else None, "ready": [task.id for task in ready], "waiting": waiting}))
    elif ready:
        put(_described(ready[0]))
    else:
        put("All tasks are done.\n" if is_over else "".join(f"{one_line(line)}\n" for line in _why_none(tasks)))
    return ExitCode.DONE if ready or is_over else ExitCode.WAITING


def check_tasks(arguments: Arguments) -> int:
    """Print every problem with its file; exit code 1 if there is any."""
    file = arguments.words[0]
    as_json = arguments.has("--json")
    tasks = _read(file)
    if as_json:
        put(json_line({"tasks": len(tasks.tasks), "problems": tasks.problems}))
    else:
        put("".join(f"{one_line(file)}: {one_line(str(problem))}\n" for problem in tasks.problems))
        if not tasks.problems:
            put(f"{_count(tasks)}, no problems\n")
    return ExitCode.FAILED if tasks.problems else ExitCode.DONE


def convert_tasks(arguments: Arguments) -> int:
    """Print a feature list, or any other list of tasks, in the strict form, or write it to a new file."""
    file = arguments.words[0]
    to = arguments.value("--to")
    tasks = _read(file)
    if to is None:
        put(escaped_json(tasks.dump()))
    else:
        if os.path.lexists(to):
            raise UsageError(f"{to} already exists (choose another name, or remove it)")
        tasks.write(to)
        tell(f"{_count(tasks)} written to {to}")
    _tell_problems(file, tasks)
    return ExitCode.DONE


def _read(file: str) -> TaskList:
    try:
        return TaskList.read(file)
    except (TaskFileError, NoTaskListError) as error:
        raise UsageError(str(error)) from error


def _cells(task: Task, note: str) -> Sequence[str]:
    priority = "" if task.priority is None else f"{task.priority:g}"
    return tuple(map(one_line, (task.id, task.status, priority, note, task.title)))


def _count(tasks: TaskList) -> str:
    counts = Counter(task.status for task in tasks.tasks)
    parts = ", ".join(f"{counts[status]} {status}" for status in TaskStatus if counts[status])
    number = len(tasks.tasks)
    return f"{number} task{'' if number == 1 else 's'}{f': {parts}' if parts else ''}"


def _described(task: Task) -> str:
    lines = [f"{task.id}: {task.title}", *([task.description] if task.description else [])]
    lines += [f"- {condition}" for condition in task.acceptance]
    return "".join(f"{one_line(line)}\n" for line in lines)


def _why_none(tasks: TaskList) -> list[str]:
    failed = [task.id for task in tasks.tasks if task.status is TaskStatus.FAILED]
    reasons = [f"{id}: {reason}" for id, reason in tasks.waiting().items()]
    return ["No task can start:", *(f"{id}: failed" for id in failed), *reasons]


def _tell_problems(file: str, tasks: TaskList) -> None:
    for problem in tasks.problems:
        tell(f"{file}: {problem}")
