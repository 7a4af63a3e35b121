"""Despite any kill, each possible task is done once and the rest is reported."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomic.graph.engine.journal import Row, RunLog, Signals
from atomic.workflows import CompiledGraph, NodeContext, RunStatus, TaskList, graph, node, task_loop_node
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, say, within

# For each task, the earlier tasks that block it, and whether it fails.
Dag = list[tuple[list[int], bool]]


@st.composite
def dags(draw: st.DrawFn) -> Dag:
    size = draw(st.integers(1, 7))
    return [
        (sorted(draw(st.sets(st.integers(0, max(0, n - 1)), max_size=2))) if n else [], draw(st.integers(0, 9)) == 0)
        for n in range(size)
    ]


def doable(dag: Dag) -> set[str]:
    """Return the tasks that can be done: neither they nor their blockers fail."""
    done: set[int] = set()
    for number, (blockers, fails) in enumerate(dag):
        if not fails and done.issuperset(blockers):
            done.add(number)
    return {f"t{number}" for number in done}


class WatchingJournal(KeptJournal):
    """Keeps the file at each write of rows: a kill leaves one of these pairs."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.files: dict[int, list[str]] = {}

    def create(self, execution_id: str, start: Row) -> RunLog:
        return _WatchingLog(super().create(execution_id, start), self)

    def note(self) -> None:
        contents = self.files.setdefault(len(self.rows(RUN)), [])
        if (content := self._path.read_text()) not in contents:
            contents.append(content)


class _WatchingLog:
    def __init__(self, log: RunLog, journal: WatchingJournal) -> None:
        self._log = log
        self._journal = journal

    def append(self, rows: Sequence[Row], *, sync: bool = True) -> None:
        self._journal.note()
        self._log.append(rows, sync=sync)
        self._journal.note()

    def snapshot(self, step: int, body: bytes) -> None:
        self._log.snapshot(step, body)

    def redacted(self, packed: bytes) -> bytes:
        return self._log.redacted(packed)

    def new_signals(self) -> Signals:
        return self._log.new_signals()

    def release(self) -> None:
        self._log.release()


class Work:
    """The work of the tasks; it fails where the list demands it."""

    def __init__(self, dag: Dag, pauses: int) -> None:
        self._dag = dag
        self._pauses = pauses
        self.ran: list[str] = []
        self.step_ids: list[str] = []

    async def run(self, ctx: NodeContext[S]) -> dict[str, Any]:
        task_id: str = ctx.item.id
        for _ in range(int(task_id[1:]) * 7 % (self._pauses + 1)):
            await asyncio.sleep(0)
        self.ran.append(task_id)
        self.step_ids.append(ctx.step_id)
        if self._dag[int(task_id[1:])][1]:
            raise ValueError("cannot be done")
        return {"log": [task_id]}


async def check(dag: Dag, limit: int, pauses: int, path: Path) -> None:
    work = Work(dag, pauses)
    tasks = [
        {"id": f"t{n}", "title": "", "blocked_by": [f"t{b}" for b in blockers]} for n, (blockers, _) in enumerate(dag)
    ]
    path.write_text(json.dumps({"tasks": tasks}))
    loop = task_loop_node(
        "tasks", tasks_path=str(path), task_nodes=[say("before"), node("work", work.run)], max_concurrency=limit
    )
    compiled = graph(S).then(loop).then(say("end")).compile()
    journal = WatchingJournal(path)
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert_done(dag, path, result.status, result.state.log)
    expected = result.state.log
    for rows, contents in list(journal.files.items()):
        for content in contents:
            path.write_text(content)
            await check_cut(compiled, work, journal.cut(RUN, rows), dag, path, expected)


def assert_done(dag: Dag, path: Path, status: RunStatus, log: list[str]) -> None:
    can = doable(dag)
    assert {task.id for task in TaskList.read(path).tasks if task.status == "completed"} == can
    assert status is (RunStatus.COMPLETED if len(can) == len(dag) else RunStatus.BLOCKED)
    assert Counter(word for word in log if word.startswith("t")) == Counter(can)


async def check_cut(
    compiled: CompiledGraph[S], work: Work, journal: KeptJournal, dag: Dag, path: Path, expected: list[str]
) -> None:
    recorded = {record.step_id for record in journal.records(RUN) if record.step is not None}
    work.step_ids.clear()
    result = await within(compiled.resume(journal, RUN))
    assert_done(dag, path, result.status, result.state.log)
    assert not recorded & set(work.step_ids)
    assert len(work.step_ids) == len(set(work.step_ids))
    if result.status is RunStatus.COMPLETED:
        assert result.state.log == expected


@given(dags(), st.sampled_from([1, 2, 0]), st.integers(0, 3))
@settings(max_examples=25)
def test_killed_at_any_moment_every_task_is_done_once(
    tmp_path_factory: pytest.TempPathFactory, dag: Dag, limit: int, pauses: int
) -> None:
    asyncio.run(check(dag, limit, pauses, tmp_path_factory.mktemp("tasks") / "tasks.json"))


@pytest.mark.full
@given(dags(), st.sampled_from([1, 2, 0]), st.integers(0, 3))
@settings(max_examples=200)
def test_killed_at_any_moment_every_task_of_many_more_lists_is_done_once(
    tmp_path_factory: pytest.TempPathFactory, dag: Dag, limit: int, pauses: int
) -> None:
    asyncio.run(check(dag, limit, pauses, tmp_path_factory.mktemp("tasks") / "tasks.json"))
