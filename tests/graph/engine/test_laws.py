"""Every graph matches the plain interpreter, and no kill loses or repeats a step."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from atomic.sessions import SqliteJournal
from tests.graph.engine.law_building import Outside, compiled
from tests.graph.engine.law_checks import RUN, assert_ended_as, check_every_cut, check_resume, digest_of, in_scopes
from tests.graph.engine.law_journals import KeptJournal, finished, write
from tests.graph.engine.law_plans import Plan, digest, plans
from tests.graph.engine.law_reference import Reference, TooLongError

PAUSES = st.integers(0, 3)


def expected_of(plan: Plan, most: int = 150) -> Reference:
    try:
        return Reference(plan, most=most)
    except TooLongError:
        assume(False)
        raise


@given(plans(), PAUSES)
@settings(max_examples=150)
def test_a_run_ends_like_the_plain_interpreter(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan)
    outside = Outside(pauses)
    result = asyncio.run(compiled(plan, outside).run())
    assert_ended_as(expected, result)
    assert Counter(outside.seen) == Counter(expected.seen)
    assert result.steps == len(expected.ran)


@given(plans(), PAUSES)
@settings(max_examples=100)
def test_a_stream_yields_every_step_with_the_state_after_it(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan)
    outside = Outside(pauses)

    async def streamed() -> list[tuple[str, int]]:
        return [(step.node_id, digest_of(step.state)) async for step in compiled(plan, outside).stream()]

    steps = asyncio.run(streamed())
    assert Counter(outside.seen) == Counter(expected.seen)
    wanted = in_scopes(expected.ran, ((step.node_id, step.state_after) for step in expected.ran))
    assert in_scopes(expected.ran, steps) == wanted


@given(plans(), PAUSES, st.booleans())
@settings(max_examples=50)
def test_a_run_that_is_cut_after_any_row_ends_like_an_uncut_one(plan: Plan, pauses: int, snapshots: bool) -> None:
    expected = expected_of(plan, most=60)
    outside = Outside(pauses)
    asyncio.run(check_every_cut(compiled(plan, outside), outside, expected, snapshots=snapshots))


@given(plans(depth=3), PAUSES)
@settings(max_examples=40)
def test_the_state_after_any_step_can_be_loaded_and_forked(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan, most=60)
    outside = Outside(pauses)
    graph = compiled(plan, outside)

    async def check() -> None:
        journal = KeptJournal()
        await graph.run(journal=journal, execution_id=RUN)
        assert digest_of(graph.load(journal, RUN)) == digest(expected.values)
        outer = [step for step in expected.ran if not step.scope]
        places = [r.step for r in finished(journal.records(RUN)) if r.node_id in {step.node_id for step in outer}]
        for place, step in zip(places, outer, strict=True):
            assert digest_of(graph.load(journal, RUN, at=place)) == step.state_after
        for at in range(len(expected.ran) + 1):
            copy = journal.fork(RUN, at=at)
            assert len(finished(journal.records(copy))) == at
            await check_resume(graph, outside, journal, expected, run=copy)

    asyncio.run(check())


@given(plans(depth=3))
@settings(max_examples=6)
def test_a_run_on_disk_resumes_after_any_row(tmp_path_factory: pytest.TempPathFactory, plan: Plan) -> None:
    expected = expected_of(plan, most=30)
    outside = Outside()
    asyncio.run(check_cuts_on_disk(plan, outside, expected, tmp_path_factory.mktemp("cuts")))


async def check_cuts_on_disk(plan: Plan, outside: Outside, expected: Reference, folder: Path) -> None:
    graph = compiled(plan, outside)
    whole = KeptJournal()
    await graph.run(journal=whole, execution_id=RUN)
    assert whole.first is not None
    rows = [whole.first, *whole.rows(RUN)]
    with SqliteJournal(folder / "runs.db") as journal:
        await graph.run(journal=journal, execution_id="whole")
        assert digest_of(graph.load(journal, "whole")) == digest(expected.values)
    for place in range(1, len(rows) + 1):
        with SqliteJournal(folder / f"{place}.db") as journal:
            write(journal, RUN, rows[:place])
        with SqliteJournal(folder / f"{place}.db") as journal:
            await check_resume(graph, outside, journal, expected)


@pytest.mark.full
@given(plans(), PAUSES, st.booleans())
@settings(max_examples=400)
def test_many_more_graphs_survive_a_cut_after_any_row(plan: Plan, pauses: int, snapshots: bool) -> None:
    expected = expected_of(plan, most=100)
    outside = Outside(pauses)
    asyncio.run(check_every_cut(compiled(plan, outside), outside, expected, snapshots=snapshots))
