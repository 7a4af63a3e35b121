"""Parts of a step's work: they outlive a pause and a kill, and not the step."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from atomic.workflows import (
    CompiledGraph,
    Journal,
    JournalError,
    MemoryJournal,
    NodeContext,
    Retry,
    RunStatus,
    SqliteJournal,
    Suspend,
    graph,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, ended, running, say, within

Shape = Callable[[Any], CompiledGraph[S]]
SHAPES: dict[str, Shape] = {
    "chain": lambda run: graph(S).then(say("a")).node("n", run).then(say("z")).compile(),
    "branch": lambda run: graph(S).parallel({"x": graph(S).node("n", run), "y": say("b")}).compile(),
    "map": lambda run: graph(S).map("m", over=lambda s: [1], node=graph(S).node("n", run)).compile(),
    "subgraph": lambda run: graph(S).subgraph("sub", graph(S).node("n", run).compile()).compile(),
}


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    with MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "runs.db") as opened:
        yield opened


class Work:
    """Return a step of three parts that is interrupted after the second while `cut` is set."""

    def __init__(self, cut: Callable[[], Any] | None) -> None:
        self.cut = cut
        self.done = list[str]()

    async def run(self, ctx: NodeContext[S]) -> dict[str, Any]:
        for part in ("one", "two", "three"):
            if ctx.remembered(part) is not None:
                continue
            if part == "three" and self.cut is not None:
                await self.cut()
            self.done.append(part)
            await ctx.remember(part, {"said": part.upper()})
        return {"log": [ctx.remembered(part)["said"] for part in ("one", "two", "three")]}


async def pause() -> None:
    raise Suspend("later")


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_paused_step_resumes_with_its_remembered_parts(journal: Journal, shape: str) -> None:
    work = Work(pause)
    compiled = SHAPES[shape](work.run)
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert (result.status, work.done) == (RunStatus.PAUSED, ["one", "two"])
    work.cut = None
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, work.done) == (RunStatus.COMPLETED, ["one", "two", "three"])
    assert [word for word in result.state.log if word.isupper()] == ["ONE", "TWO", "THREE"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_killed_step_resumes_with_its_remembered_parts(shape: str) -> None:
    begun = asyncio.Event()

    async def hang() -> None:
        begun.set()
        await asyncio.sleep(1000)

    work = Work(hang)
    compiled = SHAPES[shape](work.run)
    kept = KeptJournal()
    async with running(compiled.run(journal=kept, execution_id=RUN)):
        await within(begun.wait())
        journal = kept.cut(RUN, len(kept.rows(RUN)))
    work.cut = None
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, work.done) == (RunStatus.COMPLETED, ["one", "two", "three"])


async def test_the_next_step_of_the_node_remembers_nothing(journal: Journal) -> None:
    known: list[Any] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        known.append(ctx.remembered("x", "nothing"))
        await ctx.remember("x", len(known))
        if len(known) == 2:
            raise Suspend("later")
        return {"count": ctx.state.count + 1}

    compiled = graph(S).loop(graph(S).node("n", run), until=lambda s: s.count == 3).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    await within(compiled.resume(journal, RUN))
    assert known == ["nothing", "nothing", 2, "nothing"]


async def test_a_failed_attempt_is_forgotten(journal: Journal) -> None:
    known: list[Any] = []

    async def run(ctx: NodeContext[S]) -> None:
        known.append(ctx.remembered("x"))
        await ctx.remember("x", len(known))
        if len(known) == 1:
            raise Suspend("later")
        if len(known) < 5:
            raise ValueError("not yet")

    compiled = graph(S).node("n", run, retry=Retry(0, attempts=2)).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, known) == (RunStatus.FAILED, [None, 1, None])
    await within(compiled.resume(journal, RUN))
    assert known == [None, 1, None, None, None]


async def test_without_a_journal_a_step_remembers_while_it_runs() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        await ctx.remember("x", ("a", 1))
        return {"log": [str(ctx.remembered("x")), str(ctx.remembered("y"))]}

    assert (await ended(graph(S).node("n", run).compile())).state.log == ["['a', 1]", "None"]


async def test_a_part_that_cannot_be_recorded_fails_the_step() -> None:
    async def run(ctx: NodeContext[S]) -> None:
        await ctx.remember("x", {"y": object()})

    result = await within(graph(S).node("n", run).compile().run(journal=MemoryJournal()))
    assert result.status is RunStatus.FAILED
    assert str(result.error).startswith("n, x.y: ")


async def test_a_row_of_a_newer_version_is_refused() -> None:
    kept = KeptJournal()
    await within(graph(S).then(say("a")).compile().run(journal=kept, execution_id=RUN))
    log = kept.acquire(RUN)
    log.append([kept.rows(RUN)[-1]._replace(kind=99)])
    log.release()
    with pytest.raises(JournalError, match="a newer version of Atomic wrote it"):
        await within(graph(S).then(say("a")).compile().resume(kept, RUN))
