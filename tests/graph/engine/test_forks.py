"""A copy of a run continues like the run, with its answers, questions and parts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from atomic.graph.engine.journal import RowKind, encode_row
from atomic.workflows import (
    Journal,
    MemoryJournal,
    NodeContext,
    NodeResult,
    Question,
    RunStatus,
    Signal,
    SqliteJournal,
    Suspend,
    graph,
)
from tests.graph.engine.law_journals import write
from tests.graph.engine.small import RUN, S, say, within


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    with MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "runs.db") as opened:
        yield opened


async def two_questions(ctx: NodeContext[S]) -> dict[str, Any]:
    return {"log": [await ctx.ask(Question("One?", id="one")), await ctx.ask(Question("Two?", id="two"))]}


def copies(journal: Journal) -> list[str]:
    """Return a copy of a run, or a copy of a copy."""
    first = journal.fork(RUN)
    return [first, journal.fork(first)]


async def test_answers_to_a_copy_reach_it(journal: Journal) -> None:
    compiled = graph(S).node("n", two_questions).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    for copy in copies(journal):
        result = await within(compiled.resume(journal, copy, answers={"one": "1"}))
        assert [question.id for question in result.questions] == ["two"]
        result = await within(compiled.resume(journal, copy, answers={"two": "2"}))
        assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["1", "2"])
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, [question.id for question in result.questions]) == (RunStatus.PAUSED, ["one"])


async def test_a_copy_keeps_the_answers_that_the_run_had(journal: Journal) -> None:
    compiled = graph(S).node("n", two_questions).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    await within(compiled.resume(journal, RUN, answers={"one": "1"}))
    for copy in copies(journal):
        result = await within(compiled.resume(journal, copy, answers={"two": "2"}))
        assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["1", "2"])


async def test_a_copy_from_after_an_answered_signal_continues(journal: Journal) -> None:
    async def signals(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": ["a"]}, signals=[Signal("human_input_required", "Well?", {"id": "q"})])

    compiled = graph(S).node("a", signals).then(say("b")).then(say("c")).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    await within(compiled.resume(journal, RUN, answers={"q": "yes"}))
    for copy in [*copies(journal), journal.fork(RUN, at=2)]:
        assert compiled.load(journal, copy).outputs == {"q": "yes"}
        result = await within(compiled.resume(journal, copy))
        assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["a", "b", "c"])
        assert result.state.outputs == {"q": "yes"}


async def test_a_copy_remembers_the_parts_of_its_steps(journal: Journal) -> None:
    done: list[str] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.remembered("paid") is None:
            done.append(ctx.step_id)
            await ctx.remember("paid", True)
            raise Suspend("later")
        return {"log": [ctx.step_id]}

    compiled = graph(S).node("n", run).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    for copy in copies(journal):
        result = await within(compiled.resume(journal, copy))
        assert result.state.log == [f"{copy}:n#1"]
    assert done == [f"{RUN}:n#1"]


async def test_a_copy_counts_the_attempts_that_were_begun(journal: Journal) -> None:
    attempts: list[int] = []

    async def run(ctx: NodeContext[S]) -> None:
        attempts.append(ctx.attempt)
        raise Suspend("later")

    compiled = graph(S).parallel([graph(S).node("n", run)]).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    copy = copies(journal)[1]
    await within(compiled.resume(journal, copy))
    await within(compiled.resume(journal, copy))
    assert attempts == [1, 2, 3]


async def test_a_copy_by_an_earlier_version_is_read_correctly() -> None:
    """It kept the ids of steps with the id of the original run."""
    journal = MemoryJournal()
    compiled = graph(S).node("n", two_questions).compile()
    await within(compiled.run(journal=journal, execution_id=RUN))
    await within(compiled.resume(journal, RUN, answers={"one": "1"}))
    start = journal.history(RUN).start
    rows = journal.history(RUN).rows
    old = MemoryJournal()
    copied = msgspec.structs.replace(start, execution_id="copy", forked_from=RUN)
    write(old, "copy", [encode_row(RowKind.START, copied), *rows])
    result = await within(compiled.resume(old, "copy", answers={"two": "2"}))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["1", "2"])
