"""Tasks by readiness, not in rounds; nothing is lost or done twice, and the rest is reported."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from atomic.workflows import (
    CompiledGraph,
    GraphError,
    Journal,
    MemoryJournal,
    Node,
    NodeContext,
    Retry,
    RunResult,
    RunStatus,
    Task,
    TaskList,
    ask_user_node,
    graph,
    node,
    task_loop_node,
    tool_node,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, ended, kill_when, run_ready_tasks, running, say, within
from tests.support.waits import eventually


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.json"


def tasks(path: Path, *entries: tuple[str, str] | dict[str, Any]) -> Path:
    """Write a list: an id and the ids of its blockers, or a whole task."""
    data = [
        entry if isinstance(entry, dict) else {"id": entry[0], "title": entry[0], "blocked_by": entry[1].split()}
        for entry in entries
    ]
    path.write_text(json.dumps({"version": "1.0", "tasks": data}))
    return path


def statuses(path: Path) -> dict[str, str]:
    return {task.id: str(task.status) for task in TaskList.read(path).tasks}


def looped(path: Path, *nodes: Node[S], **options: Any) -> CompiledGraph[S]:
    return graph(S).then(task_loop_node("tasks", tasks_path=str(path), task_nodes=list(nodes), **options)).compile()


class Workers:
    """Workers that can be held and that record the order of events."""

    def __init__(self, *held: str) -> None:
        self.free = {name: asyncio.Event() for name in held}
        self.began: list[str] = []
        self.ended: list[str] = []
        self.attempts: list[tuple[str, str, int]] = []
        self.working = 0
        self.most = 0

    async def run(self, ctx: NodeContext[S]) -> dict[str, Any]:
        task: Task = ctx.item
        self.began.append(task.id)
        self.attempts.append((task.id, ctx.step_id, ctx.attempt))
        self.working += 1
        self.most = max(self.most, self.working)
        try:
            if task.id in self.free:
                await within(self.free[task.id].wait())
        finally:
            self.working -= 1
        self.ended.append(task.id)
        return {"log": [task.id]}

    def node(self, id: str = "work", **options: Any) -> Node[S]:
        return node(id, self.run, **options)


# Doing the work


async def test_every_task_runs_through_its_nodes(path: Path) -> None:
    seen: list[tuple[str, str, str]] = []

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        seen.append((ctx.node_id, ctx.item.title, ctx.item.status))
        return {"log": [f"did {ctx.item.id}"]}

    tasks(path, ("1", ""), ("2", "1"))
    state = (await ended(looped(path, node("work", work), say("check")))).state
    assert state.log == ["did 1", "check", "did 2", "check"]
    assert seen == [("work[1]", "1", "in_progress"), ("work[2]", "2", "in_progress")]
    assert statuses(path) == {"1": "completed", "2": "completed"}


async def test_a_tool_gets_the_task(path: Path) -> None:
    titles: list[str] = []

    def note(task: Task) -> None:
        titles.append(task.title)

    tasks(path, ("1", ""), ("2", ""))
    await ended(looped(path, tool_node("t", note)))
    assert titles == ["1", "2"]


async def test_the_path_may_depend_on_the_state(path: Path) -> None:
    workers = Workers()
    tasks(path, ("1", ""))
    loop = task_loop_node("tasks", tasks_path=lambda s: s.text, task_nodes=[workers.node()])
    await ended(graph(S).then(loop).compile(), {"text": str(path)})
    assert workers.ended == ["1"]


async def test_lower_priority_first_then_the_order_of_the_file(path: Path) -> None:
    workers = Workers()
    tasks(
        path,
        {"id": "last", "title": ""},
        {"id": "b", "title": "", "priority": 2},
        {"id": "a", "title": "", "priority": 1},
        {"id": "c", "title": "", "priority": 2},
    )
    await ended(looped(path, workers.node()))
    assert workers.began == ["a", "b", "c", "last"]


async def test_finished_tasks_are_not_repeated(path: Path) -> None:
    workers = Workers()
    tasks(
        path,
        {"id": "1", "title": "", "status": "completed"},
        {"id": "2", "title": "", "status": "skipped"},
        {"id": "3", "title": "", "status": "in_progress", "blocked_by": ["1", "2"]},
    )
    await ended(looped(path, workers.node()))
    assert workers.began == ["3"]
    assert statuses(path) == {"1": "completed", "2": "skipped", "3": "completed"}


async def test_an_empty_list_is_done(path: Path) -> None:
    tasks(path)
    assert (await ended(graph(S).then(looped_node(path)).then(say("behind")).compile())).state.log == ["behind"]


def looped_node(path: Path) -> Node[S]:
    return task_loop_node("tasks", tasks_path=str(path), task_nodes=[say("work")])


async def test_a_change_is_on_the_disk_before_the_worker_starts(path: Path) -> None:
    seen: list[dict[str, str]] = []

    async def work(ctx: NodeContext[S]) -> None:
        seen.append(statuses(path))

    tasks(path, ("1", ""), ("2", "1"))
    await ended(looped(path, node("work", work)))
    assert seen == [{"1": "in_progress", "2": "pending"}, {"1": "completed", "2": "in_progress"}]


async def test_with_one_worker_each_task_sees_all_earlier_results(path: Path) -> None:
    seen: list[list[str]] = []

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        seen.append(ctx.state.log)
        return {"log": [ctx.item.id]}

    tasks(path, ("1", ""), ("2", ""), ("3", ""))
    await ended(looped(path, node("work", work)))
    assert seen == [[], ["1"], ["1", "2"]]


async def test_with_several_workers_each_task_sees_the_results_of_its_blockers(path: Path) -> None:
    seen: dict[str, list[str]] = {}

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        seen[ctx.item.id] = ctx.state.log
        return {"log": [ctx.item.id]}

    tasks(path, ("a", ""), ("b", "a"), ("c", ""), ("d", "b c"))
    state = (await ended(looped(path, node("work", work), max_concurrency=3))).state
    assert seen["b"] == ["a"]
    assert seen["d"] == ["a", "b", "c"]
    assert state.log == ["a", "b", "c", "d"]


# Readiness, not rounds


async def test_a_task_starts_when_its_blocker_is_done_while_others_of_its_round_still_run(path: Path) -> None:
    workers = Workers("slow")
    tasks(path, ("slow", ""), ("quick", ""), ("next", "quick"), ("after", "next"))
    async with running(looped(path, workers.node(), max_concurrency=2).run()) as task:
        await eventually(lambda: "after" in workers.ended)
        assert "slow" not in workers.ended
        workers.free["slow"].set()
        assert (await within(_result(task))).status is RunStatus.COMPLETED
    assert workers.ended == ["quick", "next", "after", "slow"]


async def _result(task: asyncio.Task[RunResult[S]]) -> RunResult[S]:
    return await task


async def test_a_task_waits_for_its_last_blocker_only(path: Path) -> None:
    workers = Workers("a", "b", "other")
    tasks(path, ("a", ""), ("b", ""), ("other", ""), ("ab", "a b"))
    async with running(looped(path, workers.node(), max_concurrency=3).run()) as task:
        await eventually(lambda: len(workers.began) == 3)
        workers.free["a"].set()
        await eventually(lambda: "a" in workers.ended)
        await run_ready_tasks()
        assert "ab" not in workers.began
        workers.free["b"].set()
        await eventually(lambda: "ab" in workers.ended)
        workers.free["other"].set()
        await within(_result(task))


async def test_a_free_worker_takes_the_next_at_once(path: Path) -> None:
    workers = Workers("1")
    tasks(path, *((str(number), "") for number in range(1, 7)))
    async with running(looped(path, workers.node(), max_concurrency=2).run()) as task:
        await eventually(lambda: len(workers.ended) == 5)
        workers.free["1"].set()
        await within(_result(task))
    assert workers.most == 2


@pytest.mark.parametrize(("option", "most"), [({}, 1), ({"max_concurrency": 3}, 3), ({"max_concurrency": 0}, 6)])
async def test_no_more_than_max_concurrency_work_at_once(path: Path, option: dict[str, int], most: int) -> None:
    names = [str(number) for number in range(1, 7)]
    workers = Workers(*names)
    tasks(path, *((name, "") for name in names))
    async with running(looped(path, workers.node(), **option).run()) as task:
        for _ in names:
            await eventually(lambda: workers.working == min(most, 6 - len(workers.ended)))
            workers.free[workers.began[len(workers.ended)]].set()
            count = len(workers.ended) + 1
            await eventually(lambda count=count: len(workers.ended) >= count)
        await within(_result(task))
    assert workers.most == most


# Tasks that remain


def failing(*names: str) -> Node[S]:
    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.item.id in names:
            raise ValueError(f"cannot do {ctx.item.id}")
        return {"log": [ctx.item.id]}

    return node("work", work)


@pytest.mark.parametrize("workers", [1, 3])
async def test_a_failed_task_does_not_stop_the_others_and_the_rest_is_reported(path: Path, workers: int) -> None:
    tasks(path, ("1", ""), ("2", "1"), ("3", "2"), ("4", ""), ("5", "4"))
    result = await within(looped(path, failing("1"), max_concurrency=workers).run())
    assert result.status is RunStatus.BLOCKED
    text = str(result.error)
    assert text.startswith("tasks: ")
    for name in ("1", "2", "3"):
        assert f"task {name}" in text
    assert statuses(path) == {"1": "failed", "2": "pending", "3": "pending", "4": "completed", "5": "completed"}
    assert sorted(result.state.log) == ["4", "5"]


async def test_a_task_fails_with_any_of_its_nodes_and_does_not_go_through_the_rest(path: Path) -> None:
    workers = Workers()
    tasks(path, ("1", ""), ("2", ""))
    result = await within(looped(path, workers.node("first"), failing("1"), workers.node("last")).run())
    assert result.status is RunStatus.BLOCKED
    assert workers.began == ["1", "2", "2"]
    assert statuses(path) == {"1": "failed", "2": "completed"}


async def test_a_failed_task_without_dependents_is_not_a_success(path: Path) -> None:
    tasks(path, ("1", ""))
    result = await within(looped(path, failing("1")).run())
    assert result.status is RunStatus.BLOCKED
    assert "1" in str(result.error)


async def test_a_blocked_loop_does_not_continue_to_the_next_node(path: Path) -> None:
    tasks(path, ("1", ""))
    loop = task_loop_node("tasks", tasks_path=str(path), task_nodes=[failing("1")])
    journal = MemoryJournal()
    result = await within(graph(S).then(loop).then(say("behind")).compile().run(journal=journal))
    assert result.state.log == []
    assert journal.list()[0].status == "blocked"


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([("1", "2"), ("2", "1")], ["1", "2"]),
        ([("1", "1")], ["1"]),
        ([("1", "9")], ["1", "9"]),
        ([("1", ""), {"id": "2", "title": "", "status": "failed"}, ("3", "2")], ["2", "3"]),
        ([{"id": "1", "title": "", "status": "blocked"}], ["1"]),
    ],
)
async def test_every_waiting_task_is_reported_with_its_reason(
    path: Path, entries: Sequence[Any], words: list[str]
) -> None:
    tasks(path, *entries)
    result = await within(looped(path, say("work")).run())
    assert result.status is RunStatus.BLOCKED
    for word in words:
        assert word in str(result.error)


async def test_a_blocked_run_continues_after_the_list_is_repaired(path: Path) -> None:
    workers = Workers()
    tasks(path, ("1", ""), ("2", "9"))
    journal = MemoryJournal()
    compiled = looped(path, workers.node())
    await within(compiled.run(journal=journal, execution_id=RUN))
    repaired = json.loads(path.read_text())
    repaired["tasks"][1]["blocked_by"] = ["1"]
    path.write_text(json.dumps(repaired))
    result = await within(compiled.resume(journal, RUN))
    assert result.status is RunStatus.COMPLETED
    assert (result.state.log, workers.began) == (["1", "2"], ["1", "2"])


async def test_a_failed_task_that_is_set_to_pending_is_tried_again(path: Path) -> None:
    broken = True
    ran: list[str] = []

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        ran.append(ctx.item.id)
        if broken and ctx.item.id == "1":
            raise ValueError("not yet")
        return {"log": [ctx.item.id]}

    tasks(path, ("1", ""), ("2", ""))
    journal = MemoryJournal()
    compiled = looped(path, node("work", work))
    await within(compiled.run(journal=journal, execution_id=RUN))
    broken = False
    listed = TaskList.read(path)
    listed.set_status("1", "pending")
    listed.write(path)
    result = await within(compiled.resume(journal, RUN))
    assert result.status is RunStatus.COMPLETED
    assert (sorted(result.state.log), ran) == (["1", "2"], ["1", "2", "1"])


async def test_max_iterations_counts_tasks_that_were_started(path: Path) -> None:
    workers = Workers()
    tasks(path, *((str(number), "") for number in range(1, 6)))
    result = await within(looped(path, workers.node(), max_iterations=3).run())
    assert workers.began == ["1", "2", "3"]
    assert result.status is RunStatus.BLOCKED
    assert "3" in str(result.error)
    for left in ("4", "5"):
        assert left in str(result.error)
    assert statuses(path)["4"] == "pending"


async def test_max_iterations_that_is_just_enough_is_enough(path: Path) -> None:
    tasks(path, ("1", ""), ("2", ""))
    await ended(looped(path, say("work"), max_iterations=2))


async def test_zero_iterations_means_no_bound(path: Path) -> None:
    tasks(path, *((str(number), "") for number in range(120)))
    await ended(looped(path, say("work"), max_iterations=0))


async def test_a_loop_starts_100_tasks_by_default(path: Path) -> None:
    tasks(path, *((str(number), "") for number in range(101)))
    result = await within(looped(path, say("work")).run())
    assert result.status is RunStatus.BLOCKED
    assert len(result.state.log) == 100


async def test_until_ends_it_early(path: Path) -> None:
    workers = Workers()
    tasks(path, *((str(number), "") for number in range(1, 6)))

    def two_are_done(state: S) -> bool:
        return len(state.log) >= 2

    await ended(looped(path, workers.node(), until=two_are_done))
    assert workers.began == ["1", "2"]


async def test_a_selector_chooses_among_ready_tasks(path: Path) -> None:
    workers = Workers()
    offered: list[list[str]] = []

    def longest(ready: Sequence[Task], state: S) -> Task:
        offered.append([task.id for task in ready])
        return max(ready, key=lambda task: len(task.id))

    tasks(path, ("a", ""), ("bb", ""), ("ccc", "bb"))
    await ended(looped(path, workers.node(), task_selector=longest))
    assert workers.began == ["bb", "ccc", "a"]
    assert offered == [["a", "bb"], ["a", "ccc"], ["a"]]


async def test_a_selector_that_raises_fails_the_node(path: Path) -> None:
    def broken(ready: Sequence[Task], state: S) -> Task:
        raise KeyError("boom")

    tasks(path, ("a", ""))
    result = await within(looped(path, say("work"), task_selector=broken).run())
    assert result.status is RunStatus.FAILED
    assert str(result.error).startswith("tasks: ")
    assert "boom" in str(result.error)


async def test_an_until_that_raises_fails_the_node(path: Path) -> None:
    def broken(state: S) -> bool:
        raise KeyError("boom")

    tasks(path, ("a", ""))
    result = await within(looped(path, say("work"), until=broken).run())
    assert result.status is RunStatus.FAILED
    assert str(result.error).startswith("tasks: ")


@pytest.mark.parametrize("content", [None, "{", '{"version": "1.0"}'])
async def test_a_list_that_cannot_be_read_fails_the_node_and_names_the_file(path: Path, content: str | None) -> None:
    if content is not None:
        path.write_text(content)
    result = await within(looped(path, say("work")).run())
    assert result.status is RunStatus.FAILED
    assert str(result.error).startswith("tasks: ")
    assert "tasks.json" in str(result.error)


async def test_a_list_that_cannot_be_written_fails_the_node(path: Path) -> None:
    async def destroy(ctx: NodeContext[S]) -> None:
        path.unlink()
        path.mkdir()
        (path / "x").write_text("")

    tasks(path, ("1", ""), ("2", ""))
    result = await within(looped(path, node("work", destroy)).run())
    assert result.status is RunStatus.FAILED
    assert str(result.error).startswith("tasks: ")


@pytest.mark.parametrize("options", [{"max_iterations": -1}, {"max_concurrency": -1}])
def test_bad_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(GraphError, match=next(iter(options))):
        graph(S).task_loop("tasks", tasks_path="x", task_nodes=[say("work")], **options).compile()
    with pytest.raises(GraphError, match="tasks: "):
        graph(S).task_loop("tasks", tasks_path="x", task_nodes=[]).compile()


# Killed in the middle


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_killed_loop_continues_and_repeats_nothing(path: Path, limit: int) -> None:
    held = Workers("3")
    tasks(path, ("1", ""), ("2", "1"), ("3", "2"), ("4", "3"))
    begun = asyncio.Event()

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.item.id == "3":
            begun.set()
        return await held.run(ctx)

    compiled = looped(path, say("before"), node("work", work), max_concurrency=limit)
    journal = await kill_when(compiled, begun)
    assert statuses(path) == {"1": "completed", "2": "completed", "3": "in_progress", "4": "pending"}
    held.free["3"].set()
    result = await within(compiled.resume(journal, RUN))
    assert result.status is RunStatus.COMPLETED
    assert result.state.log == ["before", "1", "before", "2", "before", "3", "before", "4"]
    assert held.began == ["1", "2", "3", "3", "4"]
    (_, first, one), (_, second, two) = [seen for seen in held.attempts if seen[0] == "3"]
    assert first == second
    assert (one, two) == (1, 2)
    assert set(statuses(path).values()) == {"completed"}


@pytest.mark.parametrize("limit", [1, 2])
async def test_a_loop_that_is_killed_after_any_row_ends_the_same(path: Path, limit: int) -> None:
    workers = Workers()
    whole = KeptJournal()
    files: list[tuple[int, str]] = []  # the file after each number of rows

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        files.append((len(whole.rows(RUN)), path.read_text()))
        return await workers.run(ctx)

    tasks(path, ("1", ""), ("2", "1"), ("3", ""), ("4", "2 3"))
    files.append((0, path.read_text()))
    compiled = looped(path, node("work", work), say("check"), max_concurrency=limit)
    expected = await ended(compiled, journal=whole, execution_id=RUN)
    last_step = max(place for place, row in enumerate(whole.rows(RUN), 1) if row.step is not None)
    written = [*files, (last_step, files[-1][1]), (last_step, path.read_text())]
    for place in range(len(whole.rows(RUN)) + 1):
        before = max(rows for rows, _ in written if rows <= place)
        for content in [text for rows, text in written if rows == before] if place <= last_step else [written[-1][1]]:
            path.write_text(content)
            journal = whole.cut(RUN, place)
            recorded = {record.step_id for record in journal.records(RUN)}
            workers.attempts.clear()
            result = await within(compiled.resume(journal, RUN))
            assert result.state.log == expected.state.log
            assert not recorded & {step_id for _, step_id, _ in workers.attempts}
            assert set(statuses(path).values()) == {"completed"}


async def test_a_recorded_task_is_not_repeated_although_the_file_is_outdated(path: Path) -> None:
    """Killed between the record of the last step and the change of the file."""
    workers = Workers("2")
    begun = asyncio.Event()
    files: list[str] = []

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        files.append(path.read_text())
        if ctx.item.id == "2":
            begun.set()
        return await workers.run(ctx)

    tasks(path, ("1", ""), ("2", "1"))
    compiled = looped(path, node("work", work))
    journal = await kill_when(compiled, begun)
    path.write_text(files[0])  # the file has 1 in progress, the journal has it finished
    workers.free["2"].set()
    result = await within(compiled.resume(journal, RUN))
    assert result.state.log == ["1", "2"]
    assert [name for name, _, _ in workers.attempts] == ["1", "2", "2"]
    assert statuses(path) == {"1": "completed", "2": "completed"}


async def test_a_kill_does_not_reset_the_count_of_tasks(path: Path) -> None:
    workers = Workers("2")
    begun = asyncio.Event()

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.item.id == "2":
            begun.set()
        return await workers.run(ctx)

    tasks(path, *((str(number), "") for number in range(1, 7)))
    compiled = looped(path, node("work", work), max_iterations=3)
    journal = await kill_when(compiled, begun)
    workers.free["2"].set()
    result = await within(compiled.resume(journal, RUN))
    assert result.status is RunStatus.BLOCKED
    assert workers.began == ["1", "2", "2", "3"]


async def test_a_cancelled_loop_continues(path: Path) -> None:
    workers = Workers("2")
    tasks(path, ("1", ""), ("2", ""), ("3", ""))
    journal = MemoryJournal()
    compiled = looped(path, workers.node(), max_concurrency=2)
    async with running(compiled.run(journal=journal, execution_id=RUN)) as task:
        await eventually(lambda: workers.ended == ["1", "3"])
        task.cancel()
        await asyncio.wait([task])
    workers.free["2"].set()
    result = await within(compiled.resume(journal, RUN))
    assert result.state.log == ["1", "2", "3"]
    assert workers.ended == ["1", "3", "2"]


async def test_a_question_in_one_task_does_not_stop_the_others(path: Path) -> None:
    async def only_two(ctx: NodeContext[S]) -> dict[str, Any]:
        answer = await ctx.ask("how?") if ctx.item.id == "2" else ""
        return {"log": [f"{ctx.item.id}{answer}"]}

    tasks(path, ("1", ""), ("2", ""), ("3", ""), ("4", "2"))
    journal = MemoryJournal()
    compiled = looped(path, node("work", only_two), max_concurrency=2)
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert result.status is RunStatus.PAUSED
    (question,) = result.questions
    assert statuses(path) == {"1": "completed", "2": "in_progress", "3": "completed", "4": "pending"}
    result = await within(compiled.resume(journal, RUN, answers={question.id: " so"}))
    assert result.status is RunStatus.COMPLETED
    assert sorted(result.state.log) == ["1", "2 so", "3", "4"]


async def test_an_ask_node_works_inside_of_a_task(path: Path) -> None:
    tasks(path, ("1", ""), ("2", ""))
    journal = MemoryJournal()
    compiled = looped(path, ask_user_node("q", "?", output_mapper=lambda answer, s: {"log": [answer]}))
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert [question.id for question in result.questions] == ["q[1]", "q[2]"]  # neither depends on the other
    result = await within(compiled.resume(journal, RUN, answers={"q[2]": "two"}))
    assert [question.id for question in result.questions] == ["q[1]"]
    result = await within(compiled.resume(journal, RUN, answers={"q[1]": "one"}))
    assert result.status is RunStatus.COMPLETED
    assert sorted(result.state.log) == ["one", "two"]


@pytest.mark.parametrize("odd", ["a/b", "x]y[", "1:2|3@4#5", "é ü", "%", "task one", "[0]", "a%2Fb"])
async def test_ids_of_any_kind_survive_a_kill(path: Path, odd: str) -> None:
    workers = Workers("last")
    begun = asyncio.Event()

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.item.id == "last":
            begun.set()
        return await workers.run(ctx)

    tasks(path, {"id": odd, "title": ""}, {"id": "last", "title": "", "blocked_by": [odd]})
    (first, _) = TaskList.read(path).tasks
    compiled = looped(path, node("work", work), say("check"))
    journal: Journal = await kill_when(compiled, begun)
    workers.free["last"].set()
    result = await within(compiled.resume(journal, RUN))
    assert result.error is None
    assert result.state.log == [first.id, "check", "last", "check"]
    assert workers.began == [first.id, "last", "last"]


async def test_a_node_in_a_task_may_be_tried_again(path: Path) -> None:
    calls: list[int] = []

    async def flaky(ctx: NodeContext[S]) -> None:
        calls.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ValueError("not yet")

    tasks(path, ("1", ""))
    await ended(looped(path, node("work", flaky, retry=Retry(0))))
    assert calls == [1, 2, 3]


async def test_a_loop_over_tasks_inside_a_loop_sees_new_tasks(path: Path) -> None:
    workers = Workers()

    def add_one(state: S) -> dict[str, Any]:
        listed = json.loads(path.read_text())["tasks"]
        number = len(listed) + 1
        path.write_text(json.dumps({"tasks": [*listed, {"id": str(number), "title": ""}]}))
        return {"count": number}

    tasks(path)
    loop = task_loop_node("tasks", tasks_path=str(path), task_nodes=[workers.node()])
    again = graph(S).tool("plan", run=add_one, output_mapper=lambda result, s: result).then(loop)
    state = (await ended(graph(S).loop(again, until=lambda s: s.count == 3).compile())).state
    assert (state.log, workers.began) == (["1", "2", "3"], ["1", "2", "3"])
