"""Workflow functions that are used in nasty ways."""

from __future__ import annotations

import asyncio
import math
from typing import Any, cast

import pytest

from atomic.graph.engine.errors import JournalError
from atomic.graph.engine.journal import Row, RowKind, RunLog
from atomic.workflows import (
    AtomicError,
    Flow,
    MemoryJournal,
    NodeContext,
    RunOwnedError,
    RunStatus,
    current_step,
    step,
    workflow,
)

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@step
async def double(n: int) -> int:
    ran.append(f"double {n}")
    return n * 2


async def test_equal_concurrent_calls_keep_their_results() -> None:
    release: list[asyncio.Event] = []

    @step
    async def number() -> int:
        mine = len(release)
        release.append(asyncio.Event())
        await release[mine].wait()
        if mine:
            release[mine - 1].set()
        return mine

    @workflow
    async def pair(flow: Flow) -> list[int]:
        both = asyncio.gather(number(), number())
        while len(release) < 2:
            await asyncio.sleep(0)
        release[1].set()
        results = await both
        await flow.ask("Go on?")
        return list(results)

    journal = MemoryJournal()
    await pair.run(journal=journal, execution_id="run")
    done = await pair.resume(journal, "run", answers={"ask-1": "yes"})
    assert done.result == [0, 1]


async def test_what_another_task_did_during_a_step_is_repeated() -> None:
    log: list[str] = []

    @workflow
    async def shakes(flow: Flow) -> list[str]:
        log.clear()
        event = asyncio.Event()

        async def help_out() -> None:
            await event.wait()
            for _ in range(30):
                await asyncio.sleep(0)
            log.append("helped")

        helper = asyncio.create_task(help_out())
        await double(1)
        event.set()
        await double(2)
        log.append("done")
        await helper
        await flow.ask("Go on?")
        return list(log)

    journal = MemoryJournal()
    await shakes.run(journal=journal, execution_id="run")
    before = list(log)
    done = await shakes.resume(journal, "run", answers={"ask-1": "yes"})
    assert done.result == before


async def test_a_caught_failure_does_not_run_again_after_a_question() -> None:
    @step
    async def fail() -> int:
        ran.append("fail")
        raise ValueError("no")

    @workflow
    async def settles(flow: Flow) -> list[str]:
        results = await asyncio.gather(fail(), flow.ask("Go?"), return_exceptions=True)
        return [str(result) for result in results]

    journal = MemoryJournal()
    await settles.run(journal=journal, execution_id="run")
    done = await settles.resume(journal, "run", answers={"ask-1": "yes"})
    assert done.result == ["no", "yes"]
    assert ran == ["fail"]


async def test_a_function_that_swallows_the_cancellation_of_a_pause_is_paused() -> None:
    @workflow
    async def stubborn(flow: Flow) -> str:
        try:
            return await flow.ask("Go?")
        except asyncio.CancelledError:
            return "never mind"

    @workflow
    async def failing(flow: Flow) -> None:
        flow.compensate(double, 5)
        try:
            await flow.ask("Go?")
        finally:
            raise RuntimeError("in the cleanup")

    assert (await stubborn.run(journal=MemoryJournal())).status is RunStatus.PAUSED
    assert (await failing.run(journal=MemoryJournal())).status is RunStatus.PAUSED
    assert ran == []


async def test_a_step_that_is_called_after_the_end_is_refused() -> None:
    tasks: list[asyncio.Task[int]] = []
    go_on = asyncio.Event()

    @workflow
    async def leaves(flow: Flow) -> int:
        async def later() -> int:
            await go_on.wait()
            return await double(1)

        tasks.append(asyncio.create_task(later()))
        return 1

    assert (await leaves.run(journal=MemoryJournal())).result == 1
    go_on.set()
    with pytest.raises(AtomicError, match="double was called after the workflow leaves had ended"):
        await tasks[0]
    assert ran == []


async def test_a_step_in_another_event_loop_is_refused() -> None:
    @workflow
    async def threads(flow: Flow) -> str:
        def in_thread() -> str:
            with pytest.raises(AtomicError, match="in another event loop"):
                asyncio.run(cast("Any", double(1)))
            return "refused"

        return await asyncio.to_thread(in_thread)

    assert (await threads.run(journal=MemoryJournal())).result == "refused"


async def test_a_journal_that_cannot_be_written_ends_the_function() -> None:
    class Full(MemoryJournal):
        def create(self, execution_id: str, start: Row) -> RunLog:
            log = super().create(execution_id, start)
            append = log.append

            def limited(rows: Any, *, sync: bool = True) -> None:
                if any(row.kind == RowKind.STEP and row.step == 2 for row in rows):
                    raise JournalError("the disk is full")
                append(rows, sync=sync)

            cast("Any", log).append = limited
            return log

    @workflow
    async def careless(flow: Flow) -> None:
        for n in range(10):
            try:
                await double(n)
            except AtomicError:
                ran.append("swallowed")

    with pytest.raises(JournalError, match="the disk is full"):
        await careless.run(journal=Full())
    assert ran == ["double 0", "double 1", "swallowed"]


async def test_a_number_that_is_none_is_a_result() -> None:
    @step
    async def nothing() -> float:
        return math.nan

    @step
    async def anything() -> Any:
        return [math.nan]

    @workflow
    async def numbers(flow: Flow) -> bool:
        return math.isnan(await nothing()) and math.isnan((await anything())[0])

    done = await numbers.run(journal=MemoryJournal())
    assert done.result is True, done.error


async def test_keyword_arguments_of_another_name_are_another_call() -> None:
    @step
    async def pay(n: int, *, tip: int = 0, tax: int = 0) -> int:
        ran.append(f"pay {n} {tip} {tax}")
        return n + tip + tax

    def code(**options: int) -> Any:
        @workflow(name="pays")
        async def pays(flow: Flow) -> int:
            paid = await pay(1, **options)
            await flow.ask("Go?")
            return paid

        return pays

    journal = MemoryJournal()
    await code(tip=5).run(journal=journal, execution_id="run")
    with pytest.raises(AtomicError, match="The code has changed"):
        await code(tax=5).resume(journal, "run", answers={"ask-1": "yes"})


async def test_two_thousand_runs_at_the_same_time() -> None:
    @workflow
    async def small(flow: Flow, n: int) -> int:
        return sum(await asyncio.gather(double(n), double(n + 1)))

    journal = MemoryJournal()
    done = await asyncio.gather(*(small.run(n, journal=journal) for n in range(2000)))
    assert [one.result for one in done] == [4 * n + 2 for n in range(2000)]


async def test_a_run_is_resumed_by_one_at_a_time() -> None:
    @workflow
    async def asks(flow: Flow) -> Any:
        return await flow.ask("Go?")

    journal = MemoryJournal()
    await asks.run(journal=journal, execution_id="run")
    log = journal.acquire("run")
    with pytest.raises(RunOwnedError):
        await asks.resume(journal, "run", answers={"ask-1": "yes"})
    log.release()
    with pytest.raises(AtomicError, match="nothing"):
        await asks.resume(journal, "run", answers={"nothing": "yes"})
    assert (await asks.resume(journal, "run", answers={"ask-1": "yes"})).result == "yes"


async def test_a_fork_of_a_fork_continues() -> None:
    @workflow
    async def counts(flow: Flow) -> int:
        total = 0
        for n in range(4):
            total += await double(n)
        await flow.ask("Go?")
        return total

    journal = MemoryJournal()
    await counts.run(journal=journal, execution_id="run")
    again = journal.fork(journal.fork("run", at=3), at=2)
    ran.clear()
    paused = await counts.resume(journal, again)
    assert paused.status is RunStatus.PAUSED
    assert ran == ["double 2", "double 3"]


async def test_concurrent_calls_of_a_step_that_asks_have_questions_of_their_own() -> None:
    @step
    async def confirm(n: int) -> list[str]:
        context = cast("NodeContext[Any]", current_step())
        return [str(await context.ask(f"{n}?")), str(await context.ask(f"Is {n} sure?"))]

    @workflow
    async def both(flow: Flow) -> list[list[str]]:
        return await flow.map(confirm, [1, 2])

    journal = MemoryJournal()
    paused = await both.run(journal=journal, execution_id="run")
    assert {question.id: question.text for question in paused.questions} == {"confirm-1": "1?", "confirm-2-1": "2?"}
    paused = await both.resume(journal, "run", answers={"confirm-1": "a", "confirm-2-1": "b"})
    assert sorted(question.id for question in paused.questions) == ["confirm-2", "confirm-2-2"]
    done = await both.resume(journal, "run", answers={"confirm-2": "c", "confirm-2-2": "d"})
    assert done.result == [["a", "c"], ["b", "d"]]


async def test_a_verb_of_the_flow_inside_a_step_is_refused() -> None:
    @workflow
    async def nested(flow: Flow) -> int:
        @step
        async def asks() -> int:
            await flow.ask("Go?")
            return 1

        return await asks()

    failed = await nested.run(journal=MemoryJournal())
    assert "inside the step asks" in str(failed.error)
