"""Retry, on_error, catch, timeouts and cancellation."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from atomic.workflows import (
    END,
    Abort,
    CompiledGraph,
    Edge,
    Goto,
    GraphBuilder,
    GraphConfig,
    GraphError,
    MemoryJournal,
    Node,
    NodeContext,
    NodeResult,
    Retry,
    RunStatus,
    Skip,
    compile_graph,
    graph,
    node,
    tool_node,
)
from tests.graph.engine.small import (
    LIMIT,
    RUN,
    OnError,
    S,
    ended,
    fail,
    failed,
    kill_when,
    run_ready_tasks,
    running,
    say,
    within,
    write,
)
from tests.graph.engine.test_parallel import Loser, eventually
from tests.support.timing import judge

QUICK = Retry(0)


class Flaky:
    """Fails several times, then works. Keeps the number of each attempt."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.attempts: list[int] = []
        self.step_ids: set[str] = set()
        self.errors: list[list[str]] = []
        self.times: list[float] = []

    async def run(self, ctx: NodeContext[S]) -> dict[str, Any]:
        self.times.append(time.monotonic())
        self.attempts.append(ctx.attempt)
        self.step_ids.add(ctx.step_id)
        self.errors.append([str(error) for error in ctx.errors])
        if len(self.attempts) <= self.failures:
            raise ConnectionError(f"failure {len(self.attempts)}")
        return {"log": ["worked"]}

    def node(self, *, on_error: OnError | None = None, **options: Any) -> Node[S]:
        return node("n", self.run, on_error=on_error, **options)


# Retry


async def test_without_a_policy_there_is_one_attempt() -> None:
    flaky = Flaky(1)
    await failed(graph(S).then(flaky.node()).compile(), "n: ")
    assert flaky.attempts == [1]


async def test_a_policy_gives_three_attempts_of_one_step() -> None:
    flaky = Flaky(2)
    (step,) = [step async for step in graph(S).then(flaky.node(retry=QUICK)).compile().stream()]
    assert flaky.attempts == [1, 2, 3]
    assert flaky.step_ids == {step.step_id}
    assert step.attempt == 3
    assert step.state.log == ["worked"]


async def test_a_retrying_tool_has_three_attempts() -> None:
    calls: list[int] = []

    def tool() -> None:
        calls.append(1)
        raise ConnectionError("no net")

    assert "no net" in await failed(graph(S).tool("t", run=tool, retry=QUICK).compile(), "t: ")
    assert len(calls) == 3


async def test_attempts_see_earlier_failures() -> None:
    flaky = Flaky(2)
    await ended(graph(S).then(flaky.node(retry=QUICK)).compile())
    assert [len(errors) for errors in flaky.errors] == [0, 1, 2]
    assert flaky.errors[2][0].startswith("n: ")
    assert "failure 1" in flaky.errors[2][0]


async def test_the_last_failure_is_the_failure() -> None:
    flaky = Flaky(9)
    assert "failure 4" in await failed(graph(S).then(flaky.node(retry=Retry(0, attempts=4))).compile(), "n: ")


async def test_the_delay_grows_by_its_factor_up_to_its_bound() -> None:
    flaky = Flaky(4)
    policy = Retry(0.02, attempts=5, factor=3, max_delay=0.07, jitter=False)
    await ended(graph(S).then(flaky.node(retry=policy)).compile())
    gaps = [later - earlier for earlier, later in pairwise(flaky.times)]
    for gap, least in zip(gaps, [0.02, 0.06, 0.07, 0.07], strict=True):
        assert gap >= least - 0.002
    assert gaps[3] < 0.54  # not 0.02 * 3³ and certainly not more


async def test_with_jitter_many_nodes_do_not_come_back_at_once() -> None:
    many = [Flaky(1) for _ in range(12)]
    nodes = [node(f"n{number}", one.run, retry=Retry(0.2)) for number, one in enumerate(many)]
    await ended(graph(S).parallel(nodes, max_concurrency=0).compile())
    gaps = sorted(flaky.times[1] - flaky.times[0] for flaky in many)
    assert gaps[-1] - gaps[0] > 0.005
    assert gaps[0] > 0
    assert gaps[0] < 0.2  # jitter makes it sooner, never later


async def test_retry_on_selects_the_errors_that_are_retried() -> None:
    flaky = Flaky(1)
    policy = Retry(0, retry_on=lambda error: isinstance(error, TimeoutError))
    await failed(graph(S).then(flaky.node(retry=policy)).compile(), "n: ")
    assert flaky.attempts == [1]
    willing = Flaky(1)
    await ended(graph(S).then(willing.node(retry=Retry(0, retry_on=lambda e: isinstance(e, OSError)))).compile())
    assert willing.attempts == [1, 2]


async def test_an_invalid_update_is_retried_too() -> None:
    calls: list[int] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        calls.append(1)
        return {"count": "wrong"} if len(calls) == 1 else {"count": 1}

    assert (await ended(graph(S).node("n", run, retry=QUICK).compile())).state.count == 1


async def test_a_cancelled_step_is_never_retried() -> None:
    begun = asyncio.Event()
    calls: list[int] = []

    async def run(ctx: NodeContext[S]) -> None:
        calls.append(1)
        begun.set()
        await asyncio.sleep(1000)

    async with running(graph(S).node("n", run, retry=QUICK).compile().run()) as task:
        await within(begun.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert calls == [1]


def leave(*_: Any) -> Any:
    raise SystemExit(3)


@pytest.mark.parametrize(
    "built",
    [
        graph(S).then(say("a")).if_(leave, then=[say("b")]),
        graph(S).loop([say("a")], until=leave),
        graph(S).map("m", over=leave, node=say("a")),
        graph(S).parallel({"a": say("a"), "b": say("b")}, merge=leave),
        graph(S).subgraph("s", graph(S).then(say("a")).compile(), output_mapper=leave),
        graph(S).then(fail("a", on_error=leave)),
    ],
)
async def test_a_function_that_exits_fails_only_its_node(built: GraphBuilder[S]) -> None:
    result = await within(built.compile().run())
    assert (result.status, "SystemExit: 3" in str(result.error)) == (RunStatus.FAILED, True)


class Panic(BaseException):
    """As an extension module raises it."""


async def test_a_panic_of_a_tool_fails_only_its_node() -> None:
    def panics() -> None:
        raise Panic("index out of bounds")

    result = await within(graph(S).tool("t", run=panics).compile().run())
    assert str(result.error) == "t: RuntimeError: the function raised Panic(index out of bounds)"


BACKOFFS: dict[str, Callable[[Flaky], GraphBuilder[S]]] = {
    "policy": lambda flaky: graph(S).then(flaky.node(retry=Retry(60, jitter=False))),
    "on_error": lambda flaky: graph(S).then(flaky.node(on_error=lambda error, ctx: Retry(60))),
    "branch": lambda flaky: graph(S).parallel([flaky.node(retry=Retry(60, jitter=False)), say("a")]),
    "composite": lambda flaky: graph(S).parallel([flaky.node()], on_error=lambda error, ctx: Retry(60)),
}


@pytest.mark.timed
@pytest.mark.parametrize("place", BACKOFFS)
async def test_a_cancel_during_a_60_s_backoff_takes_effect_at_once(place: str) -> None:
    journal = MemoryJournal()
    flaky = Flaky(9)
    compiled = BACKOFFS[place](flaky).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN)) as task:
        await eventually(lambda: bool(flaky.attempts))
        await run_ready_tasks()
        start = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        judge(time.monotonic() - start, 0.2)
    assert journal.list()[0].status == "cancelled"


async def test_a_backoff_in_one_branch_does_not_hold_up_another() -> None:
    flaky = Flaky(9)
    never = graph(S).then(flaky.node(retry=Retry(60, jitter=False)))
    compiled = graph(S).parallel({"slow": never, "fast": say("fast")}, strategy="any").compile()
    assert (await ended(compiled)).state.log == ["fast"]


async def test_the_record_of_a_step_has_its_attempts() -> None:
    journal = MemoryJournal()
    flaky = Flaky(2)
    await ended(graph(S).then(flaky.node(retry=QUICK)).compile(), journal=journal, execution_id=RUN)
    (record,) = journal.records(RUN)
    assert (record.attempt, record.status) == (3, RunStatus.COMPLETED)


# On_error


async def test_skip_counts_the_step_as_done_with_its_update() -> None:
    compiled = graph(S).then(fail("n", on_error=lambda error, ctx: Skip({"log": [f"skipped {error}"]})))
    result = await ended(compiled.then(say("next")).compile())
    assert result.state.log == ["skipped broken", "next"]
    assert (await ended(graph(S).then(fail("n", on_error=lambda error, ctx: Skip())).compile())).steps == 1


async def test_abort_fails_the_run_with_its_error() -> None:
    compiled = graph(S).then(fail("n", on_error=lambda error, ctx: Abort(RuntimeError("said so")))).compile()
    assert "said so" in await failed(compiled, "n: ")
    plain = graph(S).then(fail("n", on_error=lambda error, ctx: Abort())).compile()
    assert "broken" in await failed(plain, "n: ")


async def test_abort_takes_no_further_attempt() -> None:
    flaky = Flaky(9)
    compiled = graph(S).then(flaky.node(retry=Retry(0, attempts=5), on_error=lambda error, ctx: Abort(error)))
    await failed(compiled.compile(), "n: ")
    assert flaky.attempts == [1]


async def test_retry_as_an_answer_is_bounded_by_three_attempts() -> None:
    flaky = Flaky(9)
    await failed(graph(S).then(flaky.node(on_error=lambda error, ctx: Retry(0))).compile(), "n: ")
    assert flaky.attempts == [1, 2, 3]


async def test_retry_as_an_answer_is_bounded_by_the_nodes_own_attempts() -> None:
    flaky = Flaky(9)
    compiled = graph(S).then(flaky.node(retry=Retry(0, attempts=2), on_error=lambda error, ctx: Retry(0, attempts=50)))
    await failed(compiled.compile(), "n: ")
    assert flaky.attempts == [1, 2]


async def test_of_retry_as_an_answer_only_the_delay_counts() -> None:
    flaky = Flaky(1)
    compiled = graph(S).then(
        flaky.node(retry=Retry(40, attempts=3, jitter=False), on_error=lambda error, ctx: Retry(0.05))
    )
    await ended(compiled.compile())
    assert 0.04 < flaky.times[1] - flaky.times[0] < 20


def recovering(on_error: Callable[[Any, Any], Any], **options: Any) -> Any:
    return compile_graph(
        GraphConfig(
            start_node="n",
            nodes=[fail("n", on_error=on_error), say("next"), say("repair", **options)],
            edges=[Edge("n", "next"), Edge("repair", "next")],
            state=S,
        )
    )


async def test_goto_as_an_answer_goes_to_a_recovery_node_that_needs_no_edge() -> None:
    compiled = recovering(lambda error, ctx: Goto("repair"), recovery=True)
    assert (await ended(compiled)).state.log == ["repair", "next"]


async def test_goto_as_an_answer_to_an_ordinary_node_fails_clearly() -> None:
    text = await failed(recovering(lambda error, ctx: Goto("next"), recovery=True), "n: ")
    assert "recovery" in text
    assert "next" in text


async def test_goto_as_an_answer_to_nowhere_fails_clearly() -> None:
    text = await failed(recovering(lambda error, ctx: Goto("repiar"), recovery=True), "n: ")
    assert "repiar" in text


async def test_a_recovery_node_sees_what_failed() -> None:
    seen: list[str] = []

    async def repair(ctx: NodeContext[S]) -> None:
        seen.extend(str(error) for error in ctx.errors)

    compiled = compile_graph(
        GraphConfig(
            start_node="n",
            nodes=[fail("n", on_error=lambda error, ctx: Goto("repair")), node("repair", repair, recovery=True)],
            edges=[],
            state=S,
        )
    )
    await ended(compiled)
    assert seen == ["n: ValueError: broken"]


async def test_on_error_sees_the_error_and_the_step() -> None:
    seen: list[tuple[Any, ...]] = []

    def answer(error: Exception, ctx: NodeContext[S]) -> Skip:
        seen.append((type(error), str(error), ctx.node_id, ctx.attempt, ctx.state.text))
        return Skip()

    await ended(graph(S).then(fail("n", on_error=answer)).compile(), {"text": "x"})
    assert seen == [(ValueError, "broken", "n", 1, "x")]


@pytest.mark.parametrize("answer", ["retry", 7, {"log": []}])
async def test_any_other_answer_of_on_error_is_reported(answer: Any) -> None:
    text = await failed(graph(S).then(fail("n", on_error=lambda error, ctx: answer)).compile(), "n: ")
    assert "on_error" in text


async def test_an_invalid_update_of_skip_is_reported() -> None:
    await failed(graph(S).then(fail("n", on_error=lambda error, ctx: Skip({"nope": 1}))).compile(), "n, nope: ")


@pytest.mark.parametrize("shape", ["parallel", "map", "subgraph"])
async def test_on_error_of_a_composite_handles_failures_inside(shape: str) -> None:
    def answer(error: Exception, ctx: NodeContext[S]) -> Skip:
        return Skip({"log": [f"{ctx.node_id}: {error}"]})

    builder = graph(S).then(say("before"))
    if shape == "parallel":
        builder = builder.parallel([fail("n"), say("m")], id="c", on_error=answer)
    elif shape == "map":
        builder = builder.map("c", over=lambda s: [1], node=fail("n"), on_error=answer)
    else:
        builder = builder.subgraph("c", graph(S).then(fail("n")).compile(), on_error=answer)
    journal = MemoryJournal()
    compiled = builder.then(say("next")).compile()
    log = (await ended(compiled, journal=journal, execution_id=RUN)).state.log
    assert (log[0], log[-1], len(log)) == ("before", "next", 3)
    assert log[1].startswith("c: ")
    assert "broken" in log[1]
    assert compiled.load(journal, RUN).log == log
    assert (await compiled.resume(journal, RUN)).state.log == log


async def test_retry_as_the_answer_of_a_composite_is_bounded_too() -> None:
    flaky = Flaky(99)
    compiled = graph(S).parallel([flaky.node()], id="c", on_error=lambda error, ctx: Retry(0)).compile()
    result = await within(compiled.run())
    assert result.status is RunStatus.FAILED
    assert len(flaky.attempts) == 3


# Catch


def caught(seen: list[str], goto: str | None = None) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> NodeResult:
        seen.extend(str(error) for error in ctx.errors)
        return NodeResult({"log": ["caught"]}, goto=goto)

    return node("report", run)


async def test_catch_runs_once_and_the_run_stays_failed() -> None:
    seen: list[str] = []
    result = await within(graph(S).then(say("a")).then(fail("n")).then(say("b")).catch(caught(seen)).compile().run())
    assert result.status is RunStatus.FAILED
    assert str(result.error) == "n: ValueError: broken"
    assert result.state.log == ["a", "caught"]
    assert seen == ["n: ValueError: broken"]


@pytest.mark.parametrize(("goto", "log"), [("b", ["a", "caught", "b"]), (END, ["a", "caught"])])
async def test_a_catch_node_with_a_goto_continues_the_run(goto: str, log: list[str]) -> None:
    compiled = graph(S).then(say("a")).then(fail("n")).then(say("b")).catch(caught([], goto)).compile()
    assert (await ended(compiled)).state.log == log


async def test_catch_does_not_catch_itself() -> None:
    result = await within(graph(S).then(fail("n", "first")).catch(fail("report", "second")).compile().run())
    assert result.status is RunStatus.FAILED
    assert "first" in str(result.error) or "second" in str(result.error)


async def test_catch_that_returns_to_the_failing_node_is_bounded() -> None:
    compiled = graph(S).then(fail("n")).catch(caught([], "n")).compile(max_steps=50)
    result = await within(compiled.run())
    assert result.status is RunStatus.FAILED
    assert result.state.log == ["caught"]  # once


async def test_catch_sees_failures_of_branches() -> None:
    seen: list[str] = []
    result = await within(graph(S).parallel([fail("n"), say("m")]).catch(caught(seen)).compile().run())
    assert result.status is RunStatus.FAILED
    assert seen == ["n: ValueError: broken"]


async def test_catch_does_not_run_when_nothing_failed() -> None:
    assert (await ended(graph(S).then(say("a")).catch(caught([])).compile())).state.log == ["a"]


async def test_catch_handles_an_exhausted_retry() -> None:
    flaky = Flaky(9)
    seen: list[str] = []
    await within(graph(S).then(flaky.node(retry=QUICK)).catch(caught(seen)).compile().run())
    assert flaky.attempts == [1, 2, 3]
    assert "failure 3" in seen[-1]


async def test_a_branch_has_a_catch_of_its_own() -> None:
    good = graph(S).then(fail("n")).then(say("b")).catch(caught([], END))
    bad = graph(S).then(fail("n")).then(say("b")).catch(caught([]))
    compiled = graph(S).parallel({"x": good, "y": say("y")}).then(say("z")).compile()
    assert (await ended(compiled)).state.log == ["caught", "y", "z"]
    await failed(graph(S).parallel({"x": bad, "y": say("y")}).then(say("z")).compile(), "n: ")


async def test_a_subgraph_has_a_catch_of_its_own() -> None:
    child = graph(S).then(fail("n")).then(say("b")).catch(caught([], "b")).compile()
    assert (await ended(graph(S).subgraph("sub", child).compile())).state.log == ["caught", "b"]


async def test_a_catching_node_may_ask() -> None:
    async def ask(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult(goto="b" if await ctx.ask("go on without it?") == "yes" else None)

    compiled = graph(S).then(fail("n")).then(say("b")).catch(node("ask", ask)).compile()
    for answer, status in (("yes", RunStatus.COMPLETED), ("no", RunStatus.FAILED)):
        journal = MemoryJournal()
        result = await within(compiled.run(journal=journal, execution_id=RUN))
        assert (result.status, [question.id for question in result.questions]) == (RunStatus.PAUSED, ["ask-1"])
        result = await within(compiled.resume(journal, RUN, answers={"ask-1": answer}))
        assert result.status is status


async def test_a_run_that_is_killed_in_its_catch_resumes_there() -> None:
    begun = asyncio.Event()
    hangs = True
    ran: list[tuple[str, int, int]] = []

    async def broken(ctx: NodeContext[S]) -> None:
        ran.append((ctx.node_id, ctx.attempt, len(ctx.errors)))
        raise ValueError("broken")

    async def report(ctx: NodeContext[S]) -> None:
        ran.append((ctx.node_id, ctx.attempt, len(ctx.errors)))
        if hangs:
            begun.set()
            await asyncio.sleep(1000)

    compiled = graph(S).then(say("a")).node("n", broken).catch(node("report", report)).compile()
    journal = await kill_when(compiled, begun)
    hangs = False
    result = await within(compiled.resume(journal, RUN))
    assert str(result.error) == "n: ValueError: broken"
    assert ran == [("n", 1, 0), ("report", 1, 1), ("report", 2, 1)]


async def test_a_caught_run_can_be_retried() -> None:
    works = False

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        if not works:
            raise ValueError("not yet")
        return {"log": ["n"]}

    journal = MemoryJournal()
    compiled = graph(S).node("n", run).then(say("b")).catch(caught([])).compile()
    assert (await within(compiled.run(journal=journal, execution_id=RUN))).status is RunStatus.FAILED
    works = True
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.error) == (RunStatus.COMPLETED, None)
    assert result.state.log == ["caught", "n", "b"]
    assert compiled.load(journal, RUN) == result.state


# Timeouts


async def test_a_timeout_reaches_the_coroutine() -> None:
    ended_by: list[str] = []

    async def run(ctx: NodeContext[S]) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended_by.append("finally")

    text = await failed(graph(S).node("n", run, timeout=0.05).compile(), "n: ")
    assert "0.05" in text
    assert ended_by == ["finally"]


async def test_a_timeout_gives_up_a_threads_result() -> None:
    free = threading.Event()

    def block() -> str:
        free.wait(30)
        return "too late"

    result = await within(graph(S).tool("t", run=block, timeout=0.05).compile().run())
    free.set()
    assert result.status is RunStatus.FAILED
    assert str(result.error).startswith("t: ")
    assert result.state.outputs == {}


async def test_a_timeout_ends_the_child_process(tmp_path: Any) -> None:
    loser = Loser(tmp_path)

    async def run(ctx: NodeContext[S]) -> None:
        await loser.run(ctx)

    await failed(graph(S).node("n", run, timeout=2.0).compile(), "n: ")
    loser.assert_gone()


async def test_a_timeout_is_for_one_attempt() -> None:
    calls: list[int] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        calls.append(ctx.attempt)
        if ctx.attempt < 3:
            await asyncio.sleep(1000)
        return {"log": ["worked"]}

    compiled = graph(S).node("n", run, timeout=0.05, retry=QUICK).compile()
    assert (await ended(compiled)).state.log == ["worked"]
    assert calls == [1, 2, 3]


async def test_the_timeout_of_the_graph_is_the_default_of_its_nodes() -> None:
    async def slow(ctx: NodeContext[S]) -> None:
        await asyncio.sleep(1000)

    await failed(graph(S).node("n", slow).compile(timeout=0.05), "n: ")


async def test_the_nodes_own_timeout_beats_the_graphs() -> None:
    async def slow(ctx: NodeContext[S]) -> None:
        await asyncio.sleep(0.2)

    await ended(graph(S).node("n", slow, timeout=20).compile(timeout=0.05))


@pytest.mark.parametrize("shape", ["parallel", "map", "subgraph"])
async def test_the_timeout_of_a_composite_ends_everything_inside(shape: str) -> None:
    ended_by: list[str] = []

    async def slow(ctx: NodeContext[S]) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            ended_by.append(ctx.node_id)

    builder = graph(S)
    if shape == "parallel":
        builder = builder.parallel([node("x", slow), node("y", slow)], id="c", timeout=0.05)
    elif shape == "map":
        builder = builder.map("c", over=lambda s: [1, 2], node=node("x", slow), timeout=0.05)
    else:
        inner = graph(S).parallel([node("x", slow), node("y", slow)]).compile()
        builder = builder.subgraph("c", inner, timeout=0.05)
    await failed(builder.compile(), "c: ")
    assert len(ended_by) == 2


async def test_a_timed_out_step_may_be_handled() -> None:
    async def slow(ctx: NodeContext[S]) -> None:
        await asyncio.sleep(1000)

    def answer(error: Exception, ctx: NodeContext[S]) -> Skip:
        assert isinstance(error, TimeoutError)
        return Skip({"log": ["skipped"]})

    compiled = graph(S).node("n", slow, timeout=0.05, on_error=answer).compile()
    assert (await ended(compiled)).state.log == ["skipped"]


async def test_a_timeout_error_of_the_node_itself_is_its_own() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        raise TimeoutError("the server did not answer")

    compiled = graph(S).node("n", run, timeout=1000).compile()
    assert "the server did not answer" in await failed(compiled, "n: ")


# Cancellation


async def test_cancelling_waits_for_every_finally_and_writes_the_end() -> None:
    begun = asyncio.Event()
    cleaned: list[str] = []

    async def slow(ctx: NodeContext[S]) -> None:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.02)
            cleaned.append(ctx.node_id)

    journal = MemoryJournal()
    inner = graph(S).map("m", over=lambda s: [1, 2], node=node("x", slow))
    compiled = graph(S).then(say("a")).parallel([inner, node("y", slow)]).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN)) as task:
        await within(begun.wait())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert sorted(cleaned) == ["x[0]", "x[1]", "y"]
    (info,) = journal.list()
    assert (info.status, info.steps) == ("cancelled", 1)


async def test_closing_a_stream_cancels_the_run() -> None:
    cleaned: list[str] = []

    async def slow(ctx: NodeContext[S]) -> None:
        try:
            await asyncio.sleep(1000)
        finally:
            cleaned.append("slow")

    journal = MemoryJournal()
    compiled = graph(S).parallel([say("fast"), node("slow", slow)]).compile()
    stream: Any = compiled.stream(journal=journal, execution_id=RUN)
    async for step in stream:
        assert step.node_id == "fast"
        await stream.aclose()
    assert cleaned == ["slow"]
    assert journal.list()[0].status == "cancelled"


async def test_a_cancelled_run_resumes_where_it_was() -> None:
    begun = asyncio.Event()
    block = True
    ran: list[str] = []

    async def slow(ctx: NodeContext[S]) -> dict[str, Any]:
        ran.append(ctx.node_id)
        begun.set()
        if block:
            await asyncio.sleep(1000)
        return {"log": ["slow"]}

    def note() -> None:
        ran.append("first")

    journal = MemoryJournal()
    compiled = graph(S).tool("first", run=note).node("slow", slow).then(say("last")).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN)) as task:
        await within(begun.wait())
        task.cancel()
        await asyncio.wait([task])
    block = False
    result = await within(compiled.resume(journal, RUN))
    assert result.state.log == ["slow", "last"]
    assert ran == ["first", "slow", "slow"]


async def test_a_run_that_is_cancelled_twice_still_cleans_up() -> None:
    begun = asyncio.Event()
    cleaning = asyncio.Event()
    free = asyncio.Event()
    cleaned: list[str] = []

    async def slow(ctx: NodeContext[S]) -> None:
        begun.set()
        try:
            await asyncio.sleep(1000)
        finally:
            cleaning.set()
            await free.wait()
            cleaned.append("slow")

    async def other(ctx: NodeContext[S]) -> None:
        await asyncio.sleep(1000)

    journal = MemoryJournal()
    compiled = graph(S).parallel([node("slow", slow), node("other", other)]).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN)) as task:
        await within(begun.wait())
        task.cancel()
        await within(cleaning.wait())
        task.cancel()
        await run_ready_tasks()
        assert not task.done()
        free.set()
        await asyncio.wait([task])
        assert task.cancelled()
    assert cleaned == ["slow"]
    assert journal.list()[0].status == "cancelled"


async def test_a_cancel_reaches_a_blocking_tool_only_as_far_as_its_result() -> None:
    free = threading.Event()
    blocked = threading.Event()

    def block() -> None:
        blocked.set()
        free.wait(30)

    async with running(graph(S).then(tool_node("t", block)).compile().run()) as task:
        await eventually(blocked.is_set)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=LIMIT)
        assert done
        assert task.cancelled()
    free.set()


async def test_no_task_outlives_a_run() -> None:
    before = asyncio.all_tasks()
    branches = [say("a"), fail("b"), write("c", total=1)]
    await within(graph(S).parallel(branches).map("m", over=lambda s: [1], node=say("d")).compile().run())
    assert asyncio.all_tasks() == before


# Recovery nodes


def repairing(*, fails: bool) -> GraphBuilder[S]:
    first = fail("a", on_error=lambda error, ctx: Goto("repair")) if fails else say("a")
    return graph(S).then(first).then(say("b")).then(say("repair", recovery=True)).then(say("c"))


@pytest.mark.parametrize("place", ["chain", "branch", "loop", "first", "last"])
async def test_a_recovery_node_of_a_chain_is_skipped_without_a_failure(place: str) -> None:
    built = {
        "chain": repairing(fails=False),
        "branch": graph(S).parallel([repairing(fails=False)]),
        "loop": graph(S).loop([repairing(fails=False)], until=lambda s: True),
        "first": graph(S).then(say("repair", recovery=True)).then(say("a")).then(say("b")).then(say("c")),
        "last": graph(S).then(say("a")).then(say("b")).then(say("c")).then(say("repair", recovery=True)),
    }[place]
    assert (await ended(built.compile())).state.log == ["a", "b", "c"]


async def test_a_recovery_node_of_a_chain_runs_after_a_goto() -> None:
    assert (await ended(repairing(fails=True).compile())).state.log == ["repair", "c"]


def test_a_chain_of_only_recovery_nodes_is_refused() -> None:
    with pytest.raises(GraphError, match="repair: cannot be reached: only a Goto leads to a node with recovery=True"):
        graph(S).then(say("repair", recovery=True)).compile()


# Goto between branches


def handing_over(target: str, *declared: Edge) -> CompiledGraph[S]:
    async def hand_over(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": ["left"]}, goto=target)

    edges = [
        Edge("a", "left"), Edge("a", "right"), Edge("left", "left2"), Edge("left2", "end"), Edge("right", "right2"),
        Edge("right2", "end"),
    ]  # fmt: skip
    nodes = [say("a"), node("left", hand_over), *map(say, ("left2", "right", "right2", "end"))]
    return compile_graph(GraphConfig(start_node="a", nodes=nodes, edges=[*edges, *declared], state=S))


@pytest.mark.parametrize("target", ["right", "right2"])
async def test_a_goto_into_another_branch_is_refused(target: str) -> None:
    text = await failed(handing_over(target), "left")
    assert text == (
        f"left: goto '{target}': it is in another branch, which does not wait for this one; "
        f"declare an edge with Edge('left', '{target}', condition=…)"
    )


@pytest.mark.parametrize(
    ("target", "log"),
    [
        ("left2", ["a", "left", "left2", "right", "right2", "end"]),
        ("end", ["a", "left", "right", "right2", "end"]),
        (END, ["a", "left", "right", "right2", "end"]),
    ],
)
async def test_a_goto_within_its_own_branch_joins_once(target: str, log: list[str]) -> None:
    assert sorted((await ended(handing_over(target))).state.log) == sorted(log)


async def test_a_declared_edge_into_another_branch_joins_once() -> None:
    compiled = handing_over("right2", Edge("left", "right2", condition=lambda s: False))
    assert (await ended(compiled)).state.log == ["a", "left", "right", "right2", "end"]
