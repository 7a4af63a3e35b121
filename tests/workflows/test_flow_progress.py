"""What other tasks of the program, and many steps at once, cost a workflow function."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from atomic.graph.engine import function_stalls, function_turns
from atomic.graph.engine.journal import Row, RunLog
from atomic.workflows import Flow, MemoryJournal, RunStatus, step, workflow

END = 60.0  # ends a hang


@step
async def double(n: int) -> int:
    await asyncio.sleep(0)
    return n * 2


@workflow
async def asks(flow: Flow) -> str:
    await double(1)
    return await flow.ask("Go on?")


async def never() -> None:
    await asyncio.Event().wait()


async def beat() -> None:
    while True:
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("other", [never, beat])
async def test_a_pause_does_not_wait_for_other_tasks_of_the_program(
    monkeypatch: pytest.MonkeyPatch, other: Callable[[], Awaitable[None]]
) -> None:
    monkeypatch.setattr(function_stalls, "PATIENCE", 10 * END)
    journal = MemoryJournal()
    task = asyncio.ensure_future(other())
    try:
        async with asyncio.timeout(END):
            paused = await asks.run(journal=journal, execution_id="mine")
            again = await asks.resume(journal, "mine")
    finally:
        task.cancel()
    assert (paused.status, again.status) == (RunStatus.PAUSED, RunStatus.PAUSED)


@pytest.mark.parametrize("by_timer", [True, False])
async def test_a_pause_waits_for_a_task_that_the_function_has_started(by_timer: bool) -> None:
    woken = asyncio.Event()

    @workflow
    async def both(flow: Flow) -> None:
        async def later() -> int:
            if by_timer:
                await asyncio.sleep(0.05)
            else:
                await woken.wait()
            return await double(2)

        group = asyncio.gather(flow.ask("Go on?"), asyncio.create_task(later()))
        asyncio.get_running_loop().call_later(0.05, woken.set)
        await group

    paused = await both.run(journal=MemoryJournal())
    assert (paused.status, paused.steps) == (RunStatus.PAUSED, 1)


class Counted(MemoryJournal):
    """Counts how often a disk would have to sync."""

    syncs = 0

    def create(self, execution_id: str, start: Row) -> RunLog:
        log: Any = super().create(execution_id, start)
        append = log.append

        def counted(rows: Sequence[Row], *, sync: bool = True) -> None:
            self.syncs += sync
            append(rows, sync=sync)

        log.append = counted
        return log


@pytest.mark.parametrize("items", [500, 1000])
async def test_rows_of_steps_of_a_map_share_disk_syncs(monkeypatch: pytest.MonkeyPatch, items: int) -> None:
    monkeypatch.setattr(function_turns, "MAX_HOLD", END)  # a slow machine must not decide

    @workflow
    async def many(flow: Flow) -> int:
        return sum(await flow.map(double, range(items), max_concurrency=50))

    journal = Counted()
    ended = await many.run(journal=journal, execution_id="mine")
    assert ended.result == items * (items - 1)
    assert [record.status for record in journal.records("mine")] == ["completed"] * items
    assert journal.syncs < items / 20, journal.syncs  # about one for each 50


async def test_the_row_of_a_finished_step_does_not_wait_for_a_slow_function() -> None:
    recorded: list[int] = []
    journal = MemoryJournal()

    @step
    async def quick(n: int) -> int:
        return n

    @workflow
    async def slow(flow: Flow) -> None:
        async def one(n: int) -> None:
            await quick(n)
            time.sleep(0.02)  # noqa: ASYNC251  # the function computes something, and blocks the loop
            recorded.append(len(journal.records("mine")))
            await quick(n + 100)

        await flow.map(one, range(10), max_concurrency=10)

    ended = await slow.run(journal=journal, execution_id="mine")
    assert ended.status is RunStatus.COMPLETED
    # While a result is used, the second steps of all others are recorded, except the last two.
    assert all(count >= 8 + place for place, count in enumerate(recorded[1:], 1)), recorded
