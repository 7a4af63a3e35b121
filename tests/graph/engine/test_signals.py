"""Signals: they are kept, arrive in order, and each is received by one step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from atomic.graph.engine import sent_signals
from atomic.workflows import (
    Failed,
    Flow,
    Journal,
    MemoryJournal,
    NodeContext,
    Retry,
    RunNotFoundError,
    RunStatus,
    SignalError,
    SqliteJournal,
    graph,
    workflow,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, ended, failed, running, say, within
from tests.graph.engine.waiting import Clock, Host, finish, journals, receive
from tests.support.waits import eventually


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    yield from journals(request, tmp_path)


async def test_a_run_without_a_host_pauses_and_names_the_signal(journal: Journal) -> None:
    compiled = graph(S).then(receive("wait", "approved")).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, result.codes, result.signals) == (RunStatus.PAUSED, ("signal",), ("approved",))
    expected = 'wait: waits for the signal "approved" (to send it: journal.signal("run", "approved", data))'
    assert (str(result.error), result.wake_at) == (expected, None)
    journal.signal(RUN, "approved", {"by": "Ann"})
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["{'by': 'Ann'}"])


async def test_a_signal_that_came_before_the_wait_is_kept(journal: Journal) -> None:
    compiled = graph(S).then(receive("first", "a")).then(receive("second", "b")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    journal.signal(RUN, "b", 2)
    journal.signal(RUN, "a", 1)
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["1", "2"])


async def test_signals_of_a_name_arrive_in_order_each_once(journal: Journal) -> None:
    compiled = graph(S).then(receive("first", "n", "n")).then(receive("second", "n")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    for number in range(4):
        journal.signal(RUN, "n", number)
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["0", "1", "2"])


async def test_a_host_keeps_the_process_until_the_signal_is_there(journal: Journal) -> None:
    compiled = graph(S).then(receive("wait", "go")).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=Host(stays=True))) as task:
        await eventually(lambda: any(run.execution_id == RUN for run in journal.list()))
        journal.signal(RUN, "go", "now")
        result = await finish(task)
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["now"])


async def test_a_host_receives_what_another_connection_sends(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    compiled = graph(S).then(receive("wait", "go")).compile()
    async with running(compiled.run(journal=path, execution_id=RUN, deps=Host(stays=True))) as task:
        await eventually(path.exists)
        with SqliteJournal(path) as other:
            await eventually(other.list)
            other.signal(RUN, "go", "now")
        result = await finish(task)
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["now"])


async def test_branches_wait_for_signals_side_by_side(journal: Journal) -> None:
    compiled = (
        graph(S).parallel({"x": receive("x", "a"), "y": receive("y", "b"), "z": say("z")}).then(say("end")).compile()
    )
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, set(result.signals)) == (RunStatus.PAUSED, {"a", "b"})
    assert 'signal "a"' in str(result.error)
    assert 'signal "b"' in str(result.error)
    journal.signal(RUN, "b", "B")
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.signals) == (RunStatus.PAUSED, ("a",))
    journal.signal(RUN, "a", "A")
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["A", "B", "z", "end"])


async def test_a_node_can_wait_for_several_signals_at_once(journal: Journal) -> None:
    async def both(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": await asyncio.gather(ctx.wait_for("a"), ctx.wait_for("b"))}

    compiled = graph(S).node("both", both).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, result.signals) == (RunStatus.PAUSED, ("a", "b"))
    journal.signal(RUN, "b", "B")
    await within(compiled.resume(journal, RUN))
    journal.signal(RUN, "a", "A")
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["A", "B"])


async def test_a_killed_step_receives_the_same_signal_again() -> None:
    received = asyncio.Event()
    seen: list[Any] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        seen.append(await ctx.wait_for("n"))
        received.set()
        if len(seen) == 1:
            await asyncio.Event().wait()
        return {"log": [str(seen[-1])]}

    compiled = graph(S).then(receive("first", "other")).node("n", run).then(receive("last", "n")).compile()
    journal = KeptJournal()
    await within(compiled.run(journal=journal, execution_id=RUN))
    for name, data in (("other", 0), ("n", 1), ("n", 2)):
        journal.signal(RUN, name, data)
    async with running(compiled.resume(journal, RUN)):
        await within(received.wait())
        killed = journal.cut(RUN, len(journal.rows(RUN)))
    killed.signal(RUN, "n", 2)  # the copy has no signals: this one comes after the received one
    result = await within(compiled.resume(killed, RUN))
    assert (result.status, seen, result.state.log) == (RunStatus.COMPLETED, [1, 1], ["0", "1", "2"])


async def test_a_retry_receives_the_signal_of_the_failed_attempt(journal: Journal) -> None:
    async def deploy(ctx: NodeContext[S]) -> dict[str, Any]:
        data = await ctx.wait_for("approved")
        if ctx.attempt < 3:
            raise ValueError("the server is down")
        return {"log": [f"{data} {ctx.attempt}"]}

    compiled = graph(S).node("deploy", deploy, retry=Retry(0, attempts=3)).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    journal.signal(RUN, "approved", "yes")
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["yes 3"])


async def test_a_failed_run_resumes_with_the_signal_of_its_failed_step(journal: Journal) -> None:
    broken = [True]

    async def deploy(ctx: NodeContext[S]) -> dict[str, Any]:
        data = await ctx.wait_for("approved")
        if broken:
            raise ValueError("the server is down")
        return {"log": [data]}

    compiled = graph(S).node("deploy", deploy).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    journal.signal(RUN, "approved", "yes")
    result = await within(compiled.resume(journal, RUN))
    assert result.status is RunStatus.FAILED
    broken.clear()
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["yes"])


async def test_a_task_that_a_failed_attempt_left_takes_no_signal(journal: Journal) -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        async def fail() -> None:
            if ctx.attempt == 1:
                raise ValueError("broken")

        data, _ = await asyncio.gather(ctx.wait_for("go"), fail())
        return {"log": [data]}

    compiled = graph(S).node("n", run, retry=Retry(0, attempts=2)).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=Host(stays=True))) as task:
        await eventually(lambda: any(run.execution_id == RUN for run in journal.list()))
        journal.signal(RUN, "go", "now")
        result = await finish(task)
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["now"])


class Decision(msgspec.Struct):
    approve: bool
    note: str = ""


async def test_data_is_checked_and_a_signal_that_does_not_fit_is_dropped(journal: Journal) -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        decision = await ctx.wait_for("decided", returns=Decision)
        assert isinstance(decision, Decision)
        return {"log": [decision.note]}

    compiled = graph(S).node("n", run).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    journal.signal(RUN, "decided", {"approve": "perhaps"})
    result = await within(compiled.resume(journal, RUN))
    assert result.status is RunStatus.PAUSED
    warning = 'n: a signal "decided" does not fit and was dropped: Expected `bool`, got `str` - at `$.approve`'
    assert [event.data["text"] for event in result.warnings] == [warning]
    journal.signal(RUN, "decided", Decision(approve=True, note="fine"))
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log, list(result.warnings)) == (RunStatus.COMPLETED, ["fine"], [])


async def test_a_timeout_ends_the_wait_with_timeout_error(journal: Journal) -> None:
    compiled = graph(S).then(receive("wait", "go", timeout=0.05)).compile()
    text = await failed(compiled, "wait", journal=journal, execution_id=RUN, deps=Host(stays=True))
    assert text == 'wait: TimeoutError: no signal "go" came in time'


@pytest.mark.parametrize("timeout", [0, -5, 0.0, timedelta(seconds=-1)])
async def test_a_timeout_in_the_past_takes_only_what_is_there(journal: Journal, timeout: Any) -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        found: list[str] = []
        for _ in range(2):
            try:
                found.append(await ctx.wait_for("go", timeout=timeout))
            except TimeoutError:
                found.append("nothing")
        return {"log": found}

    compiled = graph(S).then(receive("first", "begin")).node("n", run).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    journal.signal(RUN, "go", "early")
    journal.signal(RUN, "begin")
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["None", "early", "nothing"])


async def test_a_resume_does_not_extend_the_timeout(journal: Journal) -> None:
    clock = Clock()
    compiled = graph(S).then(receive("wait", "go", timeout="2h")).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN, deps=Host(clock=clock)))
    wake_at = result.wake_at
    assert wake_at is not None
    assert abs(wake_at - clock() - 7200) < 600
    assert [run.wake_at for run in journal.list()] == [wake_at]
    clock.ahead = 3600
    result = await within(compiled.resume(journal, RUN, deps=Host(clock=clock)))
    assert (result.status, result.wake_at) == (RunStatus.PAUSED, wake_at)
    clock.ahead = 7201
    result = await within(compiled.resume(journal, RUN, deps=Host(clock=clock)))
    assert (result.status, str(result.error)) == (
        RunStatus.FAILED,
        'wait: TimeoutError: no signal "go" came in time',
    )


async def test_a_signal_that_was_sent_in_time_counts_after_the_timeout(journal: Journal) -> None:
    clock = Clock()
    compiled = graph(S).then(receive("wait", "go", timeout="2h")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN, deps=Host(clock=clock)))
    journal.signal(RUN, "go", "in time")
    clock.ahead = 9000
    result = await within(compiled.resume(journal, RUN, deps=Host(clock=clock)))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["in time"])


async def test_a_signal_that_came_too_late_is_left_for_the_next_wait(journal: Journal) -> None:
    clock = Clock()

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        try:
            first = await ctx.wait_for("go", timeout=3600)
        except TimeoutError:
            first = "too late"
        return {"log": [first, await ctx.wait_for("go")]}

    compiled = graph(S).node("n", run).compile()
    clock.ahead = -7200
    await within(compiled.run(journal=journal, execution_id=RUN, deps=Host(clock=clock)))
    clock.ahead = 0
    journal.signal(RUN, "go", "late")
    result = await within(compiled.resume(journal, RUN, deps=Host(clock=clock)))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["too late", "late"])


async def test_a_timeout_stays_one_when_the_step_runs_again() -> None:
    journal = KeptJournal()
    reached = asyncio.Event()
    outcomes: list[str] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        try:
            outcomes.append(await ctx.wait_for("go", timeout=0.01))
        except TimeoutError:
            outcomes.append("timeout")
        if len(outcomes) == 1:
            reached.set()
            await asyncio.Event().wait()
        return {"log": [outcomes[-1]]}

    compiled = graph(S).node("n", run).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=Host(stays=True))):
        await within(reached.wait())
        killed = journal.cut(RUN, len(journal.rows(RUN)))
    killed.signal(RUN, "go", "late")
    result = await within(compiled.resume(killed, RUN))
    assert (result.status, outcomes) == (RunStatus.COMPLETED, ["timeout", "timeout"])


async def test_the_clock_may_be_set_back_during_a_wait(journal: Journal) -> None:
    clock = Clock()
    host = Host(stays=True, clock=clock)
    compiled = graph(S).then(receive("wait", "go", timeout=0.3)).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=host)) as task:
        await eventually(lambda: any(run.execution_id == RUN for run in journal.list()))
        clock.ahead = -3600
        result = await finish(task)
    assert str(result.error) == 'wait: TimeoutError: no signal "go" came in time'


async def test_waiting_does_not_count_for_the_timeout_of_the_node(journal: Journal) -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": await asyncio.gather(ctx.wait_for("a"), ctx.wait_for("b"))}

    compiled = graph(S).node("n", run, timeout=0.2).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=Host(stays=True))) as task:
        await eventually(lambda: any(run.execution_id == RUN for run in journal.list()))
        journal.signal(RUN, "a", "A")
        await asyncio.sleep(0.6)  # longer than the timeout, also after one of the waits has ended
        journal.signal(RUN, "b", "B")
        result = await finish(task)
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["A", "B"])


async def test_a_cancelled_branch_leaves_later_signals_to_others(journal: Journal) -> None:
    async def quick(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": ["quick"]}

    racing = graph(S).parallel({"x": receive("x", "go"), "y": graph(S).node("y", quick)}, strategy="race")
    compiled = racing.then(receive("then", "go")).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=Host(stays=True))) as task:
        await eventually(lambda: any(run.steps for run in journal.list()))
        journal.signal(RUN, "go", "after the race")
        result = await finish(task)
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["quick", "after the race"])


async def test_a_fork_gets_no_signals_but_what_its_steps_received(journal: Journal) -> None:
    compiled = graph(S).then(receive("first", "go")).then(receive("second", "go")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    for number in (1, 2, 3):
        journal.signal(RUN, "go", number)
    assert (await within(compiled.resume(journal, RUN))).status is RunStatus.COMPLETED
    copy = journal.fork(RUN, at=1)
    result = await within(compiled.resume(journal, copy))
    assert (result.status, result.state.log, result.signals) == (RunStatus.PAUSED, ["1"], ("go",))
    journal.signal(copy, "go", "own")
    result = await within(compiled.resume(journal, copy))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["1", "own"])


async def test_a_fork_receives_its_signals_after_the_clock_was_set_back(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = graph(S).then(receive("first", "go")).then(receive("second", "go")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    journal.signal(RUN, "go", 1)
    await within(compiled.resume(journal, RUN))
    copy = journal.fork(RUN)
    monkeypatch.setattr(sent_signals, "time", SimpleNamespace(time=lambda: 1000.0))
    journal.signal(copy, "go", 2)
    result = await within(compiled.resume(journal, copy))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["1", "2"])


async def test_a_task_that_a_step_left_behind_takes_no_signal(journal: Journal) -> None:
    left: list[asyncio.Task[Any]] = []

    async def leave(ctx: NodeContext[S]) -> None:
        left.append(asyncio.create_task(ctx.wait_for("go")))
        await asyncio.sleep(0)

    compiled = graph(S).node("leave", leave).then(receive("wait", "go")).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN, deps=Host(stays=True))) as task:
        await eventually(lambda: any(run.steps for run in journal.list()))
        journal.signal(RUN, "go", "now")
        result = await finish(task)
    assert (result.state.log, left[0].cancelled()) == (["now"], True)


async def test_signals_of_a_loop_are_received_after_a_snapshot(tmp_path: Path) -> None:
    # A snapshot replaces the rows before it, and with them the received signals.
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"count": ctx.state.count + await ctx.wait_for("add"), "text": "x" * 100_000}

    compiled = graph(S).loop(graph(S).node("n", run), until=lambda state: state.count >= 500).compile()
    path = tmp_path / "runs.db"
    with SqliteJournal(path) as journal:
        await within(compiled.run(journal=journal, execution_id=RUN))
        for number in range(30):
            journal.signal(RUN, "add", number)
        result = await within(compiled.resume(journal, RUN))
        assert (result.status, result.state.count) == (RunStatus.PAUSED, sum(range(30)))
        assert journal.history(RUN).snapshot is not None
        journal.signal(RUN, "add", 65)
        result = await within(compiled.resume(journal, RUN))
        assert (result.status, result.state.count) == (RunStatus.COMPLETED, 500)


@pytest.mark.parametrize("name", ["", " ", "a\nb", "\x1b[2J", "a\x00", " a", "x" * 201, "\u202e"])
def test_a_wrong_name_is_refused_by_sender_and_receiver(journal: Journal, name: str) -> None:
    with pytest.raises(SignalError, match="cannot be the name of a signal: give 1 to 200 printable characters"):
        journal.signal(RUN, name)
    compiled = graph(S).then(receive("wait", name)).compile()
    text = asyncio.run(failed(compiled, "wait", journal=journal, execution_id=RUN))
    assert "cannot be the name of a signal" in text


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (object(), 'The data of the signal "go" cannot be sent: data: a value of type object cannot be recorded'),
        ({"a": [1, {2: object()}]}, r"cannot be sent: data\.a\[1\]"),
        ("\ud800", "a lone surrogate cannot be recorded"),
        (2**70, "cannot be sent"),
        ("x" * 1_000_001, "has 1,000,006 bytes, and a signal has at most 1,000,000: put it into a file"),
    ],
)
async def test_data_that_cannot_be_sent_is_refused_in_one_sentence(journal: Journal, data: Any, reason: str) -> None:
    compiled = graph(S).then(receive("wait", "go")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    with pytest.raises(SignalError, match=reason):
        journal.signal(RUN, "go", data)
    journal.signal(RUN, "go", "good")
    assert (await ended_resume(compiled, journal)).log == ["good"]


async def ended_resume(compiled: Any, journal: Journal) -> S:
    result = await within(compiled.resume(journal, RUN))
    assert result.status is RunStatus.COMPLETED
    return result.state


async def test_unknown_and_completed_runs_get_no_signal(journal: Journal) -> None:
    await ended(graph(S).then(say("a")).compile(), journal=journal, execution_id="nightly")
    with pytest.raises(RunNotFoundError, match=r'Run not found: "nightli" \(did you mean "nightly"\?\)'):
        journal.signal("nightli", "go")
    with pytest.raises(SignalError, match='Run "nightly" is completed and receives no signal: nothing was sent'):
        journal.signal("nightly", "go")


async def test_a_run_that_failed_for_good_gets_no_signal(journal: Journal) -> None:
    @workflow
    async def give_up(flow: Flow) -> str | Failed:
        return Failed("no way")

    await within(give_up.run(journal=journal, execution_id=RUN))
    with pytest.raises(SignalError, match='Run "run" is failed and receives no signal: nothing was sent'):
        journal.signal(RUN, "go")


async def test_a_list_of_runs_has_no_signals(journal: Journal) -> None:
    compiled = graph(S).then(receive("wait", "go")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    journal.signal(RUN, "other")
    assert [run.execution_id for run in journal.list()] == [RUN]
    with pytest.raises(RunNotFoundError, match=r'did you mean "run"\?'):
        journal.signal("runn", "go")
    journal.delete(RUN)
    assert journal.list() == []
    await within(compiled.run(journal=journal, execution_id=RUN))
    result = await within(compiled.resume(journal, RUN))  # the deleted run's signals are gone too
    assert result.status is RunStatus.PAUSED


async def test_wait_for_needs_a_journal_and_a_type() -> None:
    compiled = graph(S).then(receive("wait", "go")).compile()
    text = await failed(compiled, "wait")
    assert "nothing can send a signal to a run without a journal; run it with journal=" in text
    typed = graph(S).then(receive("wait", "go", returns="Decision")).compile()
    text = await failed(typed, "wait", journal=MemoryJournal())
    assert "returns='Decision' is not a type of data" in text
    timed = graph(S).then(receive("wait", "go", timeout="soon")).compile()
    text = await failed(timed, "wait", journal=MemoryJournal())
    assert 'timeout is \'soon\'; give seconds, a text such as "90s" or "30m", or a timedelta' in text


async def test_own_keys_of_the_engine_cannot_be_remembered() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        await ctx.remember("atomic:signal:go#1", 1)

    text = await failed(graph(S).node("n", run).compile(), "n", journal=MemoryJournal())
    assert 'keys that start with "atomic:" are reserved; use another key' in text
