"""Branches made of edges join once, in order of declaration, despite any kill."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from atomic.graph import CompiledGraph, GraphError, RunStatus
from tests.graph.engine.law_building import Outside
from tests.graph.engine.law_checks import RUN, assert_ended_as, check_every_cut, check_resume, digest_of
from tests.graph.engine.law_edges import Net, NetOutcome, Way, edge_plans, nets, outcome_of, visible, webs, wired, woven
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.law_plans import LawState, Plan, Test, digest, values_of
from tests.graph.engine.small import within
from tests.graph.engine.test_laws import expected_of

PAUSES = st.integers(0, 3)
LIMITS = st.sampled_from([0, 1, 2, 4])


@given(edge_plans(), PAUSES, LIMITS)
@settings(max_examples=400)
def test_a_plan_as_edges_ends_like_the_plain_interpreter(plan: Plan, pauses: int, limit: int) -> None:
    expected = expected_of(plan)
    outside = Outside(pauses)
    result = asyncio.run(wired(plan, outside, limit).run())
    assert_ended_as(expected, result)
    assert Counter(outside.seen) == Counter(expected.seen)
    assert result.steps == len(expected.ran)


@given(edge_plans(), PAUSES, st.booleans())
@settings(max_examples=50)
def test_a_plan_as_edges_survives_any_cut(plan: Plan, pauses: int, snapshots: bool) -> None:
    expected = expected_of(plan, most=60)
    outside = Outside(pauses)
    asyncio.run(check_every_cut(wired(plan, outside), outside, expected, snapshots=snapshots))


@given(nets(), LIMITS)
@settings(max_examples=150)
def test_every_node_runs_once_after_all_nodes_before_it(net: Net, limit: int) -> None:
    expected = outcome_of(net)
    outside = Outside(5)
    graph = woven(net, outside, limit)
    logs = [asyncio.run(checked_run(graph, outside, expected, luck)) for luck in range(4)]
    assert all(log == logs[0] for log in logs), "the final state depends on who was faster"
    for number, before in expected.before.items():
        assert {f"n{other}" for other in before} <= set(logs[0][: logs[0].index(f"n{number}")])


async def checked_run(graph: CompiledGraph[LawState], outside: Outside, expected: NetOutcome, luck: int) -> list[str]:
    outside.clear()
    outside.luck = luck
    result = await graph.run()
    assert result.error is None
    assert Counter(outside.seen) == Counter(expected.seen)
    assert visible(result.state) == visible(LawState(**expected.values))
    return result.state.log


@given(nets(), st.booleans())
@settings(max_examples=50)
def test_a_net_survives_any_cut(net: Net, snapshots: bool) -> None:
    expected = outcome_of(net)
    outside = Outside(3)
    graph = woven(net, outside, 4)
    asyncio.run(check_net_cuts(graph, outside, expected, snapshots))


async def check_net_cuts(
    graph: CompiledGraph[LawState], outside: Outside, expected: NetOutcome, snapshots: bool
) -> None:
    result = await graph.run()
    assert visible(result.state) == visible(LawState(**expected.values))
    expected.values = values_of(result.state)  # with the log in the engine's order, whatever that is
    await check_every_cut(graph, outside, expected, snapshots=snapshots)


@given(edge_plans(), PAUSES)
@settings(max_examples=30)
def test_a_plan_as_edges_can_be_forked_from_any_step(plan: Plan, pauses: int) -> None:
    expected = expected_of(plan, most=40)
    outside = Outside(pauses)
    graph = wired(plan, outside)

    async def check() -> None:
        journal = KeptJournal()
        assert_ended_as(expected, await graph.run(journal=journal, execution_id=RUN))
        assert digest_of(graph.load(journal, RUN)) == digest(expected.values)
        for at in range(len(expected.ran) + 1):
            await check_resume(graph, outside, journal, expected, run=journal.fork(RUN, at=at))

    asyncio.run(check())


FORKS_BACK = Net(  # a node with several ways at once, one of which leads back to itself
    4,
    (
        Way(0, 0, None),
        Way(0, 1, None),
        Way(0, 2, Test(2, 0)),
        Way(0, 3, None),
        Way(1, 0, None),
        Way(3, 0, Test(1, 0)),
        Way(3, None, None),
    ),
    frozenset(),
)


@given(webs())
@example(FORKS_BACK)
@settings(max_examples=200)
def test_the_result_of_any_web_ignores_speed_and_kills(net: Net) -> None:
    outside = Outside(4)
    asyncio.run(check_web(web_of(net, outside), outside))


def web_of(net: Net, outside: Outside) -> CompiledGraph[LawState]:
    try:
        return woven(net, outside, 4)
    except GraphError:  # from some node the end cannot be reached
        assume(False)
        raise


async def check_web(graph: CompiledGraph[LawState], outside: Outside) -> None:
    ends: list[tuple[RunStatus, list[str] | None]] = []
    for luck in range(4):
        outside.luck = luck
        result = await within(graph.run())
        ends.append((result.status, result.state.log if result.status is RunStatus.COMPLETED else None))
    assert all(end == ends[0] for end in ends)
    journal = KeptJournal()
    result = await within(graph.run(journal=journal, execution_id=RUN))
    rows = len(journal.rows(RUN))
    for place in range(rows + 1) if result.status is RunStatus.COMPLETED and rows < 50 else ():
        cut = journal.cut(RUN, place)
        recorded = {record.step_id for record in cut.records(RUN)}
        outside.clear()
        outside.luck = place
        resumed = await within(graph.resume(cut, RUN))
        assert (resumed.status, resumed.state.log) == ends[0]
        assert not recorded & set(outside.step_ids)


@pytest.mark.full
@given(webs())
@settings(max_examples=3000)
def test_many_more_webs_ignore_speed_and_kills(net: Net) -> None:
    outside = Outside(4)
    asyncio.run(check_web(web_of(net, outside), outside))


@pytest.mark.full
@given(edge_plans(), PAUSES, st.booleans())
@settings(max_examples=400)
def test_many_more_plans_as_edges_survive_any_cut(plan: Plan, pauses: int, snapshots: bool) -> None:
    expected = expected_of(plan, most=100)
    outside = Outside(pauses)
    asyncio.run(check_every_cut(wired(plan, outside), outside, expected, snapshots=snapshots))


@pytest.mark.full
@given(nets(), st.booleans())
@settings(max_examples=2000)
def test_many_more_nets_survive_any_cut(net: Net, snapshots: bool) -> None:
    expected = outcome_of(net)
    outside = Outside(3)
    asyncio.run(check_net_cuts(woven(net, outside, 4), outside, expected, snapshots))
