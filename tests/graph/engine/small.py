"""Helpers for the tests of the engine: a small state, nodes that log their id, and waits with a limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

from atomic.workflows import CompiledGraph, Journal, Node, NodeContext, RunResult, RunStatus, State, node, reducers
from tests.graph.engine.law_journals import KeptJournal
from tests.support.waits import HANG as LIMIT

RUN = "run"

T = TypeVar("T")
AnyStateT = TypeVar("AnyStateT", bound=State)


class S(State):
    """A state with a field of each kind that a test may need."""

    log: Annotated[list[str], reducers.concat] = []
    total: Annotated[int, reducers.sum] = 0
    text: str = ""
    count: int = 0
    done: bool = False


def say(id: str, **options: Any) -> Node[S]:
    """Return a node that adds its id to the log."""

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": [id]}

    return node(id, run, **options)


def write(id: str, **update: Any) -> Node[S]:
    """Return a node that returns this update."""

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return update

    return node(id, run)


OnError = Callable[[Exception, NodeContext[S]], Any]


def fail(id: str, text: str = "broken", *, on_error: OnError | None = None, **options: Any) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> None:
        raise ValueError(text)

    return node(id, run, on_error=on_error, **options)


def wait_for(id: str, event: asyncio.Event) -> Node[S]:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        await within(event.wait())
        return {"log": [id]}

    return node(id, run)


async def within(work: Coroutine[Any, Any, T], seconds: float = LIMIT) -> T:
    return await asyncio.wait_for(work, seconds)


async def run_ready_tasks() -> None:
    """Give all ready tasks several turns of the event loop."""
    for _ in range(30):
        await asyncio.sleep(0)


async def ended(graph: CompiledGraph[AnyStateT], input: Any = None, **options: Any) -> RunResult[AnyStateT]:
    """Run a graph, check that it completes, and return its result."""
    result = await within(graph.run(input, **options))
    assert result.error is None
    assert result.status is RunStatus.COMPLETED
    return result


async def failed(graph: CompiledGraph[Any], node_id: str, input: Any = None, **options: Any) -> str:
    """Run a graph, check that this node fails, and return the text of the error."""
    result = await within(graph.run(input, **options))
    assert result.status is RunStatus.FAILED, result
    text = str(result.error)
    assert text.startswith(node_id), text
    assert "Traceback" not in text
    return text


@asynccontextmanager
async def running(work: Coroutine[Any, Any, T]) -> AsyncGenerator[asyncio.Task[T]]:
    """Run a coroutine in a task that ends with the test."""
    task = asyncio.create_task(work)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()


async def kill_when(graph: CompiledGraph[Any], event: asyncio.Event, input: Any = None) -> Journal:
    """Return the journal of a process that was killed at the moment of the event."""
    journal = KeptJournal()
    async with running(graph.run(input, journal=journal, execution_id=RUN)):
        await within(event.wait())
        return journal.cut(RUN, len(journal.rows(RUN)))
