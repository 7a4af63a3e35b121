"""Laws of workflow functions, for random programs, orders of results, kills and edits."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomic.graph.engine import function_stalls
from atomic.graph.engine.journal import EndedBody, RowKind, decode_body
from atomic.workflows import Journal, MemoryJournal, RunResult, RunStatus, SqliteJournal, WorkflowChangedError
from tests.conftest import LEAST
from tests.graph.engine.law_journals import write
from tests.workflows import law_flows
from tests.workflows.law_flows import Outside, Plain, Process, Program, edits, programs, rows_of, told

RUN = "run"


@pytest.fixture(autouse=True, scope="module")
def little_patience() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(function_stalls, "PATIENCE", 0.01)
        yield


async def play(program: Program, journal: Journal, choose: random.Random, *, is_new: bool) -> tuple[Process, Any]:
    """Start or resume a run, and answer its questions, until it ends. Return the last process."""
    answers: dict[str, str] = {}
    again = choose.random() < 0.5
    while True:
        process = Process(program)
        if not is_new:
            law_flows.outside.begin_process(one.key for one in told(journal.history(RUN).rows))
        if is_new:
            result: RunResult[Any] = await process.drive(process.workflow.run(journal=journal, execution_id=RUN))
        else:
            result = await process.drive(process.workflow.resume(journal, RUN, answers=answers))
        is_new = False
        answers = {}
        if result.status is RunStatus.PAUSED:
            asked = [question.id for question in result.questions]
            answers = {id: f"answer {law_flows.outside.next()}" for id in asked if choose.random() < 0.8}
        elif result.status is RunStatus.FAILED and again:
            again = False
        else:
            return process, result


def check(program: Program, journal: Journal, process: Process, result: RunResult[Any]) -> None:
    """Compare the end of a run with plain asyncio, which gets the results in the recorded order."""
    records = told(journal.history(RUN).rows)
    plain = Plain(records, law_flows.outside.fired)
    how, log = asyncio.run(plain.run(program))
    context = f"{process.at_end}\n{log}\n{[(one.key, one.status, one.cancellations) for one in records]}"
    if how == "completed":
        assert result.status is RunStatus.COMPLETED, context
        assert result.result == plain_data(log), context
    else:
        assert result.status is RunStatus.FAILED, f"{how}: {context}"
        if process.flow_run is not None:
            assert process.at_end == log, f"{how}: {context}"


def plain_data(value: Any) -> Any:
    """Return data as a resume reads it: lists instead of tuples."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(value))


def cut(journal: Journal, fresh: Journal, rows: int) -> None:
    """Copy a run as a process leaves it that is killed after this number of rows."""
    write(fresh, RUN, rows_of(journal.history(RUN))[: rows + 1])


def finished_ids(journal: Journal) -> set[str]:
    return {record.step_id for record in journal.records(RUN) if record.step is not None}


def obey(program: Program, seed: int, cuts: list[int], make: Callable[[], Journal]) -> None:
    choose = random.Random(seed)
    outside = law_flows.outside = Outside(choose)
    journal: Journal = MemoryJournal()
    process, result = asyncio.run(play(program, journal, choose, is_new=True))
    check(program, journal, process, result)
    for number in cuts:
        rows = journal.history(RUN).rows
        kept = number % (len(rows) + 1)
        fresh = make()
        cut(journal, fresh, kept)
        before = finished_ids(fresh)
        outside.begun.clear()
        process, result = asyncio.run(play(program, fresh, choose, is_new=False))
        assert fresh.history(RUN).rows[:kept] == rows[:kept]
        assert before.isdisjoint(outside.begun), f"ran again: {before & set(outside.begun)}"
        check(program, fresh, process, result)
        journal = fresh


laws = given(programs, st.integers(0, 2**32), st.lists(st.integers(0, 1000), min_size=1, max_size=3))


@laws
@settings(max_examples=80)
def test_a_run_ends_like_plain_asyncio_wherever_it_was_killed(program: Program, seed: int, cuts: list[int]) -> None:
    obey(program, seed, cuts, MemoryJournal)


@laws
@settings(max_examples=LEAST)
def test_the_journal_on_disk_keeps_the_same_law(program: Program, seed: int, cuts: list[int]) -> None:
    with TemporaryDirectory() as folder, ExitStack() as closing:
        numbers = iter(range(len(cuts)))

        def make() -> Journal:
            return closing.enter_context(SqliteJournal(Path(folder) / f"{next(numbers)}.db"))

        obey(program, seed, cuts, make)


def obey_edits(programs: tuple[Program, Program], seed: int, kept: int) -> None:
    """Resume a run that was killed or paused with changed code: it ends as plain asyncio
    ends with the results that are recorded, or is refused and left as it was.
    """
    before, after = programs
    choose = random.Random(seed)
    outside = law_flows.outside = Outside(choose)
    journal: Journal = MemoryJournal()
    process = Process(before)
    asyncio.run(process.drive(process.workflow.run(journal=journal, execution_id=RUN)))
    fresh = MemoryJournal()
    cut(journal, fresh, kept % (len(journal.history(RUN).rows) + 1))
    rows = fresh.history(RUN).rows
    done = finished_ids(fresh)
    outside.begun.clear()
    if rows and rows[-1].kind == RowKind.ENDED and decode_body(rows[-1], EndedBody).status == RunStatus.COMPLETED:
        return
    try:
        process, result = asyncio.run(play(after, fresh, choose, is_new=False))
    except WorkflowChangedError:
        assert fresh.history(RUN).rows == rows
        assert not outside.begun
        return
    assert done.isdisjoint(outside.begun), f"ran again: {done & set(outside.begun)}"
    check(after, fresh, process, result)


edits_law = given(edits(), st.integers(0, 2**32), st.integers(0, 1000))


@edits_law
@settings(max_examples=80)
def test_changed_code_continues_rightly_or_is_refused(programs: tuple[Program, Program], seed: int, kept: int) -> None:
    obey_edits(programs, seed, kept)


@pytest.mark.full
@edits_law
@settings(max_examples=3000)
def test_much_changed_code_continues_rightly_or_is_refused(
    programs: tuple[Program, Program], seed: int, kept: int
) -> None:
    obey_edits(programs, seed, kept)


@pytest.mark.full
@laws
@settings(max_examples=3000)
def test_many_runs_end_like_plain_asyncio(program: Program, seed: int, cuts: list[int]) -> None:
    obey(program, seed, cuts, MemoryJournal)
