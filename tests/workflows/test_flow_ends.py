"""How a run of a workflow function ends when something interferes: it leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import pytest

from atomic.graph.engine import function_run
from atomic.graph.engine.journal import EndedBody, decode_body
from atomic.workflows import (
    Failed,
    Flow,
    MemoryJournal,
    NodeContext,
    NodeError,
    RunStatus,
    WorkflowChangedError,
    current_step,
    step,
    workflow,
)

ran: list[str] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


@pytest.fixture
def short_grace() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function_run, "GRACE", 0.01)
        patch.setattr(function_run, "LAST_GRACE", 0.01)
        yield


@step
async def double(n: int) -> int:
    ran.append(f"double {n}")
    return n * 2


@step
async def undo(n: int) -> None:
    await asyncio.sleep(0.1)
    ran.append(f"undo {n}")


# A run that is cancelled for good.


@pytest.mark.usefixtures("short_grace")
async def test_a_slow_cleanup_and_a_slow_compensation_end_before_the_run_is_over() -> None:
    @workflow
    async def trip(flow: Flow) -> None:
        await double(1)
        flow.compensate(undo, 1)
        try:
            await flow.ask("Go on?")
        finally:
            await asyncio.sleep(3600)  # until it is cancelled again

    journal = MemoryJournal()
    await trip.run(journal=journal, execution_id="run")
    cancelled = await trip.cancel(journal, "run")
    assert cancelled.is_over
    assert ran == ["double 1", "undo 1"]
    assert (await trip.resume(journal, "run")).is_over


@pytest.mark.usefixtures("short_grace")
async def test_a_run_whose_function_does_not_end_is_not_over_and_can_be_cancelled_again() -> None:
    release = asyncio.Event()
    has_left = asyncio.Event()

    @workflow
    async def trip(flow: Flow) -> None:
        await double(1)
        flow.compensate(undo, 1)
        try:
            await flow.ask("Go on?")
        finally:
            while not release.is_set():
                with suppress(asyncio.CancelledError):
                    await release.wait()
            has_left.set()

    journal = MemoryJournal()
    await trip.run(journal=journal, execution_id="run")
    abandoned = await trip.cancel(journal, "run")
    assert abandoned.status is RunStatus.CANCELLED
    assert not abandoned.is_over
    release.set()
    await has_left.wait()
    cancelled = await trip.cancel(journal, "run")
    assert cancelled.is_over
    assert ran == ["double 1", "undo 1"]


async def test_a_compensation_that_asks_pauses_a_cancelled_run() -> None:
    async def ask_first() -> None:
        ran.append(str(await cast("NodeContext[Any]", current_step()).ask("Refund?")))

    @workflow
    async def trip(flow: Flow) -> None:
        await double(1)
        flow.compensate(ask_first)
        await flow.ask("Go on?")

    journal = MemoryJournal()
    await trip.run(journal=journal, execution_id="run")
    paused = await trip.cancel(journal, "run")
    assert paused.status is RunStatus.PAUSED
    assert not paused.is_over
    ended = await trip.resume(journal, "run", answers={question.id: "yes" for question in paused.questions})
    assert ended.is_over
    assert ran == ["double 1", "yes"]


class ForGood:
    """The deps of a host that cancels for good."""

    cancels_for_good = True


async def test_a_compensation_that_runs_when_the_host_cancels_ends_first() -> None:
    begun = asyncio.Event()

    @step
    async def undo_slowly() -> None:
        begun.set()
        await asyncio.sleep(0.01)
        ran.append("undone")

    @workflow
    async def fails(flow: Flow) -> None:
        flow.compensate(undo_slowly)
        raise ValueError("no")

    journal = MemoryJournal()
    running = asyncio.create_task(fails.run(journal=journal, execution_id="run", deps=ForGood()))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert ran == ["undone"]
    assert (await fails.resume(journal, "run")).is_over
    assert ran == ["undone"]


@pytest.mark.usefixtures("short_grace")
async def test_a_task_that_a_group_cancelled_before_does_not_keep_a_run_from_its_pause() -> None:
    begun = asyncio.Event()

    @step
    async def stubborn() -> str:
        begun.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "stayed"
        return "ended"

    @step
    async def refuse() -> None:
        await begun.wait()
        raise ValueError("no")

    @workflow
    async def groups(flow: Flow) -> str:
        async def ask_afterwards() -> None:
            ran.append(await stubborn())
            ran.append(await flow.ask("Go on?"))

        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(ask_afterwards())
                group.create_task(refuse())
        except ExceptionGroup:
            return ran[-1]
        return "no failure"

    journal = MemoryJournal()
    paused = await groups.run(journal=journal, execution_id="run")
    assert paused.status is RunStatus.PAUSED
    assert [question.text for question in paused.questions] == ["Go on?"]
    done = await groups.resume(journal, "run", answers={"ask-1": "yes"})
    assert done.result == "yes"


# A run that the host cancels.


async def test_a_cancellation_while_steps_that_were_left_running_end_gives_the_run_up() -> None:
    cleaning = asyncio.Event()
    release = asyncio.Event()
    tasks: list[asyncio.Task[int]] = []

    @step
    async def slow() -> int:
        try:
            await asyncio.sleep(3600)
        finally:
            cleaning.set()
            await release.wait()
        return 1

    @workflow
    async def leaves(flow: Flow) -> int:
        tasks.append(asyncio.create_task(slow()))
        await double(1)
        return 1

    journal = MemoryJournal()
    running = asyncio.create_task(leaves.run(journal=journal, execution_id="run"))
    await cleaning.wait()
    running.cancel()
    await asyncio.sleep(0)
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await running
    ended = journal.history("run").rows[-1]
    assert decode_body(ended, EndedBody).status == RunStatus.CANCELLED
    assert (await leaves.resume(journal, "run")).result == 1
    assert ran == ["double 1"]


@pytest.mark.usefixtures("short_grace")
async def test_a_step_that_ends_after_its_run_is_not_recorded() -> None:
    begun = asyncio.Event()
    release = asyncio.Event()

    @step
    async def stubborn() -> int:
        begun.set()
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()
        return 1

    @workflow
    async def waits(flow: Flow) -> int:
        try:
            return await stubborn()
        finally:
            ran.append("left")

    journal = MemoryJournal()
    running = asyncio.create_task(waits.run(journal=journal, execution_id="run"))
    await begun.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    before = journal.history("run").rows
    release.set()
    while not ran:
        await asyncio.sleep(0.001)
    assert journal.history("run").rows == before
    assert (await waits.resume(journal, "run")).result == 1


# A resume or a check that finds an exception.


@pytest.mark.parametrize("compensates", [False, True])
async def test_an_exception_before_a_recorded_step_is_named_and_not_lost(compensates: bool) -> None:
    is_missing = False

    @workflow
    async def reads(flow: Flow) -> None:
        if compensates:
            flow.compensate(undo, 1)
        await double(1)
        if is_missing:
            raise FileNotFoundError("no config.toml")
        await double(2)
        await flow.ask("Go on?")

    journal = MemoryJournal()
    await reads.run(journal=journal, execution_id="run")
    before = journal.history("run")
    is_missing = True
    with pytest.raises(
        WorkflowChangedError, match=r"FileNotFoundError: no config.toml.*step 2, double\(2\)"
    ) as refused:
        await reads.resume(journal, "run", answers={"ask-1": "yes"})
    assert isinstance(refused.value.__cause__, FileNotFoundError)
    assert journal.history("run") == before
    with pytest.raises(WorkflowChangedError, match="FileNotFoundError"):
        await reads.check(journal, "run")


@pytest.mark.parametrize("compensates", [False, True])
async def test_a_check_refuses_code_that_raises_after_the_last_step(compensates: bool) -> None:
    is_broken = False

    @workflow
    async def breaks(flow: Flow) -> None:
        if compensates:
            flow.compensate(undo, 1)
        await double(1)
        if is_broken:
            raise AttributeError("no such thing")
        await flow.ask("Go on?")

    journal = MemoryJournal()
    await breaks.run(journal=journal, execution_id="run")
    await breaks.check(journal, "run")
    is_broken = True
    with pytest.raises(NodeError, match="AttributeError: no such thing"):
        await breaks.check(journal, "run")


async def test_a_check_accepts_a_run_that_failed_in_the_same_way() -> None:
    reason = "not yet"

    @workflow
    async def fails(flow: Flow) -> None:
        await double(1)
        raise ValueError(reason)

    journal = MemoryJournal()
    await fails.run(journal=journal, execution_id="run")
    await fails.check(journal, "run")
    reason = "something else"
    with pytest.raises(NodeError, match="something else"):
        await fails.check(journal, "run")


async def test_a_check_accepts_code_that_ends_the_run() -> None:
    is_over = False

    @workflow
    async def ends(flow: Flow) -> Failed | None:
        await double(1)
        if is_over:
            return Failed("too late")
        await flow.ask("Go on?")
        return None

    journal = MemoryJournal()
    await ends.run(journal=journal, execution_id="run")
    is_over = True
    await ends.check(journal, "run")
