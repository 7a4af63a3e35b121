"""Task lists at scale: 10,000 tasks with 100,000 dependencies, always the same ones."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from bodies import expect
from measure import Metrics

from atomic.tasks import TaskList

TASKS = 10_000
DEPENDENCIES = 100_000
COMPLETIONS = 200
SEED = 1


def tasks_json() -> str:
    """Return tasks that are blocked only by earlier ones, so that there is no cycle."""
    rng = random.Random(SEED)
    blockers = [rng.sample(range(i), min(i, 10)) for i in range(TASKS)]
    for i in range(TASKS - 1, TASKS - 1 - (DEPENDENCIES - sum(map(len, blockers))), -1):
        blockers[i].append(next(j for j in range(i) if j not in blockers[i]))
    expect(sum(map(len, blockers)), DEPENDENCIES)
    return json.dumps(
        [{"id": f"t{i}", "title": f"Task {i}", "blocked_by": [f"t{j}" for j in ids]} for i, ids in enumerate(blockers)]
    )


def load(text: str) -> tuple[TaskList, float]:
    start = process_time()
    tasks = TaskList.parse(text)
    spent = process_time() - start
    expect(len(tasks.tasks), TASKS)
    return tasks, spent * 1e3


def next_ready(tasks: TaskList) -> float:
    """Return the CPU ms to complete the first ready task and find the next ones."""
    first = tasks.ready()[0]
    start = process_time()
    tasks.set_status(first.id, "completed")
    ready = tasks.ready()
    spent = process_time() - start
    expect(any(task.id == first.id for task in ready), False)
    return spent * 1e3


def tasks(_: Path, __: dict[str, Any]) -> Metrics:
    text = tasks_json()
    loads = [load(text) for _ in range(3)]
    slowest = max(next_ready(loads[0][0]) for _ in range(COMPLETIONS))
    return {"tasks_load": {"parse": min(spent for _, spent in loads)}, "tasks_ready": {"slowest": slowest}}


JOBS: dict[str, Callable[[Path, dict[str, Any]], Metrics]] = {"tasks": tasks}
