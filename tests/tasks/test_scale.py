"""Limits of CPU time for ten thousand tasks with a hundred thousand dependencies."""

from __future__ import annotations

import gc
import json
import random
import time
from pathlib import Path
from typing import Any

import pytest

from atomic.tasks import Task, TaskList, TaskStatus
from tests.support.timing import judge

TASKS = 10_000
BLOCKERS = 10


@pytest.fixture(autouse=True)
def own_garbage() -> None:
    """Freeze the garbage of other tests, so that it does not count in these times."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chance = random.Random(1)
    tasks: list[dict[str, Any]] = [
        {
            "id": f"task-{n}",
            "title": f"Task {n}",
            "description": "x" * 200,
            "priority": chance.randrange(4),
            # The first hundred are free; each later one has ten blockers among the 500 before it.
            "blocked_by": [f"task-{b}" for b in chance.sample(range(max(0, n - 500), n), BLOCKERS)] if n >= 100 else [],
        }
        for n in range(TASKS)
    ]
    tasks[-1]["blocked_by"] = [f"task-{n}" for n in range(BLOCKERS * 101)]  # for the first hundred
    assert sum(len(task["blocked_by"]) for task in tasks) >= TASKS * BLOCKERS
    path = tmp_path_factory.mktemp("large") / "tasks.json"
    path.write_text(json.dumps({"tasks": tasks}))
    return path


@pytest.mark.timed
def test_a_large_list_is_loaded_in_two_seconds(large: Path) -> None:
    started = time.process_time()
    tasks = TaskList.read(large)
    judge(time.process_time() - started, 2)
    assert (len(tasks.tasks), tasks.problems) == (TASKS, ())


@pytest.mark.timed
def test_the_next_ready_task_is_found_in_ten_milliseconds(large: Path) -> None:
    tasks = TaskList.read(large)
    order = list[str]()
    slowest = 0.0
    while ready := tasks.ready():
        order.append(ready[0].id)
        started = time.process_time()
        tasks.set_status(ready[0].id, TaskStatus.COMPLETED)
        tasks.ready()
        slowest = max(slowest, time.process_time() - started)
    assert len(order) == TASKS
    judge(slowest, 0.010)
    position = {id: n for n, id in enumerate(order)}
    assert all(position[b] < position[task.id] for task in tasks.tasks for b in task.blocked_by)


@pytest.mark.timed
def test_a_failure_and_a_second_try_are_seen_as_quickly(large: Path) -> None:
    tasks = TaskList.read(large)
    tasks.set_status("task-0", TaskStatus.FAILED)
    started = time.process_time()
    tasks.ready()
    tasks.set_status("task-1", TaskStatus.FAILED)
    tasks.ready()
    judge(time.process_time() - started, 0.010)
    assert len(tasks.waiting()) > TASKS / 2
    tasks.set_status("task-0", TaskStatus.PENDING)
    tasks.set_status("task-1", TaskStatus.PENDING)
    assert {task.id for task in tasks.ready()} == {f"task-{n}" for n in range(100)}


def test_a_chain_may_be_longer_than_the_stack_is_deep() -> None:
    chain = [Task(str(n), "x", blocked_by=[str(n + 1)]) for n in range(50_000)]
    tasks = TaskList([*chain, Task("50000", "x", status=TaskStatus.FAILED)])
    assert tasks.waiting()["0"] == '"50000" failed, further up the chain'


def test_a_cycle_of_fifty_thousand_is_named_briefly() -> None:
    tasks = TaskList([Task(str(n), "x", blocked_by=[str((n + 1) % 50_000)]) for n in range(50_000)])
    (problem,) = tasks.problems
    assert problem.message.startswith("cycle 0 -> 1 -> 2 -> ")
    assert problem.message.endswith(" -> 99 -> (49900 more) -> 0 (each waits for the next)")


@pytest.mark.timed
def test_one_id_ten_thousand_times_is_read_quickly() -> None:
    started = time.process_time()
    tasks = TaskList.parse([{"id": 1, "title": "x"}] * TASKS)
    judge(time.process_time() - started, 2)
    assert len({task.id for task in tasks.tasks}) == TASKS


@pytest.mark.timed
def test_densely_connected_cycles_are_read_quickly() -> None:
    everybody = [str(n) for n in range(300)]
    started = time.process_time()
    tasks = TaskList([Task(id, "x", blocked_by=[other for other in everybody if other != id]) for id in everybody])
    judge(time.process_time() - started, 2)
    assert [problem.task_id for problem in tasks.problems] == ["0"]
