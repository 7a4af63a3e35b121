"""Workflow functions: steps in memory, durable steps, and the resume of a long function."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

from bodies import DURABLE, LOOP, RECORD, RESUMED, expect, more
from measure import Metrics, cpu_us_async

from atomic.workflows import Flow, RunStatus, SqliteJournal, step, workflow

RESUMES = 4


@step
async def count(n: int) -> int:
    return more(n)


@step
async def grow(n: int) -> str:
    return RECORD


@workflow
async def looped(flow: Flow, steps: int) -> int:
    n = 0
    while n < steps:
        n = await count(n)
    return n


@workflow
async def growing(flow: Flow, steps: int) -> int:
    log = [await grow(n) for n in range(steps)]
    return len(log)


@workflow
async def asking(flow: Flow, steps: int) -> str:
    n = 0
    while n < steps:
        n = await count(n)
    return await flow.ask("Go on?")


def in_memory() -> float:
    async def run() -> None:
        expect((await looped.run(LOOP)).result, LOOP)

    return cpu_us_async(run, units=LOOP)


def durable(path: Path, steps: int) -> float:
    """Return the CPU µs per step of a whole run, without opening the journal."""

    async def run(journal: SqliteJournal) -> float:
        start = process_time()
        expect((await growing.run(steps, journal=journal)).result, steps)
        return (process_time() - start) / steps * 1e6

    with SqliteJournal(path) as journal:
        return asyncio.run(run(journal))


def resumed(path: Path) -> float:
    """Return the CPU ms from opening the journal until a function of many steps asks its question again."""

    async def resume() -> float:
        start = process_time()
        with SqliteJournal(path) as journal:
            result = await asking.resume(journal, "run")
        expect(result.status, RunStatus.PAUSED)
        return (process_time() - start) * 1e3

    with SqliteJournal(path) as journal:
        asyncio.run(asking.run(RESUMED, journal=journal, execution_id="run"))
    return min(asyncio.run(resume()) for _ in range(RESUMES))


def function(folder: Path, _: dict[str, Any]) -> Metrics:
    durable(folder / "warm-up.db", DURABLE // 10)
    return {
        "function_step": {"@step": in_memory()},
        "function_durable": {"@step, SqliteJournal": durable(folder / "run.db", DURABLE)},
        "function_resume": {"@step, SqliteJournal": resumed(folder / "resume.db")},
    }


JOBS: dict[str, Callable[[Path, dict[str, Any]], Metrics]] = {"function": function}
