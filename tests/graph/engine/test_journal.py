"""Read journals and resume runs from them. `test_laws.py` cuts a journal after every row."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from atomic.workflows import (
    AtomicError,
    CompiledGraph,
    Journal,
    JournalError,
    MemoryJournal,
    NodeContext,
    Retry,
    RunNotFoundError,
    RunOwnedError,
    RunStatus,
    SqliteJournal,
    State,
    StateError,
    graph,
    node,
    reducers,
    tool_node,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import RUN, S, ended, fail, kill_when, running, say, within, write

ABC = graph(S).then(say("a")).then(say("b")).then(say("c")).compile(name="letters")


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    with MemoryJournal() if request.param == "memory" else SqliteJournal(tmp_path / "runs.db") as opened:
        yield opened


async def record(journal: Journal, compiled: CompiledGraph[S] = ABC) -> None:
    await within(compiled.run(journal=journal, execution_id=RUN))


# The classic questions


async def test_a_journal_lists_its_runs(journal: Journal) -> None:
    await record(journal)
    before = time.time() - 60
    await within(graph(S).then(fail("n")).compile(name="broken").run(journal=journal, execution_id="other"))
    one, other = journal.list()
    assert (one.execution_id, one.graph, one.status, one.steps) == (RUN, "letters", "completed", 3)
    assert (other.execution_id, other.graph, other.status, other.steps) == ("other", "broken", "failed", 0)
    assert before < one.started <= one.updated < time.time() + 1


async def test_every_finished_step_is_one_record(journal: Journal) -> None:
    await record(journal)
    records = journal.records(RUN)
    assert [(r.step, r.node_id, r.update, r.status, r.attempt) for r in records] == [
        (1, "a", {"log": ["a"]}, "completed", 1),
        (2, "b", {"log": ["b"]}, "completed", 1),
        (3, "c", {"log": ["c"]}, "completed", 1),
    ]
    assert all(record.seconds >= 0 and record.started > 0 for record in records)


async def test_each_branch_and_each_item_is_recorded_by_itself(journal: Journal) -> None:
    branches = graph(S).parallel([say("a"), say("b")]).map("m", over=lambda s: [1, 2], node=say("c"))
    await record(journal, branches.compile())
    records = journal.records(RUN)
    assert sorted(record.node_id for record in records) == ["a", "b", "c[0]", "c[1]"]


async def test_the_state_after_any_step_can_be_loaded(journal: Journal) -> None:
    await record(journal)
    assert [ABC.load(journal, RUN, at=step).log for step in range(4)] == [[], ["a"], ["a", "b"], ["a", "b", "c"]]
    assert ABC.load(journal, RUN).log == ["a", "b", "c"]
    with pytest.raises(JournalError, match="3"):
        ABC.load(journal, RUN, at=4)


async def test_the_state_shows_the_updates_of_open_branches(journal: Journal) -> None:
    slow = graph(S).then(say("x")).then(say("y"))
    compiled = graph(S).then(say("a")).parallel({"one": slow, "two": say("z")}).then(say("b")).compile()
    await record(journal, compiled)
    order = [finished.node_id for finished in journal.records(RUN)]
    for step in range(1, len(order) + 1):
        assert sorted(compiled.load(journal, RUN, at=step).log) == sorted(order[:step])


async def test_loading_runs_nothing_and_needs_no_ownership(journal: Journal) -> None:
    begun = asyncio.Event()
    free = asyncio.Event()

    async def slow(ctx: NodeContext[S]) -> None:
        begun.set()
        await within(free.wait())

    compiled = graph(S).then(say("a")).node("slow", slow).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN)):
        await within(begun.wait())
        assert compiled.load(journal, RUN).log == ["a"]
        assert journal.list()[0].status not in set(RunStatus)
        free.set()


async def test_a_fork_continues_from_an_earlier_step_and_keeps_the_run(journal: Journal) -> None:
    await record(journal)
    copy = journal.fork(RUN, at=1)
    assert copy != RUN
    assert ABC.load(journal, copy).log == ["a"]
    result = await within(ABC.resume(journal, copy))
    assert (result.state.log, result.execution_id, result.state.execution_id) == (["a", "b", "c"], copy, copy)
    assert [record.node_id for record in journal.records(RUN)] == ["a", "b", "c"]
    assert ABC.load(journal, RUN).execution_id == RUN


async def test_a_fork_may_run_other_code(journal: Journal) -> None:
    await record(journal)
    copy = journal.fork(RUN, at=2)
    other = graph(S).then(say("a")).then(say("b")).then(write("c", log=["other"])).compile()
    assert (await within(other.resume(journal, copy))).state.log == ["a", "b", "other"]


async def test_the_steps_of_a_fork_have_ids_of_their_own(journal: Journal) -> None:
    await record(journal)
    copy = journal.fork(RUN, at=1)
    await within(ABC.resume(journal, copy))
    ids = [record.step_id for name in (RUN, copy) for record in journal.records(name)]
    assert len(set(ids)) == 6


async def test_a_fork_without_a_number_is_a_copy(journal: Journal) -> None:
    await record(journal)
    assert ABC.load(journal, journal.fork(RUN)).log == ["a", "b", "c"]


async def test_a_deleted_run_cannot_be_read(journal: Journal) -> None:
    await record(journal)
    journal.delete(RUN)
    assert journal.list() == []
    for ask in (journal.records, journal.delete, journal.fork):
        with pytest.raises(RunNotFoundError, match=RUN):
            ask(RUN)


async def test_an_unknown_run_is_named_with_the_nearest(journal: Journal) -> None:
    await within(ABC.run(journal=journal, execution_id="review-login"))
    with pytest.raises(RunNotFoundError, match="review-login"):
        await ABC.resume(journal, "review-logn")
    with pytest.raises(RunNotFoundError):
        ABC.load(journal, "review-logn")


async def test_an_id_can_be_used_once(journal: Journal) -> None:
    await record(journal)
    with pytest.raises(JournalError, match=RUN):
        await ABC.run(journal=journal, execution_id=RUN)


async def test_a_journal_is_a_context_manager() -> None:
    with MemoryJournal() as journal:
        await within(ABC.run(journal=journal))


async def test_a_run_that_is_under_way_has_one_owner(journal: Journal) -> None:
    begun = asyncio.Event()

    async def slow(ctx: NodeContext[S]) -> None:
        begun.set()
        await asyncio.sleep(1000)

    compiled = graph(S).node("slow", slow).compile()
    async with running(compiled.run(journal=journal, execution_id=RUN)):
        await within(begun.wait())
        with pytest.raises(RunOwnedError, match=RUN):
            await compiled.resume(journal, RUN)
        with pytest.raises(RunOwnedError):
            journal.delete(RUN)


def test_all_errors_are_atomic_errors() -> None:
    assert all(issubclass(kind, AtomicError) for kind in (RunOwnedError, RunNotFoundError, JournalError, StateError))


# Resuming


async def test_resuming_a_completed_run_runs_nothing(journal: Journal) -> None:
    ran: list[str] = []
    compiled = graph(S).tool("a", run=lambda: ran.append("a")).then(say("b")).compile()
    await record(journal, compiled)
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log, result.steps, ran) == (RunStatus.COMPLETED, ["b"], 2, ["a"])
    assert len(journal.records(RUN)) == 2


async def test_resuming_a_failed_run_retries_the_unfinished_step(journal: Journal) -> None:
    broken = True
    seen: list[tuple[str, int]] = []

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        seen.append((ctx.step_id, ctx.attempt))
        if broken:
            raise ValueError("not yet")
        return {"log": ["n"]}

    compiled = graph(S).then(say("a")).node("n", run).then(say("b")).compile()
    await record(journal, compiled)
    broken = False
    result = await within(compiled.resume(journal, RUN))
    assert (result.status, result.state.log, result.error) == (RunStatus.COMPLETED, ["a", "n", "b"], None)
    assert len({step_id for step_id, _ in seen}) == 1
    assert [attempt for _, attempt in seen] == [1, 2]
    assert journal.list()[0].status == "completed"


@pytest.mark.parametrize("shape", ["parallel", "map", "subgraph", "loop"])
async def test_resuming_after_a_failure_inside_keeps_finished_steps(journal: Journal, shape: str) -> None:
    broken = True
    ran: list[str] = []

    async def good(ctx: NodeContext[S]) -> dict[str, Any]:
        ran.append(ctx.node_id)
        return {"log": ["good"]}

    async def bad(ctx: NodeContext[S]) -> dict[str, Any]:
        ran.append(ctx.node_id)
        if broken:
            raise ValueError("not yet")
        return {"log": ["bad"]}

    body = graph(S).node("good", good).node("bad", bad)
    built = {
        "parallel": graph(S).parallel({"x": body, "y": say("y")}),
        "map": graph(S).map("m", over=lambda s: [1], node=body),
        "subgraph": graph(S).subgraph("sub", body.compile()),
        "loop": graph(S).loop(body, until=lambda s: True),
    }
    compiled = built[shape].then(say("z")).compile()
    await record(journal, compiled)
    broken = False
    result = await within(compiled.resume(journal, RUN))
    assert result.error is None
    assert result.state.log == ["good", "bad", *(["y"] if shape == "parallel" else []), "z"]
    assert [name.rpartition("/")[2].removesuffix("[0]") for name in ran] == ["good", "bad", "bad"]


async def test_resuming_gives_new_attempts(journal: Journal) -> None:
    calls: list[int] = []

    async def run(ctx: NodeContext[S]) -> None:
        calls.append(ctx.attempt)
        if len(calls) < 6:
            raise ValueError("not yet")

    compiled = graph(S).node("n", run, retry=Retry(0)).compile()
    await record(journal, compiled)
    result = await within(compiled.resume(journal, RUN))
    assert result.status is RunStatus.COMPLETED
    assert calls == [1, 2, 3, 4, 5, 6]


async def test_resuming_a_run_of_another_graph_is_refused(journal: Journal) -> None:
    await record(journal, graph(S).then(say("a")).then(fail("n")).compile())
    other = graph(S).then(say("x")).then(say("y")).compile()
    with pytest.raises(AtomicError, match="a"):
        await other.resume(journal, RUN)


async def test_a_resume_takes_another_model(journal: Journal) -> None:
    seen: list[str | None] = []
    broken = True

    async def run(ctx: NodeContext[S]) -> None:
        seen.append(ctx.model)
        if broken:
            raise ValueError("not yet")

    compiled = graph(S).node("n", run).compile(model="graph")
    await within(compiled.run(journal=journal, execution_id=RUN, model="first"))
    await within(compiled.resume(journal, RUN))
    broken = False
    await within(compiled.resume(journal, RUN, model="second"))
    assert seen == ["first", "first", "second"]


async def test_a_refused_resume_leaves_the_run_free(journal: Journal) -> None:
    broken = True

    async def run(ctx: NodeContext[S]) -> None:
        if broken:
            raise ValueError("not yet")

    compiled = graph(S).node("n", run).compile()
    await record(journal, compiled)
    with pytest.raises(AtomicError):
        await compiled.resume(journal, RUN, answers={"nobody": "asked"})
    broken = False
    assert (await within(compiled.resume(journal, RUN))).status is RunStatus.COMPLETED


# A step that was running


class Interrupted:
    """A step that hangs until the journal is cut, and then works."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.hangs = True
        self.seen: list[tuple[str, str, int]] = []

    async def run(self, ctx: NodeContext[S]) -> dict[str, Any]:
        self.seen.append((ctx.node_id, ctx.step_id, ctx.attempt))
        if self.hangs:
            self.begun.set()
            await asyncio.sleep(1000)
        return {"log": ["n"]}


def around(step: Interrupted) -> dict[str, CompiledGraph[S]]:
    """Return graphs with the interrupted step in every possible position."""
    body = graph(S).node("n", step.run)
    return {
        "first": body.compile(),
        "chain": graph(S).then(say("a")).then(body).compile(),
        "loop": graph(S).loop(graph(S).then(say("a")).then(body), until=lambda s: True).compile(),
        "if": graph(S).then(say("a")).if_(lambda s: True, then=body).compile(),
        "branch": graph(S).parallel({"x": body, "y": say("b")}).compile(),
        "deep": graph(S).parallel({"x": graph(S).then(say("a")).then(body), "y": say("b")}).compile(),
        "map": graph(S).map("m", over=lambda s: [1], node=body).compile(),
        "subgraph": graph(S).then(say("a")).subgraph("sub", body.compile()).compile(),
        "behind": graph(S).parallel([say("a"), say("b")]).then(body).compile(),
        "behind-map": graph(S).map("m", over=lambda s: [1, 2], node=say("a")).then(body).compile(),
        "behind-subgraph": graph(S).subgraph("sub", graph(S).then(say("a")).compile()).then(body).compile(),
    }


@pytest.mark.parametrize("place", around(Interrupted()))
async def test_a_step_that_was_running_is_run_again_with_the_same_id_and_the_next_attempt(place: str) -> None:
    step = Interrupted()
    compiled = around(step)[place]
    journal = await kill_when(compiled, step.begun)
    step.hangs = False
    result = await within(compiled.resume(journal, RUN))
    assert result.error is None
    assert "n" in result.state.log
    (_, first_id, first), (_, second_id, second) = step.seen
    assert first_id == second_id
    assert (first, second) == (1, 2)


async def test_attempts_are_counted_over_several_kills() -> None:
    step = Interrupted()
    compiled = graph(S).then(say("a")).node("n", step.run).compile()
    journal = await kill_when(compiled, step.begun)
    for _ in range(3):
        step.begun.clear()
        kept = journal
        assert isinstance(kept, KeptJournal)
        async with running(compiled.resume(kept, RUN)):
            await within(step.begun.wait())
            journal = kept.cut(RUN, len(kept.rows(RUN)))
    step.hangs = False
    await within(compiled.resume(journal, RUN))
    assert [attempt for _, _, attempt in step.seen] == [1, 2, 3, 4, 5]
    assert len({step_id for _, step_id, _ in step.seen}) == 1


async def test_attempts_lost_by_a_kill_do_not_count() -> None:
    step = Interrupted()
    failures = 0

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        nonlocal failures
        result = await step.run(ctx)
        failures += 1
        if failures < 3:
            raise ValueError("not yet")
        return result

    compiled = graph(S).then(say("a")).node("n", run, retry=Retry(0)).compile()
    journal = await kill_when(compiled, step.begun)
    step.hangs = False
    result = await within(compiled.resume(journal, RUN))
    assert result.error is None
    assert [attempt for _, _, attempt in step.seen] == [1, 2, 3, 4]


async def test_a_step_that_had_not_begun_is_a_first_attempt() -> None:
    step = Interrupted()
    hold = asyncio.Event()

    async def slow(ctx: NodeContext[S]) -> None:
        if step.hangs:
            hold.set()
            await asyncio.sleep(1000)

    compiled = graph(S).node("slow", slow).node("n", step.run).compile()
    journal = await kill_when(compiled, hold)
    step.hangs = False
    await within(compiled.resume(journal, RUN))
    assert [attempt for _, _, attempt in step.seen] == [1]


async def test_branches_that_had_not_begun_are_first_attempts() -> None:
    step = Interrupted()
    attempts: dict[str, int] = {}

    async def other(ctx: NodeContext[S]) -> None:
        attempts[ctx.node_id] = ctx.attempt

    compiled = graph(S).parallel([node("n", step.run), node("m", other)], max_concurrency=1).compile()
    journal = await kill_when(compiled, step.begun)
    step.hangs = False
    await within(compiled.resume(journal, RUN))
    assert attempts == {"m": 1}
    assert [attempt for _, _, attempt in step.seen] == [1, 2]


async def test_errors_so_far_survive_a_kill() -> None:
    begun = asyncio.Event()
    hangs = True
    seen: list[list[str]] = []

    async def run(ctx: NodeContext[S]) -> None:
        seen.append([str(error) for error in ctx.errors])
        if len(seen) == 1:
            raise ValueError("first")
        if hangs:
            begun.set()
            await asyncio.sleep(1000)

    compiled = graph(S).node("n", run, retry=Retry(0)).compile()
    journal = await kill_when(compiled, begun)
    hangs = False
    await within(compiled.resume(journal, RUN))
    assert [len(errors) for errors in seen] == [0, 1, 1]
    assert "first" in seen[2][0]


async def test_items_of_a_map_are_not_asked_for_again() -> None:
    step = Interrupted()
    asked: list[int] = []

    def over(state: S) -> list[int]:
        asked.append(1)
        return [1, 2, 3]

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return await step.run(ctx) if ctx.item == 2 else {"log": [str(ctx.item)]}

    compiled = graph(S).map("m", over=over, node=node("n", run), max_concurrency=1).compile()
    journal = await kill_when(compiled, step.begun)
    step.hangs = False
    assert (await within(compiled.resume(journal, RUN))).state.log == ["1", "n", "3"]
    assert asked == [1]


async def test_a_tool_that_was_running_is_called_again() -> None:
    step = Interrupted()
    calls: list[int] = []

    async def tool(state: S) -> str:
        calls.append(1)
        if step.hangs:
            step.begun.set()
            await asyncio.sleep(1000)
        return "done"

    compiled = graph(S).then(say("a")).then(tool_node("t", tool)).compile()
    journal = await kill_when(compiled, step.begun)
    step.hangs = False
    assert (await within(compiled.resume(journal, RUN))).state.outputs == {"t": "done"}
    assert len(calls) == 2


# Migration


class Old(State):
    prompt: str = ""
    items: Annotated[list[str], reducers.concat] = []


class New(State):
    text: str
    items: Annotated[list[int], reducers.concat] = []
    added: str = "default"


def migrate(old: dict[str, Any], from_version: int) -> dict[str, Any]:
    assert from_version == 1
    return {"text": old["prompt"].upper(), "items": [len(item) for item in old["items"]], "outputs": old["outputs"]}


def versions(step: Interrupted, *, parallel: bool = False) -> tuple[CompiledGraph[Old], CompiledGraph[New]]:
    async def old(ctx: NodeContext[Old]) -> dict[str, Any]:
        return {"items": ["abc"], "prompt": "old", "outputs": {"a": 1}}

    async def new(ctx: NodeContext[New]) -> dict[str, Any]:
        return {"items": [7]}

    async def hang(ctx: NodeContext[Any]) -> dict[str, Any]:
        await step.run(ctx)
        return {}

    if parallel:
        before = graph(Old).node("a", old).parallel({"x": node("x", old), "y": node("n", hang)}).node("b", old)
        after = graph(New).node("a", new).parallel({"x": node("x", new), "y": node("n", hang)}).node("b", new)
    else:
        before = graph(Old).node("a", old).node("n", hang).node("b", old)
        after = graph(New).node("a", new).node("n", hang).node("b", new)
    return before.compile(), after.compile(state_version=2, migrate_state=migrate)


async def test_an_old_run_continues_in_new_code() -> None:
    step = Interrupted()
    old, new = versions(step)
    journal = await kill_when(old, step.begun)
    step.hangs = False
    result = await within(new.resume(journal, RUN))
    assert result.error is None
    assert (result.state.text, result.state.items, result.state.added) == ("OLD", [3, 7], "default")
    assert result.state.outputs == {"a": 1}
    assert new.load(journal, RUN) == result.state
    assert (await within(new.resume(journal, RUN))).state == result.state


async def test_an_old_run_inside_a_parallel_continues_or_is_refused_clearly() -> None:
    step = Interrupted()
    old, new = versions(step, parallel=True)
    journal = await kill_when(old, step.begun)
    step.hangs = False
    refused = ""
    result = None
    try:
        result = await within(new.resume(journal, RUN))
    except AtomicError as error:
        refused = str(error)
    if result is None:
        assert "branch" in refused
        assert (await within(old.resume(journal, RUN))).state.items == ["abc"] * 3
    else:
        assert result.error is None
        assert result.state.items == [3, 3, 7]
        assert new.load(journal, RUN) == result.state


async def test_without_a_migration_an_old_run_is_refused_clearly() -> None:
    step = Interrupted()
    old, _ = versions(step)
    journal = await kill_when(old, step.begun)

    async def new(ctx: NodeContext[New]) -> None: ...

    unable = graph(New).node("a", new).node("n", new).node("b", new)
    with pytest.raises(AtomicError, match="migrate_state"):
        await unable.compile(state_version=2).resume(journal, RUN)
    with pytest.raises(AtomicError, match="migrate_state"):
        await unable.compile().resume(journal, RUN)
    step.hangs = False
    assert (await within(old.resume(journal, RUN))).error is None


async def test_a_run_of_newer_code_is_refused_by_older_code(journal: Journal) -> None:
    await record(journal, graph(S).then(fail("n")).compile(state_version=3))
    with pytest.raises(AtomicError, match="3"):
        await graph(S).then(fail("n")).compile(state_version=2, migrate_state=migrate).resume(journal, RUN)


async def test_a_migration_that_fails_changes_nothing() -> None:
    step = Interrupted()
    old, _ = versions(step)
    journal = await kill_when(old, step.begun)

    def broken(old: dict[str, Any], from_version: int) -> dict[str, Any]:
        raise KeyError("prompt")

    async def new(ctx: NodeContext[New]) -> None: ...

    unable = graph(New).node("a", new).node("n", new).node("b", new).compile(state_version=2, migrate_state=broken)
    with pytest.raises(AtomicError, match="migrate_state"):
        await unable.resume(journal, RUN)
    step.hangs = False
    assert (await within(old.resume(journal, RUN))).state.items == ["abc", "abc"]


async def test_a_new_field_with_a_default_needs_no_migration(journal: Journal) -> None:
    class More(S):
        extra: str = "default"

    async def run(ctx: NodeContext[More]) -> dict[str, Any]:
        return {"log": ["new"]}

    await record(journal, graph(S).then(say("a")).then(fail("n")).compile())
    compiled = graph(More).node("a", run).node("n", run).compile()
    result = await within(compiled.resume(journal, RUN))
    assert (result.state.log, result.state.extra) == (["a", "new"], "default")


async def test_a_journal_never_names_code() -> None:
    journal = KeptJournal()
    await ended(ABC, journal=journal, execution_id=RUN)
    assert journal.first is not None
    everything = b"".join(row.body for row in [journal.first, *journal.rows(RUN)])
    assert b"atomic." not in everything
    assert b"tests." not in everything
