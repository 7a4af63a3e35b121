"""A node that swallows a pause: the run is paused, and the question stays open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from atomic.workflows import (
    MemoryJournal,
    NodeContext,
    NodeResult,
    Question,
    Retry,
    RunResult,
    RunStatus,
    Skip,
    Suspend,
    graph,
    map_node,
    node,
    subgraph_node,
)
from tests.graph.engine.small import RUN, S, failed, running, say, within, write

Run = Callable[[NodeContext[S]], Awaitable[Any]]


def ids(result: RunResult[S]) -> list[str]:
    return [question.id for question in result.questions]


def q(id: str) -> Question:
    return Question(f"{id}?", id=id)


async def gathered(ctx: NodeContext[S]) -> dict[str, Any]:
    answers = await asyncio.gather(ctx.ask(q("a")), ctx.ask(q("b")), return_exceptions=True)
    return {"log": [str(answer) for answer in answers]}


async def waited(ctx: NodeContext[S]) -> dict[str, Any]:
    done, _ = await asyncio.wait({asyncio.ensure_future(ctx.ask(q("a"))), asyncio.ensure_future(ctx.ask(q("b")))})
    return {"log": sorted("pause" if task.exception() else str(task.result()) for task in done)}


async def left_behind(ctx: NodeContext[S]) -> dict[str, Any]:
    tasks = [asyncio.ensure_future(ctx.ask(q(id))) for id in ("a", "b")]
    await asyncio.sleep(0.01)
    return {"log": ["pause" if not task.done() or task.exception() else task.result() for task in tasks]}


async def returned_in_finally(ctx: NodeContext[S]) -> Any:
    answers = ["pause", "pause"]
    try:
        answers = await asyncio.gather(ctx.ask(q("a")), ctx.ask(q("b")))
    finally:
        return {"log": answers}  # noqa: B012


async def excepted(ctx: NodeContext[S]) -> Any:
    answers: list[str] = []
    for id in ("a", "b"):
        try:
            answers.append(await ctx.ask(q(id)))
        except BaseException:
            answers.append("pause")
    return NodeResult({"log": answers})


async def suppressed(ctx: NodeContext[S]) -> Any:
    answers: list[str] = []
    for id in ("a", "b"):
        with contextlib.suppress(BaseException):
            answers.append(await ctx.ask(q(id)))
    return {"log": answers}


SWALLOWERS = (gathered, waited, left_behind, returned_in_finally, excepted, suppressed)


@pytest.mark.parametrize("place", ["plain", "retried", "timed", "branch", "item", "subgraph"])
@pytest.mark.parametrize("run", SWALLOWERS)
async def test_the_run_is_paused_and_continues_with_the_answers(run: Run, place: str) -> None:
    journal = MemoryJournal()
    inner = graph(S).node("n", run)
    built = (
        {
            "plain": inner,
            "retried": graph(S).node("n", run, retry=Retry(0)),
            "timed": graph(S).node("n", run, timeout=60),
            "branch": graph(S).parallel([inner, write("other")]),
            "item": graph(S).then(map_node("m", over=lambda state: [1], node=node("n", run))),
            "subgraph": graph(S).then(subgraph_node("sub", inner.compile())),
        }[place]
        .then(say("next"))
        .compile()
    )
    result = await within(built.run(journal=journal, execution_id=RUN))
    assert (result.status, result.error, ids(result)) == (RunStatus.PAUSED, None, ["a", "b"])
    assert result.state.log == []
    result = await within(built.resume(journal, RUN, answers={"a": "1", "b": "2"}))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["1", "2", "next"])


async def test_a_question_in_a_task_that_has_not_started_stays_open() -> None:
    journal = MemoryJournal()

    async def left_at_once(ctx: NodeContext[S]) -> dict[str, Any]:
        tasks = [asyncio.ensure_future(asyncio.wait_for(ctx.ask(q(id)), 60)) for id in ("a", "b")]
        return {"count": len(tasks)}

    compiled = graph(S).node("n", left_at_once).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, ids(result)) == (RunStatus.PAUSED, ["a", "b"])
    result = await within(compiled.resume(journal, RUN, answers={"a": "1", "b": "2"}))
    assert (result.status, result.state.count) == (RunStatus.COMPLETED, 2)


async def test_a_question_without_await_fails_the_node() -> None:
    async def forgets(ctx: NodeContext[S]) -> None:
        call: Any = ctx.ask("Who?")
        calls.append(call)

    calls: list[Any] = []
    text = await failed(graph(S).node("n", forgets).compile(), "n")
    assert text == "n: ctx.ask(…) was called without await, so nothing was asked; write: await ctx.ask(…)"
    for call in calls:
        call.close()


async def test_a_failure_after_a_swallowed_pause_fails_the_step() -> None:
    journal = MemoryJournal()
    healthy: list[bool] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        with contextlib.suppress(BaseException):
            return {"text": await ctx.ask(q("a"))}
        if not healthy:
            raise ValueError("no")
        return {}

    compiled = graph(S).node("n", run).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, str(result.error), ids(result)) == (RunStatus.FAILED, "n: ValueError: no", [])
    healthy.append(True)
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, ids(result)) == (RunStatus.PAUSED, ["a"])
    result = await within(compiled.resume(journal, RUN, answers={"a": "1"}))
    assert (result.status, result.state.text) == (RunStatus.COMPLETED, "1")


async def test_a_handled_failure_after_a_swallowed_pause_leaves_no_question() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        with contextlib.suppress(BaseException):
            await ctx.ask(q("a"))
        raise ValueError("no")

    compiled = graph(S).node("n", run, on_error=lambda error, ctx: Skip({"text": "skipped"})).compile()
    result = await within(compiled.run())
    assert (result.status, ids(result), result.state.text) == (RunStatus.COMPLETED, [], "skipped")


async def test_the_pause_of_a_failed_attempt_does_not_count_for_the_next() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.attempt > 1:
            return {"count": ctx.attempt}
        with contextlib.suppress(BaseException):
            await ctx.ask(q("a"))
        raise ValueError("no")

    result = await within(graph(S).node("n", run, retry=Retry(0)).compile().run())
    assert (result.status, ids(result), result.state.count) == (RunStatus.COMPLETED, [], 2)


class Host:
    """A user who answers when the test decides."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def broker(self) -> Host:
        return self

    async def ask(self, question: Question) -> str:
        self.asked.set()
        return await self.answer


async def test_a_live_question_that_timed_out_does_not_pause() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        try:
            return {"text": await asyncio.wait_for(ctx.ask(q("a")), 0.01)}
        except TimeoutError:
            return {"text": "nobody"}

    result = await within(graph(S).node("n", run).compile().run(deps=Host()))
    assert (result.status, ids(result), result.state.text) == (RunStatus.COMPLETED, [], "nobody")


async def test_a_step_waits_for_the_answer_to_a_live_question_of_its_task() -> None:
    journal = MemoryJournal()
    host = Host()
    tasks: list[asyncio.Future[Any]] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        tasks.append(asyncio.ensure_future(ctx.ask(q("a"))))
        await host.asked.wait()
        return {"text": "left"}

    compiled = graph(S).node("n", run).compile()
    async with running(compiled.run(deps=host, journal=journal, execution_id=RUN)) as task:
        await within(host.asked.wait())
        await asyncio.sleep(0.02)
        assert not task.done()
        host.answer.set_result("1")
        result = await asyncio.wait_for(task, 30)
    assert (result.status, ids(result), tasks[0].result()) == (RunStatus.COMPLETED, [], "1")


async def test_a_question_that_is_declined_is_open() -> None:
    class Decliner:
        async def ask(self, question: Question) -> str:
            raise Suspend("later", question=question)

    class Deps:
        broker = Decliner()

    result = await within(graph(S).node("n", excepted).compile().run(deps=Deps()))
    assert (result.status, ids(result)) == (RunStatus.PAUSED, ["a", "b"])


async def test_a_task_that_outlives_its_node_cannot_ask() -> None:
    refused: list[str] = []
    late: list[asyncio.Task[None]] = []
    over = asyncio.Event()

    async def asks_later(ctx: NodeContext[S]) -> None:
        await over.wait()
        try:
            await ctx.ask(q("a"))
        except Exception as error:
            refused.append(str(error))

    async def run(ctx: NodeContext[S]) -> None:
        late.append(asyncio.create_task(asks_later(ctx)))

    async def then(ctx: NodeContext[S]) -> None:
        over.set()
        await late[0]

    result = await within(graph(S).node("n", run).node("then", then).compile().run())
    assert (result.status, ids(result)) == (RunStatus.COMPLETED, [])
    assert refused == ["n: the step is over and can no longer ask 'a?'"]
