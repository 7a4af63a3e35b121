"""Failures, stops, retries and questions do not change the result of any graph."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomic.graph import CompiledGraph, MemoryJournal, RunResult, RunStatus
from tests.graph.engine.law_building import Outside, compiled
from tests.graph.engine.law_checks import RUN, Expected, assert_ended_as, check_every_cut, check_resume, loses
from tests.graph.engine.law_edges import edge_plans, wired
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.law_plans import LawState, Plan, plans
from tests.graph.engine.test_laws import expected_of

PAUSES = st.integers(0, 3)
Graph = CompiledGraph[LawState]


async def check_every_failure(graph: Graph, outside: Outside, expected: Expected) -> None:
    """Let each execution fail once, then resume."""
    for place in range(1, len(expected.seen) + 1):
        journal = MemoryJournal()
        outside.clear()
        outside.fails_in = place
        result = await graph.run(journal=journal, execution_id=RUN)
        assert result.status is RunStatus.FAILED
        assert "TroubleError" in str(result.error)
        await check_resume(graph, outside, journal, expected)


async def check_every_stop(graph: Graph, outside: Outside, expected: Expected) -> None:
    """Close the stream after each step, then resume."""
    for place in range(1, len(expected.ran)):
        journal = MemoryJournal()
        outside.clear()
        stream: Any = graph.stream(journal=journal, execution_id=RUN)
        for _ in range(place):
            await anext(stream)
        await stream.aclose()
        assert journal.list()[0].status == "cancelled"
        await check_resume(graph, outside, journal, expected)


async def answered(graph: Graph, journal: MemoryJournal, result: RunResult[LawState], luck: int) -> RunResult[LawState]:
    """Answer some of the open questions at a time, until all are answered."""
    while result.status is RunStatus.PAUSED:
        open_ids = [question.id for question in result.questions]
        assert len(set(open_ids)) == len(open_ids)
        chosen = open_ids[luck % len(open_ids) :] if luck % 2 else open_ids[: luck % len(open_ids) + 1]
        result = await graph.resume(journal, RUN, answers=dict.fromkeys(chosen, "yes"))
    return result


@given(plans(), PAUSES)
@settings(max_examples=40)
def test_a_run_resumes_from_any_failed_step(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan, most=40)
    outside = Outside(pauses, threads=False)
    asyncio.run(check_every_failure(compiled(plan, outside), outside, expected))


@given(plans(), PAUSES)
@settings(max_examples=40)
def test_a_run_resumes_from_any_closed_stream(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan, most=40)
    outside = Outside(pauses, threads=False)
    asyncio.run(check_every_stop(compiled(plan, outside), outside, expected))


@given(edge_plans(), PAUSES)
@settings(max_examples=40)
def test_branches_made_by_edges_resume_after_failures_and_stops(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan, most=40)
    outside = Outside(pauses, threads=False)
    graph = wired(plan, outside)
    asyncio.run(check_every_failure(graph, outside, expected))
    asyncio.run(check_every_stop(graph, outside, expected))


@pytest.mark.ci
@given(plans(), PAUSES, st.booleans())
@settings(max_examples=25)
def test_retries_change_nothing_and_survive_any_cut(plan: Plan, pauses: int, snapshots: bool) -> None:
    expected = expected_of(plan, most=30)
    outside = Outside(pauses, threads=False, flaky=True)
    asyncio.run(check_every_cut(compiled(plan, outside), outside, expected, snapshots=snapshots))


@given(plans(), PAUSES)
@settings(max_examples=15)
def test_handled_failures_survive_any_cut(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan, most=30)
    outside = Outside(pauses, threads=False, skips=True)
    asyncio.run(check_every_cut(compiled(plan, outside), outside, expected, snapshots=False))


@pytest.mark.ci
@given(plans(), PAUSES)
@settings(max_examples=60)
def test_attempts_of_a_step_are_counted_over_every_kill(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan, most=30)
    outside = Outside(pauses, threads=False, flaky=True)

    async def check() -> None:
        whole = KeptJournal()
        graph = compiled(plan, outside)
        await graph.run(journal=whole, execution_id=RUN)
        recorded = {record.step_id: record.attempt for record in whole.records(RUN)}
        for step_id, attempts in outside.attempts.items():
            assert attempts == list(range(1, len(attempts) + 1))
            assert recorded[step_id] == attempts[-1]
        for place in range(len(whole.rows(RUN)) + 1):
            journal = whole.cut(RUN, place)
            before = {record.step_id: record.attempt for record in journal.records(RUN)}
            outside.attempts.clear()
            assert_ended_as(expected, await graph.resume(journal, RUN))
            for step_id, attempts in outside.attempts.items():
                assert step_id not in before
                assert attempts == list(range(attempts[0], attempts[0] + len(attempts)))

    asyncio.run(check())


@given(plans(), PAUSES, st.integers(0, 5))
@settings(max_examples=60)
def test_the_order_of_answers_does_not_change_the_result(plan: Plan, pauses: int, luck: int) -> None:
    expected = expected_of(plan, most=40)
    outside = Outside(pauses, threads=False, asks=True)

    async def check() -> None:
        graph = compiled(plan, outside)
        journal = MemoryJournal()
        result = await graph.run(journal=journal, execution_id=RUN)
        assert_ended_as(expected, await answered(graph, journal, result, luck))
        assert Counter(outside.seen) == Counter(expected.seen)

    asyncio.run(check())


@given(edge_plans(), PAUSES, st.integers(0, 5))
@settings(max_examples=60)
def test_questions_in_branches_made_by_edges_change_nothing(plan: Plan, pauses: int, luck: int) -> None:
    expected = expected_of(plan, most=40)
    outside = Outside(pauses, threads=False, asks=True)

    async def check() -> None:
        graph = wired(plan, outside)
        journal = MemoryJournal()
        result = await graph.run(journal=journal, execution_id=RUN)
        assert_ended_as(expected, await answered(graph, journal, result, luck))
        assert Counter(outside.seen) == Counter(expected.seen)

    asyncio.run(check())


@pytest.mark.ci
@given(plans(depth=3), PAUSES, st.integers(0, 5))
@settings(max_examples=25)
def test_questions_survive_any_cut(plan: Plan, pauses: int, luck: int) -> None:
    expected = expected_of(plan, most=15)
    outside = Outside(pauses, threads=False, asks=True)
    asyncio.run(check_cut_questions(compiled(plan, outside), outside, expected, luck))


async def check_cut_questions(graph: Graph, outside: Outside, expected: Expected, luck: int) -> None:
    whole = KeptJournal()
    first = await graph.run(journal=whole, execution_id=RUN)
    assert_ended_as(expected, await answered(graph, whole, first, luck))
    for place in range(len(whole.rows(RUN)) + 1):
        journal = whole.cut(RUN, place)
        recorded = {record.step_id for record in journal.records(RUN) if record.step is not None}
        outside.clear()
        result = await graph.resume(journal, RUN)
        assert_ended_as(expected, await answered(graph, journal, result, luck + 1))
        assert not recorded & set(outside.step_ids)
        assert len(outside.step_ids) == len(set(outside.step_ids))


@given(plans(contests=True), PAUSES)
@settings(max_examples=80)
def test_only_the_winner_of_a_race_remains(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan)
    outside = Outside(pauses, threads=False)
    assert_ended_as(expected, asyncio.run(compiled(plan, outside).run()))
    assert Counter(seen for seen in outside.seen if not loses(seen[0])) == Counter(expected.seen)


@pytest.mark.ci
@given(plans(contests=True), PAUSES, st.booleans())
@settings(max_examples=25)
def test_races_survive_any_cut(plan: Plan, pauses: int, snapshots: bool) -> None:
    expected = expected_of(plan, most=30)
    outside = Outside(pauses, threads=False)
    asyncio.run(check_every_cut(compiled(plan, outside), outside, expected, snapshots=snapshots))


@pytest.mark.full
@given(plans(contests=True), PAUSES, st.booleans())
@settings(max_examples=200)
def test_many_more_races_survive_any_cut(plan: Plan, pauses: int, snapshots: bool) -> None:
    expected = expected_of(plan, most=40)
    outside = Outside(pauses, threads=False)
    asyncio.run(check_every_cut(compiled(plan, outside), outside, expected, snapshots=snapshots))


@pytest.mark.full
@given(plans(), PAUSES, st.integers(0, 5))
@settings(max_examples=200)
def test_many_more_graphs_get_into_trouble(plan: Plan, pauses: int, luck: int) -> None:
    expected = expected_of(plan, most=40)
    for outside in (Outside(pauses, threads=False), Outside(pauses, threads=False, flaky=True)):
        graph = compiled(plan, outside)
        asyncio.run(check_every_cut(graph, outside, expected, snapshots=bool(luck % 2)))
    outside = Outside(pauses, threads=False)
    asyncio.run(check_every_failure(compiled(plan, outside), outside, expected))
    asyncio.run(check_every_stop(compiled(plan, outside), outside, expected))
    asking = Outside(pauses, threads=False, asks=True)
    asyncio.run(check_cut_questions(compiled(plan, asking), asking, expected, luck))


@pytest.mark.full
@given(edge_plans(), PAUSES, st.integers(0, 5))
@settings(max_examples=200)
def test_many_more_graphs_of_edges_get_into_trouble(plan: Plan, pauses: int, luck: int) -> None:
    expected = expected_of(plan, most=40)
    outside = Outside(pauses, threads=False)
    asyncio.run(check_every_failure(wired(plan, outside), outside, expected))
    asyncio.run(check_every_stop(wired(plan, outside), outside, expected))
    asking = Outside(pauses, threads=False, asks=True)
    asyncio.run(check_cut_questions(wired(plan, asking), asking, expected, luck))
