"""Timers: their end is recorded once, and a run that only waits can end its process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from atomic.graph.engine.journal import RowKind
from atomic.workflows import Edge, GraphConfig, Journal, Node, NodeContext, RunStatus, compile_graph, graph, sleep_node
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, ended, failed, running, say, within
from tests.graph.engine.waiting import Clock, Host, finish, journals, receive
from tests.support.waits import eventually


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    yield from journals(request, tmp_path)


async def test_short_sleeps_stay_in_the_process_also_without_a_journal() -> None:
    state = (await ended(graph(S).then(sleep_node("rest", seconds=0.01)).then(say("a")).compile())).state
    assert state.log == ["a"]


@pytest.mark.parametrize("amounts", [{"seconds": 0}, {"minutes": 0.0, "seconds": 0}])
async def test_a_sleep_of_zero_ends_at_once_and_records_nothing(journal: Journal, amounts: dict[str, Any]) -> None:
    compiled = graph(S).then(sleep_node("rest", **amounts)).compile()
    await ended(compiled, journal=journal, execution_id=RUN, deps=Host(park=True))
    assert [row for row in journal.history(RUN).rows if row.kind == RowKind.PART] == []


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ({}, "sleep() needs a duration: seconds=, minutes=, hours= or days="),
        ({"seconds": -1}, "sleep(seconds=-1): give 0 to 36525 days"),
        ({"hours": 1, "minutes": -90}, "sleep(minutes=-90, hours=1): give 0 to 36525 days"),
        ({"seconds": float("nan")}, "sleep(seconds=nan): give numbers"),
        ({"days": float("inf")}, "sleep(days=inf): give numbers"),
        ({"days": 1e12}, "sleep(days=1000000000000.0): give 0 to 36525 days"),
        ({"minutes": "5"}, "sleep(minutes='5'): give numbers"),
        ({"seconds": True}, "sleep(seconds=True): give numbers"),
    ],
)
async def test_a_wrong_duration_is_one_sentence(amounts: dict[str, Any], text: str) -> None:
    async def run(ctx: NodeContext[S]) -> None:
        await ctx.sleep(**amounts)

    assert text in await failed(graph(S).node("n", run).compile(), "n")


@pytest.mark.parametrize(
    ("when", "text"),
    [
        (datetime(2030, 1, 2, 3), "this time has no time zone; use datetime.now(UTC) to make it, or when.astimezone()"),
        (1234567.0, "sleep_until(1234567.0): give a datetime with a time zone"),
        (datetime(9999, 12, 31, tzinfo=UTC), "give a time in the next 36525 days"),
    ],
)
async def test_a_wrong_time_is_one_sentence(when: Any, text: str) -> None:
    async def run(ctx: NodeContext[S]) -> None:
        await ctx.sleep_until(when)

    assert text in await failed(graph(S).node("n", run).compile(), "n")


async def test_sleep_until_takes_any_time_zone_and_the_past() -> None:
    zone = timezone(timedelta(hours=-11))
    soon = datetime.now(zone) + timedelta(seconds=0.05)

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        await ctx.sleep_until(soon)
        is_over = datetime.now(UTC) >= soon
        await ctx.sleep_until(datetime(1999, 1, 1, tzinfo=UTC))
        return {"done": is_over}

    assert (await ended(graph(S).node("n", run).compile())).state.done


async def test_a_parked_run_names_its_time_and_continues_after_it(journal: Journal) -> None:
    clock = Clock()
    compiled = graph(S).then(say("a")).then(sleep_node("rest", hours=1)).then(say("b")).compile()
    host = Host(park=True, clock=clock)
    result = await within(compiled.run(journal=journal, execution_id=RUN, deps=host))
    assert (result.status, result.codes) == (RunStatus.PAUSED, ("sleeping",))
    assert str(result.error).startswith("rest: sleeps until ")
    assert result.wake_at is not None
    assert abs(result.wake_at - clock() - 3600) < 600
    assert [run.wake_at for run in journal.list()] == [result.wake_at]
    clock.ahead = 1800
    early = await within(compiled.resume(journal, RUN, deps=host))
    assert (early.status, early.wake_at) == (RunStatus.PAUSED, result.wake_at)
    clock.ahead = 3601
    late = await within(compiled.resume(journal, RUN, deps=host))
    assert (late.status, late.state.log, late.wake_at) == (RunStatus.COMPLETED, ["a", "b"], None)
    assert [run.wake_at for run in journal.list()] == [None]


async def test_without_park_a_sleeping_run_stays(journal: Journal) -> None:
    clock = Clock()
    compiled = graph(S).then(sleep_node("rest", seconds=2)).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=Host(clock=clock))) as task:
        await eventually(lambda: any(row.kind == RowKind.PART for row in rows_of(journal)))
        assert not task.done()
        result = await finish(task)
    assert result.status is RunStatus.COMPLETED


def rows_of(journal: Journal) -> list[Any]:
    return journal.history(RUN).rows if any(run.execution_id == RUN for run in journal.list()) else []


async def test_a_killed_sleep_sleeps_only_the_rest() -> None:
    clock = Clock()
    journal = KeptJournal()
    compiled = graph(S).then(sleep_node("rest", hours=1)).then(say("b")).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=Host(clock=clock))):
        await eventually(lambda: any(row.kind == RowKind.PART for row in rows_of(journal)))
        killed = journal.cut(RUN, len(journal.rows(RUN)))
    clock.ahead = 3601
    result = await within(compiled.resume(killed, RUN, deps=Host(clock=clock)))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["b"])


async def test_the_clock_may_be_set_back_before_a_resume(journal: Journal) -> None:
    clock = Clock()
    compiled = graph(S).then(sleep_node("rest", hours=1)).compile()
    host = Host(park=True, clock=clock)
    await within(compiled.run(journal=journal, execution_id=RUN, deps=host))
    clock.ahead = -86400
    result = await within(compiled.resume(journal, RUN, deps=host))
    assert result.wake_at is not None
    assert result.wake_at - clock() < 3601  # not a day and an hour


async def test_the_clock_may_be_set_back_during_a_sleep() -> None:
    clock = Clock()
    compiled = graph(S).then(sleep_node("rest", seconds=0.3)).then(say("b")).compile()
    async with running(compiled.run(deps=Host(clock=clock))) as task:
        await asyncio.sleep(0)
        clock.ahead = -3600
        result = await finish(task)
    assert result.state.log == ["b"]


async def test_a_suspended_machine_wakes_a_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    # The loop's clock does not count time in suspend, the wall clock does.
    monkeypatch.setattr("atomic.graph.engine.waits.CLOCK_SECONDS", 0.05)
    clock = Clock()
    compiled = graph(S).then(sleep_node("rest", hours=1)).then(say("b")).compile()
    async with running(compiled.run(deps=Host(clock=clock))) as task:
        await asyncio.sleep(0)
        clock.ahead = 3700
        result = await finish(task)
    assert result.state.log == ["b"]


async def test_sleeping_does_not_count_for_the_timeout_of_the_node() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        await ctx.sleep(seconds=0.5)
        return {"done": True}

    assert (await ended(graph(S).node("n", run, timeout=0.2).compile())).state.done


async def test_a_run_parks_only_when_no_branch_is_at_work(journal: Journal) -> None:
    go = asyncio.Event()
    clock = Clock()

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        await go.wait()
        return {"log": ["work"]}

    nap: Node[S] = sleep_node("x", hours=1)
    compiled = graph(S).parallel({"x": nap, "y": graph(S).node("y", work).sleep("nap", hours=9)}).compile()
    host = Host(park=True, clock=clock)
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=host)) as task:
        await eventually(lambda: any(row.kind == RowKind.PART for row in rows_of(journal)))
        clock.ahead = 3601
        await eventually(lambda: [record.node_id for record in journal.records(RUN)] == ["x"])
        go.set()
        result = await finish(task)
    assert (result.status, result.codes, result.state.log) == (RunStatus.PAUSED, ("sleeping",), ["work"])


def nested() -> Any:
    inner = graph(S).parallel({"x": sleep_node("x", hours=1), "y": receive("y", "go")}).compile()
    return graph(S).map("m", over=lambda s: [1, 2], node=graph(S).subgraph("sub", inner), max_concurrency=1).compile()


def edges() -> Any:
    nodes: list[Node[S]] = [say("a"), sleep_node("x", hours=1), sleep_node("y", hours=2), say("end")]
    joined = [Edge("a", "x"), Edge("a", "y"), Edge("x", "end"), Edge("y", "end")]
    return compile_graph(GraphConfig(start_node="a", nodes=nodes, edges=joined, state=S, max_concurrency=1))


@pytest.mark.parametrize("make", [nested, edges])
async def test_branches_at_any_depth_park(journal: Journal, make: Any) -> None:
    result = await within(make().run(journal=journal, execution_id=RUN, deps=Host(park=True)))
    assert (result.status, set(result.codes)) == (
        RunStatus.PAUSED,
        {"sleeping"} if make is edges else {"sleeping", "signal"},
    )


async def test_a_sleep_of_less_than_a_minute_does_not_park(journal: Journal) -> None:
    compiled = graph(S).parallel({"x": sleep_node("x", seconds=0.3), "y": sleep_node("y", hours=1)}).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN, deps=Host(park=True)))
    assert (result.status, [record.node_id for record in journal.records(RUN)]) == (RunStatus.PAUSED, ["x"])


async def test_a_program_of_a_step_keeps_it_from_parking(journal: Journal) -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        program = asyncio.create_task(ctx.exec("sleep", "1"))
        await asyncio.sleep(0.1)
        nap = asyncio.create_task(ctx.sleep(hours=1))
        done = await program
        nap.cancel()
        return {"count": done.exit_code}

    result = await ended(graph(S).node("n", run).compile(), journal=journal, deps=Host(park=True))
    assert result.state.count == 0


async def test_an_updatable_timer_is_a_race_of_a_signal_and_a_time(journal: Journal) -> None:
    clock = Clock()

    async def timer(ctx: NodeContext[S]) -> dict[str, Any]:
        seconds = 3600.0
        while True:
            try:
                seconds = await ctx.wait_for("update", timeout=seconds, returns=float)
            except TimeoutError:
                return {"log": [f"{seconds:g}"]}

    compiled = graph(S).node("timer", timer).compile()
    host = Host(clock=clock)
    result = await within(compiled.run(journal=journal, execution_id=RUN, deps=host))
    journal.signal(RUN, "update", 7200)
    later = await within(compiled.resume(journal, RUN, deps=host))
    assert result.wake_at is not None
    assert later.wake_at is not None
    assert 3000 < later.wake_at - result.wake_at < 4200
    clock.ahead = 7300
    last = await within(compiled.resume(journal, RUN, deps=host))
    assert (last.status, last.state.log) == (RunStatus.COMPLETED, ["7200"])


async def test_a_sleep_node_takes_a_time_from_the_state() -> None:
    seen: list[datetime] = []

    def until(state: S) -> datetime:
        seen.append(datetime.now(UTC) + timedelta(seconds=0.02 * state.count))
        return seen[-1]

    await ended(graph(S).then(sleep_node("rest", until=until)).compile(), {"count": 2})
    assert datetime.now(UTC) >= seen[0]
