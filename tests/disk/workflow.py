"""The traced workflow: a chain, a parallel, a map, tasks, a loop, a race and a question.

The order of the steps is written by hand (`needs`) and not taken from the engine, because
the tests check it. Each node first reports its start to a witness. It adds a text to its
update (`done_mark`) that identifies its record among the bytes on the disk.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from atomic.tasks import Task, TaskList
from atomic.workflows import (
    CompiledGraph,
    Journal,
    Node,
    NodeContext,
    NodeResult,
    RunResult,
    RunStatus,
    SignalKind,
    State,
    graph,
    map_node,
    node,
    reducers,
    task_loop_node,
)

RUN_ID = "run"
CHAIN = [f"s{number:02}" for number in range(1, 31)]
BRANCHES = {"lint": ["l1"], "test": ["t1", "t2"], "build": ["b1", "b2", "b3"]}
ITEMS = [f"item[{number}]" for number in range(8)]
TASKS = {"a": [], "b": [], "c": ["a"], "d": ["a", "b"], "e": ["c"], "f": ["d", "e"]}
ROUNDS = 3
SNAPSHOT_AFTER = "s15"
_LARGE = 30_000  # more than one page
_SMALL = 900


class DiskState(State):
    prompt: str = ""
    marks: Annotated[list[str], reducers.concat] = []
    texts: Annotated[dict[str, str], reducers.merge] = {}
    rounds: Annotated[int, reducers.sum] = 0


Witness = Callable[[str, int], None]  # step id and attempt


def step_id(key: str) -> str:
    return f"{RUN_ID}:{key if '#' in key else f'{key}#1'}"


def done_mark(step_id: str) -> str:
    """Return a text that only the record of this step and later ones contain."""
    return f"did {step_id};"


def needs() -> dict[str, list[str]]:
    """Return for each step the steps whose records must be on the disk before it starts."""
    found: dict[str, list[str]] = {CHAIN[0]: []}
    for before, key in pairwise(CHAIN):
        found[key] = [before]
    for keys in BRANCHES.values():
        for before, key in pairwise([CHAIN[-1], *keys]):
            found[key] = [before]
    found["gather"] = [keys[-1] for keys in BRANCHES.values()]
    found |= {key: ["gather"] for key in ITEMS}
    found["reduce"] = list(ITEMS)
    for task, blockers in TASKS.items():
        found[f"worker[{task}]"] = ["reduce", *(f"checker[{blocker}]" for blocker in blockers)]
        found[f"checker[{task}]"] = [f"worker[{task}]"]
    found["polish#1"] = [f"checker[{task}]" for task in TASKS]
    found |= {f"polish#{turn}": [f"polish#{turn - 1}"] for turn in range(2, ROUNDS + 1)}
    found["quick"] = found["slow"] = [f"polish#{ROUNDS}"]
    found["report"] = ["quick", "ship"]
    return {step_id(key): [step_id(each) for each in before] for key, before in found.items()}


def all_steps() -> set[str]:
    """Return the steps of a finished run; the loser of the race is never recorded."""
    return {*needs(), step_id("ship")} - {step_id("slow")}


def make_tasks(path: Path) -> None:
    TaskList([Task(name, f"Task {name}", blocked_by=blockers) for name, blockers in TASKS.items()]).write(path)


@cache
def text_for(key: str) -> str:
    """Return a text that is equal in every process and too random to compress."""
    size = _LARGE if key.partition("#")[0].endswith(("3", "5", "7", "b1", "[3]", "[d]", "report")) else _SMALL
    return random.Random(key).randbytes(size // 2).hex()


def disk_graph(tasks: Path, witness: Witness) -> CompiledGraph[DiskState]:
    """Build the workflow with its task list and its witness."""

    def work(id: str, update: dict[str, Any] | None = None) -> Node[DiskState]:
        return _witnessed(id, witness, update or {})

    items = map_node("items", over=lambda s: range(len(ITEMS)), node=work("item"))
    tasks_node = task_loop_node(
        "work", tasks_path=str(tasks), task_nodes=[work("worker"), work("checker")], max_concurrency=3
    )
    built = graph(DiskState)
    for id in CHAIN:
        built = built.then(work(id))
    return (
        built.parallel({name: [work(id) for id in ids] for name, ids in BRANCHES.items()})
        .then(work("gather"))
        .then(items)
        .then(work("reduce"))
        .then(tasks_node)
        .loop(work("polish", {"rounds": 1}), until=lambda s: s.rounds >= ROUNDS)
        .parallel({"quick": work("quick"), "slow": _never("slow", witness)}, strategy="race")
        .ask_user("ship", "Ship it?")
        .then(work("report"))
        .compile("disk", max_steps=0)
    )


def _witnessed(id: str, witness: Witness, update: dict[str, Any]) -> Node[DiskState]:
    async def run(ctx: NodeContext[DiskState]) -> NodeResult:
        witness(ctx.step_id, ctx.attempt)
        key = ctx.step_id.partition(":")[2]
        signals = [SignalKind.CHECKPOINT] if id == SNAPSHOT_AFTER else []
        given = {"marks": [done_mark(ctx.step_id)], "texts": {key: text_for(key)}, **update}
        return NodeResult(given, signals=signals)

    return node(id, run)


def _never(id: str, witness: Witness) -> Node[DiskState]:
    """Return the loser of a race: it waits until it is cancelled."""

    async def run(ctx: NodeContext[DiskState]) -> None:
        witness(ctx.step_id, ctx.attempt)
        await asyncio.Event().wait()

    return node(id, run)


async def run_to_the_end(
    compiled: CompiledGraph[DiskState], journal: Journal, told: Callable[[RunStatus], None]
) -> RunResult[DiskState]:
    """Start or resume, answer the question and continue; `told` receives each status."""
    if any(run.execution_id == RUN_ID for run in journal.list()):
        result = await compiled.resume(journal, RUN_ID)
    else:
        result = await compiled.run({"prompt": done_mark("start")}, journal=journal, execution_id=RUN_ID)
    told(result.status)
    if result.status is RunStatus.PAUSED:
        answers = {question.id: done_mark(step_id("ship")) for question in result.questions}
        result = await compiled.resume(journal, RUN_ID, answers=answers)
        told(result.status)
    return result
