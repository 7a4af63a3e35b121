"""`asyncio.TaskGroup` inside a node: its exceptions are reported without the group."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from atomic.workflows import MemoryJournal, NodeContext, Question, Retry, RunResult, RunStatus, Skip, Suspend, graph
from tests.graph.engine.small import RUN, S, ended, failed, say, within

Part = Callable[[NodeContext[S]], Awaitable[Any]]


def all_of(*parts: Part) -> Callable[[NodeContext[S]], Awaitable[dict[str, Any]]]:
    """Return a node that does all of this concurrently."""

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(as_coroutine(part(ctx))) for part in parts]
        return {"log": [str(task.result()) for task in tasks]}

    return run


async def as_coroutine(work: Awaitable[Any]) -> Any:
    return await work


def ask(id: str) -> Part:
    return lambda ctx: ctx.ask(Question(f"{id}?", id=id))


def broken(error: BaseException) -> Part:
    async def run(ctx: NodeContext[S]) -> None:
        raise error

    return run


def ids(result: RunResult[S]) -> list[str]:
    return [question.id for question in result.questions]


@pytest.mark.parametrize("place", ["plain", "branch", "retried"])
async def test_a_question_in_a_task_group_pauses_the_run(place: str) -> None:
    journal = MemoryJournal()
    run = all_of(ask("name"))
    built = {
        "plain": graph(S).node("n", run),
        "branch": graph(S).parallel([graph(S).node("n", run), say("b")]),
        "retried": graph(S).node("n", run, retry=Retry(0)),
    }[place].compile()
    result = await within(built.run(journal=journal, execution_id=RUN))
    assert (result.status, result.error, ids(result)) == (RunStatus.PAUSED, None, ["name"])
    result = await within(built.resume(journal, RUN, answers={"name": "Bob"}))
    assert (result.status, result.state.log[0]) == (RunStatus.COMPLETED, "Bob")


async def test_all_questions_of_groups_in_groups_are_open() -> None:
    inner = all_of(ask("b"), ask("c"))
    result = await within(graph(S).node("n", all_of(ask("a"), inner)).compile().run())
    assert (result.status, ids(result)) == (RunStatus.PAUSED, ["a", "b", "c"])


async def test_a_limit_in_a_task_group_pauses_with_its_reason() -> None:
    pause = Suspend("the cap of $1 is reached", code="max_cost")
    result = await within(graph(S).node("n", all_of(broken(pause))).compile().run())
    assert (result.status, list(result.codes)) == (RunStatus.PAUSED, ["max_cost"])
    assert str(result.error) == "n: the cap of $1 is reached"


async def test_one_failure_in_a_task_group_is_reported_without_the_group() -> None:
    journal = MemoryJournal()
    compiled = graph(S).node("n", all_of(all_of(broken(ValueError("no"))))).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert str(result.error) == "n: ValueError: no"
    assert isinstance(result.error.__cause__ if result.error else None, ValueError)
    assert [record.error for record in journal.records(RUN)] == ["n: ValueError: no"]


async def test_several_failures_are_all_named() -> None:
    parts = (broken(ValueError("no")), broken(KeyError("k")), all_of(broken(OSError("disk"))))
    text = await failed(graph(S).node("n", all_of(*parts)).compile(), "n")
    assert text == "n: 3 failures: ValueError: no; KeyError: 'k'; OSError: disk"


async def test_a_handler_gets_the_failure_and_not_the_group() -> None:
    seen: list[Exception] = []

    def on_error(error: Exception, ctx: Any) -> Skip:
        seen.append(error)
        return Skip()

    await ended(graph(S).node("n", all_of(broken(ValueError("no"))), on_error=on_error).compile())
    await ended(graph(S).node("n", all_of(broken(ValueError()), broken(OSError())), on_error=on_error).compile())
    assert [type(error) for error in seen] == [ValueError, ExceptionGroup]
    retry = Retry(0, retry_on=lambda error: isinstance(error, ConnectionError), jitter=False)
    attempts: list[int] = []

    async def flaky(ctx: NodeContext[S]) -> None:
        attempts.append(ctx.attempt)
        if ctx.attempt == 1:
            raise ConnectionResetError

    await ended(graph(S).node("n", all_of(flaky), retry=retry).compile())
    assert attempts == [1, 2]


async def test_a_failure_and_a_question_fail_the_step_and_ask_again() -> None:
    journal = MemoryJournal()
    healthy: list[int] = []

    async def flaky(ctx: NodeContext[S]) -> str:
        if not healthy:
            raise ValueError("no")
        return "ok"

    compiled = graph(S).node("n", all_of(ask("name"), flaky)).compile()
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, str(result.error), ids(result)) == (RunStatus.FAILED, "n: ValueError: no", [])
    healthy.append(1)
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, ids(result)) == (RunStatus.PAUSED, ["name"])
    result = await within(compiled.resume(journal, RUN, answers={"name": "Bob"}))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["Bob", "ok"])


async def test_a_base_exception_of_a_library_fails_its_node() -> None:
    class Panic(BaseException):
        pass

    assert await failed(graph(S).node("n", all_of(broken(Panic("oops")))).compile(), "n") == "n: Panic: oops"
    assert await failed(graph(S).node("n", broken(Panic("oops"))).compile(), "n") == "n: Panic: oops"
