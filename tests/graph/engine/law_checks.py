"""Checks that hold for every run and every resume of any graph."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from atomic.graph import CompiledGraph, Journal, RunResult, RunStatus
from tests.graph.engine.law_building import Outside
from tests.graph.engine.law_journals import KeptJournal, finished
from tests.graph.engine.law_plans import LawState, digest, values_of
from tests.graph.engine.law_reference import Ran

RUN = "run 1:é/#2|@[3]"


class Expected(Protocol):
    """The expected outcome of a run."""

    @property
    def values(self) -> dict[str, Any]: ...

    @property
    def ran(self) -> Sequence[Ran]: ...

    @property
    def seen(self) -> Sequence[tuple[str, int]]: ...


def digest_of(state: LawState) -> int:
    return digest(values_of(state))


def assert_ended_as(expected: Expected, result: RunResult[LawState]) -> None:
    assert result.error is None
    assert result.status is RunStatus.COMPLETED
    assert digest_of(result.state) == digest(expected.values), (values_of(result.state), expected.values)


def in_scopes(ran: Iterable[Ran], reported: Iterable[tuple[str, int]]) -> dict[str, list[tuple[str, int]]]:
    """Return the reported steps by the scope in which they ran, in order."""
    scope_of = {step.node_id: step.scope for step in ran}
    scopes: dict[str, list[tuple[str, int]]] = {}
    for node_id, state in reported:
        scopes.setdefault(scope_of[node_id], []).append((node_id, state))
    return scopes


async def check_every_cut(
    graph: CompiledGraph[LawState], outside: Outside, expected: Expected, *, snapshots: bool
) -> None:
    """Kill after each row, resume, kill again and resume again."""
    whole = KeptJournal()
    assert_ended_as(expected, await graph.run(journal=whole, execution_id=RUN))
    for place in range(len(whole.rows(RUN)) + 1):
        journal = whole.cut(RUN, place, snapshots=snapshots)
        await check_resume(graph, outside, journal, expected)
        second = (place * 7919) % (len(journal.rows(RUN)) + 1)
        again = journal.cut(RUN, second, snapshots=snapshots)
        await check_resumed_stream(graph, again, expected)


async def check_resumed_stream(graph: CompiledGraph[LawState], journal: Journal, expected: Expected) -> None:
    """Check that the stream has every step that ran, once, and none that was recorded before."""
    before = {record.step_id for record in finished(journal.records(RUN))}
    steps = [step async for step in graph.resume_stream(journal, RUN) if step.status is RunStatus.COMPLETED]
    reported = Counter(step.step_id for step in steps if not loses(step.node_id))
    recorded = [record for record in finished(journal.records(RUN)) if record.step_id not in before]
    assert reported == Counter(record.step_id for record in recorded if not loses(record.node_id))
    assert digest_of(graph.load(journal, RUN)) == digest(expected.values)


async def check_resume(
    graph: CompiledGraph[LawState], outside: Outside, journal: Journal, expected: Expected, run: str = RUN
) -> None:
    """Check the final state, that no recorded step ran again, and all others ran once."""
    recorded = finished(journal.records(run))
    outside.clear()
    assert_ended_as(expected, await graph.resume(journal, run))
    assert not set(outside.step_ids) & {record.step_id for record in recorded}
    works = {work_id for work_id, _ in expected.seen}
    left = Counter(work_id for work_id, _ in expected.seen)
    left.subtract(base_id(record.node_id) for record in recorded if base_id(record.node_id) in works)
    assert Counter(work_id for work_id, _ in outside.seen if not loses(work_id)) == +left
    all_records = finished(journal.records(run))
    assert [record.step for record in all_records] == list(range(1, len(all_records) + 1))
    kept = [record.node_id for record in all_records if not loses(record.node_id)]
    assert Counter(kept) == Counter(step.node_id for step in expected.ran)
    assert len({record.step_id for record in all_records}) == len(all_records)


def loses(node_id: str) -> bool:
    """Return whether a step is in a branch that cannot win; its progress is random."""
    return base_id(node_id).startswith("l")


def base_id(node_id: str) -> str:
    return re.sub(r"\[\d+\]", "", node_id.rpartition("/")[2])
