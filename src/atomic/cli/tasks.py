"""`atomic tasks`: show a task list, print the next task, check it, convert a feature
list.
"""

from __future__ import annotations

import os
from collections import Counter

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import escaped_json, one_line
from atomic.cli.streams import json_line, put, put_table, tell
from atomic.tasks import NoTaskListError, TaskFileError, TaskList, TaskStatus


def show_tasks(arguments: Arguments) -> int:
    """Print all tasks with their status, their obstacles, and how many are done."""
    file = arguments.words[0]
    tasks = _read(file)
    if arguments.has("--json"):
        put(escaped_json(tasks.dump()))
        return ExitCode.DONE
    notes = {**tasks.waiting(), **{task.id: "ready" for task in tasks.ready()}}
    rows: list[tuple[str, ...]] = []
    for task in tasks.tasks:
        priority = "" if task.priority is None else f"{task.priority:g}"
        rows.append((task.id, task.status, priority, notes.get(task.id, ""), task.title))
    put_table(rows, empty="The list is empty.\n")
    put(f"{_count(tasks)}\n")
    _print_problems(file, tasks)
    return ExitCode.DONE


def next_task(arguments: Arguments) -> int:
    """Print the task that can start now, or why none can.

    Return 5 if tasks are left that cannot start.
    """
    tasks = _read(arguments.words[0])
    ready = tasks.ready()
    is_done = all(task.status.is_done for task in tasks.tasks)
    waiting = tasks.waiting()
    if arguments.has("--json"):
        put(json_line({"task": ready[0] if ready else None, "ready": [task.id for task in ready], "waiting": waiting}))
    else:
        if ready:
            task = ready[0]
            lines = [f"{task.id}: {task.title}"]
            if task.description:
                lines.append(task.description)
            lines += [f"- {condition}" for condition in task.acceptance]
        elif is_done:
            lines = ["All tasks are done."]
        else:
            lines = ["No task can start:"]
            lines += [f"{task.id}: failed" for task in tasks.tasks if task.status is TaskStatus.FAILED]
            lines += [f"{id}: {reason}" for id, reason in waiting.items()]
        put("".join(f"{one_line(line)}\n" for line in lines))
    return ExitCode.DONE if ready or is_done else ExitCode.WAITING


def check_tasks(arguments: Arguments) -> int:
    """Print every problem of a task list. Return 1 if there are any."""
    file = arguments.words[0]
    tasks = _read(file)
    if arguments.has("--json"):
        put(json_line({"tasks": len(tasks.tasks), "problems": tasks.problems}))
    else:
        put("".join(f"{one_line(file)}: {one_line(str(problem))}\n" for problem in tasks.problems))
        if not tasks.problems:
            put(f"{_count(tasks)}, no problems\n")
    return ExitCode.FAILED if tasks.problems else ExitCode.DONE


def convert_tasks(arguments: Arguments) -> int:
    """Print a feature list or a task list in the strict form, or write it to a new
    file.
    """
    file = arguments.words[0]
    target = arguments.value("--to")
    tasks = _read(file)
    if target is None:
        put(escaped_json(tasks.dump()))
    elif os.path.lexists(target):
        raise UsageError(f"{target} already exists (choose another name, or remove it)")
    else:
        tasks.write(target)
        tell(f"{_count(tasks)} written to {target}")
    _print_problems(file, tasks)
    return ExitCode.DONE


def _read(file: str) -> TaskList:
    try:
        return TaskList.read(file)
    except (TaskFileError, NoTaskListError) as error:
        raise UsageError(str(error)) from error


def _count(tasks: TaskList) -> str:
    counts = Counter(task.status for task in tasks.tasks)
    parts = ", ".join(f"{counts[status]} {status}" for status in TaskStatus if counts[status])
    number = len(tasks.tasks)
    return f"{number} task{'' if number == 1 else 's'}{f': {parts}' if parts else ''}"


def _print_problems(file: str, tasks: TaskList) -> None:
    for problem in tasks.problems:
        tell(f"{file}: {problem}")
