"""The reference workflow: a plan, 24 tasks in five layers, a loop, a parallel, a question.

Six tasks run at a time. Each execution of a node is written to a ledger outside of Atomic
before and after its work. The checks trust the ledger, not the journal.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from atomic.tasks import Task, TaskList
from atomic.workflows import CompiledGraph, Node, NodeContext, State, graph, node, reducers, task_loop_node

LAYERS = (4, 5, 6, 5, 4)
ROUNDS = 3


class TortureState(State):
    tasks_path: str = ""
    plan: str = ""
    done: Annotated[list[str], reducers.concat] = []
    rounds: Annotated[int, reducers.sum] = 0
    checks: Annotated[dict[str, str], reducers.merge] = {}
    answer: str = ""


class Ledger:
    """A file whose lines are on the disk when `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())
        os.fsync(self._file)


Work = Callable[[NodeContext[TortureState]], dict[str, Any]]


def make_tasks(path: Path, seed: int) -> None:
    """Write a dependency graph that depends only on the seed."""
    choose = random.Random(seed)
    tasks: list[Task] = []
    before: list[str] = []
    for layer, size in enumerate(LAYERS):
        ids = [f"t{layer}{place}" for place in range(size)]
        for task_id in ids:
            blockers = sorted(choose.sample(before, min(len(before), choose.randint(1, 3)))) if before else []
            tasks.append(Task(task_id, f"Task {task_id}", blocked_by=blockers))
        before = ids
    TaskList(tasks).write(path)


def witnessed(node_id: str, ledger: Ledger, work: Work) -> Node[TortureState]:
    """Return a node that records its executions in the ledger."""

    async def run(ctx: NodeContext[TortureState]) -> dict[str, Any]:
        ledger.write("start", ctx.step_id, ctx.attempt)
        await asyncio.sleep(random.uniform(0, 0.004))
        update = work(ctx)
        ledger.write("done", ctx.step_id, ctx.attempt)
        return update

    return node(node_id, run)


def reference_graph(ledger: Ledger) -> CompiledGraph[TortureState]:
    plan = witnessed("plan", ledger, lambda ctx: {"plan": "24 tasks"})
    worker = witnessed("worker", ledger, lambda ctx: {"done": [ctx.item.id]})
    checker = witnessed("checker", ledger, lambda ctx: {"checks": {ctx.item.id: "ok"}})
    work = task_loop_node("work", tasks_path=lambda s: s.tasks_path, task_nodes=[worker, checker], max_concurrency=6)
    polish = witnessed("polish", ledger, lambda ctx: {"rounds": 1})
    lint = witnessed("lint", ledger, lambda ctx: {"checks": {"lint": "ok"}})
    tests = [witnessed(f"test{place}", ledger, lambda ctx: {"rounds": 10}) for place in (1, 2)]
    report = witnessed("report", ledger, lambda ctx: {"answer": ctx.output_of("ship")})
    return (
        graph(TortureState)
        .then(plan)
        .then(work)
        .loop(polish, until=lambda s: s.rounds >= ROUNDS)
        .parallel({"lint": lint, "tests": tests})
        .ask_user("ship", "Ship it?", options=["yes", "no"])
        .then(report)
        .compile("torture", max_steps=0)
    )


def expected(tasks_path: str) -> dict[str, Any]:
    """Return the final state, which no kill may change."""
    ids = [f"t{layer}{place}" for layer, size in enumerate(LAYERS) for place in range(size)]
    return {
        "tasks_path": tasks_path,
        "plan": "24 tasks",
        "done": ids,
        "rounds": ROUNDS + 20,
        "checks": {**dict.fromkeys(ids, "ok"), "lint": "ok"},
        "answer": "yes",
    }
