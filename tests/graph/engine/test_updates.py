"""The state of a run that is changed from outside: forks, resumes, and runs that begin again."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest

from atomic.graph.engine.journal import RowKind
from atomic.workflows import (
    CompiledGraph,
    Flow,
    GraphConfig,
    Journal,
    JournalError,
    MemoryJournal,
    Node,
    NodeContext,
    NodeResult,
    Overwrite,
    QuestionError,
    RunNotFoundError,
    RunOwnedError,
    RunStatus,
    Signal,
    SqliteJournal,
    State,
    StateError,
    ask_user_node,
    compile_graph,
    graph,
    map_node,
    node,
    parallel_node,
    subgraph_node,
    workflow,
)
from tests.graph.engine.law_journals import KeptJournal
from tests.graph.engine.small import LIMIT, RUN, S, ended, fail, say, within, write


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    if request.param == "memory":
        yield MemoryJournal()
        return
    with SqliteJournal(tmp_path / "runs.db") as opened:
        yield opened


def show(id: str) -> Node[S]:
    """Return a node that logs the text of the state."""

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": [f"{id}:{ctx.state.text}"]}

    return node(id, run)


ASKS = graph(S).then([say("a"), ask_user_node("q", "go?"), show("b")]).compile()


async def pause(flow: CompiledGraph[Any], journal: Journal) -> None:
    result = await within(flow.run(journal=journal, execution_id=RUN))
    assert result.status is RunStatus.PAUSED


# Resume


async def test_a_resume_changes_the_state_through_the_reducers(journal: Journal) -> None:
    await pause(ASKS, journal)
    result = await within(ASKS.resume(journal, RUN, update={"log": ["extra"], "text": "new"}, answers={"q": "yes"}))
    assert result.status is RunStatus.COMPLETED
    assert (result.state.log, result.state.text) == (["a", "extra", "b:new"], "new")
    assert ASKS.load(journal, RUN) == result.state
    assert [record.node_id for record in journal.records(RUN)] == ["a", "q", "b"]


async def test_overwrite_replaces_a_field(journal: Journal) -> None:
    await pause(ASKS, journal)
    result = await within(ASKS.resume(journal, RUN, update={"log": Overwrite([])}, answers={"q": "yes"}))
    assert result.state.log == ["b:"]


async def test_an_update_without_the_answer_is_kept_while_the_run_waits(journal: Journal) -> None:
    await pause(ASKS, journal)
    result = await within(ASKS.resume(journal, RUN, update={"text": "one"}))
    assert (result.status, result.state.text) == (RunStatus.PAUSED, "one")
    assert ASKS.load(journal, RUN).text == "one"
    steps = [step async for step in ASKS.resume_stream(journal, RUN, update={"total": 3}, answers={"q": "yes"})]
    assert [step.node_id for step in steps] == ["q", "b"]
    assert (steps[-1].state.log, steps[-1].state.total) == (["a", "b:one"], 3)


@pytest.mark.parametrize(
    ("update", "problem"),
    [
        ({"txt": "x"}, 'txt: S has no such field (did you mean "text"?)'),
        ({"text": 7}, "text: Expected `str`, got `int`"),
        ({"execution_id": "x"}, "execution_id: is set by the engine; a node cannot write it"),
        ([1], "an update is a mapping of fields to values, not [1]"),
    ],
)
async def test_an_update_that_does_not_fit_is_refused_and_nothing_is_recorded(update: Any, problem: str) -> None:
    journal = KeptJournal()
    await pause(ASKS, journal)
    before = journal.rows(RUN)
    with pytest.raises(StateError) as caught:
        await ASKS.resume(journal, RUN, update=update, answers={"q": "yes"})
    assert str(caught.value) == problem
    assert journal.rows(RUN) == before
    with pytest.raises(QuestionError):
        await ASKS.resume(journal, RUN, update={"text": "x"}, answers={"p": "yes"})
    assert journal.rows(RUN) == before


def few(current: list[str], update: list[str]) -> list[str]:
    if len(current) + len(update) > 2:
        raise ValueError("too many")
    return current + update


class Few(State):
    names: Annotated[list[str], few] = []


async def test_a_reducer_that_refuses_the_update_refuses_the_resume(journal: Journal) -> None:
    flow = graph(Few).ask_user("q", "go?").compile()
    await pause(flow, journal)
    with pytest.raises(StateError, match=r"^names: reducer custom:few raised ValueError: too many$"):
        await flow.resume(journal, RUN, update={"names": ["a", "b", "c"]})
    assert flow.load(journal, RUN).names == []


async def test_a_failed_run_continues_with_a_repaired_state(journal: Journal) -> None:
    async def check(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.state.text != "good":
            raise ValueError("bad text")
        return {"log": ["checked"]}

    flow = graph(S).then([say("a"), node("check", check)]).compile()
    assert (await within(flow.run(journal=journal, execution_id=RUN))).status is RunStatus.FAILED
    result = await within(flow.resume(journal, RUN, update={"text": "good"}))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["a", "checked"])


async def test_a_completed_run_takes_no_update(journal: Journal) -> None:
    flow = graph(S).then(say("a")).compile()
    await ended(flow, journal=journal, execution_id=RUN)
    with pytest.raises(JournalError, match="is completed, so no node would see the update; use start"):
        await flow.resume(journal, RUN, update={"text": "x"})
    with pytest.raises(JournalError, match="is completed, so no node would see the update; fork it at an earlier"):
        journal.fork(RUN, update={"text": "x"})
    assert len(journal.list()) == 1


# Forks


async def test_a_fork_begins_with_the_update(journal: Journal) -> None:
    flow = graph(S).then([show("a"), show("b"), show("c")]).compile()
    await ended(flow, {"text": "old"}, journal=journal, execution_id=RUN)
    fork = journal.fork(RUN, at=1, update={"text": "new", "log": Overwrite(["cut"])})
    assert (flow.load(journal, fork).text, flow.load(journal, fork).log) == ("new", ["cut"])
    result = await within(flow.resume(journal, fork))
    assert result.state.log == ["cut", "b:new", "c:new"]
    assert flow.load(journal, RUN).log == ["a:old", "b:old", "c:old"]
    again = journal.fork(fork, at=2)
    assert flow.load(journal, again).log == ["cut", "b:new"]
    begin = journal.fork(RUN, at=0, update={"text": "first"})
    assert (await within(flow.resume(journal, begin))).state.log == ["a:first", "b:first", "c:first"]


async def test_a_fork_of_a_paused_run_stays_paused_in_the_list(journal: Journal) -> None:
    await pause(ASKS, journal)
    fork = journal.fork(RUN, update={"text": "new"})
    assert {info.execution_id: info.status for info in journal.list()} == {RUN: "paused", fork: "paused"}
    result = await within(ASKS.resume(journal, fork, answers={"q": "yes"}))
    assert result.state.log == ["a", "b:new"]


async def test_an_update_of_a_fork_is_checked_when_it_is_loaded_or_continued(journal: Journal) -> None:
    await pause(ASKS, journal)
    fork = journal.fork(RUN, update={"txt": "new"})
    text = 'The update that the run was given does not fit its state: txt: S has no such field (did you mean "text"?)'
    with pytest.raises(JournalError) as caught:
        ASKS.load(journal, fork)
    assert str(caught.value) == text
    with pytest.raises(JournalError) as caught:
        await ASKS.resume(journal, fork)
    assert str(caught.value) == text
    with pytest.raises(JournalError, match="update is 7; give a mapping"):
        journal.fork(RUN, update=7)  # pyright: ignore[reportArgumentType]
    with pytest.raises(StateError, match="a value of type object cannot be recorded"):
        journal.fork(RUN, update={"text": object()})
    assert len(journal.list()) == 2


async def test_a_function_workflow_has_no_state_to_update(journal: Journal) -> None:
    @workflow(name="asks")
    async def asks(flow: Flow) -> str:
        return await flow.ask("go?")

    await within(asks.run(journal=journal, execution_id=RUN))
    fork = journal.fork(RUN, update={"text": "x"})
    with pytest.raises(JournalError, match="A function workflow has no state that an update could change"):
        await asks.resume(journal, fork)


async def test_secrets_in_an_update_are_not_written(tmp_path: Path) -> None:
    from atomic.base.redaction import Redactor
    from atomic.sessions.journal import open_redacting

    path = tmp_path / "runs.db"
    with open_redacting(path, Redactor()) as journal:
        await pause(ASKS, journal)
        journal.fork(RUN, update={"text": "password = hunter2hunter2"})
        await within(ASKS.resume(journal, RUN, update={"text": "password = swordfish99"}))
    files = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"hunter2hunter2" not in files
    assert b"swordfish99" not in files


# Open branches


async def test_open_branches_see_the_update_and_win_at_the_join(journal: Journal) -> None:
    branch = graph(S).then([ask_user_node("q", "go?"), show("after")])
    parallel = parallel_node("p", {"asks": branch, "done": write("wrote", count=1)})
    flow = graph(S).then([say("a"), parallel, show("end")]).compile()
    await pause(flow, journal)
    result = await within(flow.resume(journal, RUN, update={"text": "new", "count": 5, "log": ["u"]}))
    assert (result.state.text, result.state.count, result.state.log) == ("new", 1, ["a", "u"])
    result = await within(flow.resume(journal, RUN, answers={"q": "yes"}))
    assert (result.state.count, result.state.log) == (1, ["a", "u", "after:new", "end:new"])
    assert flow.load(journal, RUN) == result.state


async def test_branches_of_edges_and_items_of_a_map_see_it(journal: Journal) -> None:
    nodes: list[Node[S]] = [say("s"), ask_user_node("q", "go?"), show("x"), show("y"), show("e")]
    ways = [("s", "q"), ("s", "x"), ("q", "y"), ("x", "e"), ("y", "e")]
    flow = compile_graph(GraphConfig(start_node="s", nodes=nodes, edges=ways, state=S))
    await pause(flow, journal)
    result = await within(flow.resume(journal, RUN, update={"text": "new"}, answers={"q": "yes"}))
    assert result.state.log == ["s", "y:new", "x:", "e:new"]
    assert flow.load(journal, RUN) == result.state

    other = MemoryJournal()
    item = graph(S).then([ask_user_node("q", "go?"), show("x")])
    over = graph(S).then(map_node("m", lambda s: [1, 2], item)).compile()
    await pause(over, other)
    result = await within(over.resume(other, RUN, update={"text": "n"}, answers={"q[0]": "y", "q[1]": "y"}))
    assert result.state.log == ["x:n", "x:n"]


async def test_a_subgraph_keeps_the_state_that_it_began_with(journal: Journal) -> None:
    child = graph(S).then([ask_user_node("q", "go?"), show("x")]).compile()
    flow = graph(S).then([subgraph_node("sub", child), show("end")]).compile()
    await pause(flow, journal)
    result = await within(flow.resume(journal, RUN, update={"text": "new"}, answers={"sub/q": "yes"}))
    assert result.state.log == ["x:", "end:new"]


async def test_every_kill_around_an_update_gives_the_same_end() -> None:
    branch = graph(S).then([ask_user_node("q", "go?"), show("after")])
    flow = graph(S).then([say("a"), parallel_node("p", [branch, show("b")]), show("c"), say("d")]).compile()
    journal = KeptJournal()
    await pause(flow, journal)
    paused = len(journal.rows(RUN))
    expected = (await within(flow.resume(journal, RUN, update={"text": "n"}, answers={"q": "yes"}))).state
    rows = journal.rows(RUN)
    assert [row.kind for row in rows[paused:]][:3] == [RowKind.UPDATED, RowKind.ANSWERED, RowKind.RESUMED]
    for count in range(paused + 2, len(rows)):
        cut = journal.cut(RUN, count)
        assert (await within(flow.resume(cut, RUN))).state == expected, count


async def test_a_snapshot_after_an_update_has_it() -> None:
    async def checkpoint(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": [ctx.state.text]}, signals=[Signal("checkpoint")])

    flow = graph(S).then([ask_user_node("q", "go?"), node("c", checkpoint), show("d")]).compile()
    journal = KeptJournal()
    await pause(flow, journal)
    expected = (await within(flow.resume(journal, RUN, update={"text": "n"}, answers={"q": "y"}))).state
    assert len(journal.snapshots) == 1
    cut = journal.cut(RUN, journal.snapshots[0][0], snapshots=True)
    assert (await within(flow.resume(cut, RUN))).state == expected


# Start: run, resume, or begin again

TALK = graph(S).then([show("hear"), write("answer", total=1)]).compile()


async def test_start_runs_what_is_not_there(journal: Journal) -> None:
    result = await within(TALK.start(RUN, {"text": "hello"}, journal=journal))
    assert (result.status, result.state.log, result.steps) == (RunStatus.COMPLETED, ["hear:hello"], 2)
    with pytest.raises(RunNotFoundError):
        await TALK.start("other", answers={"q": "yes"}, journal=journal)
    with pytest.raises(StateError, match="txt: S has no such field"):
        await TALK.start("third", {"txt": 1}, journal=journal)
    assert [info.execution_id for info in journal.list()] == [RUN]


async def test_start_resumes_what_has_not_completed_with_the_input_that_it_has(journal: Journal) -> None:
    flow = graph(S).then([show("a"), ask_user_node("q", "go?"), show("b")]).compile()
    assert (await within(flow.start(RUN, {"text": "one"}, journal=journal))).status is RunStatus.PAUSED
    result = await within(flow.start(RUN, {"text": "two"}, journal=journal, answers={"q": "yes"}))
    assert (result.status, result.state.log) == (RunStatus.COMPLETED, ["a:one", "b:one"])


async def test_start_continues_a_conversation(journal: Journal) -> None:
    result: Any = None
    for number in range(1, 4):
        result = await within(TALK.start(RUN, {"text": f"t{number}", "log": ["new"]}, journal=journal))
        assert (result.status, result.state.total, result.steps) == (RunStatus.COMPLETED, number, 2 * number)
    assert result.state.log == ["new", "hear:t1", "new", "hear:t2", "new", "hear:t3"]
    records = journal.records(RUN)
    assert [record.step for record in records] == [1, 2, 3, 4, 5, 6]
    assert [record.step_id for record in records][::2] == [f"{RUN}:hear#{number}" for number in (1, 2, 3)]
    assert [record.attempt for record in records] == [1] * 6
    assert [TALK.load(journal, RUN, at=step).total for step in range(7)] == [0, 0, 1, 1, 2, 2, 3]
    assert TALK.load(journal, RUN) == result.state
    same = await within(TALK.start(RUN, journal=journal))
    assert (same.status, same.state, same.steps) == (RunStatus.COMPLETED, result.state, 6)
    (info,) = journal.list()
    assert (info.status, info.steps) == ("completed", 6)
    fork = journal.fork(RUN, at=3)
    assert (await within(TALK.resume(journal, fork))).state.total == 2


async def test_a_state_is_an_input_too(journal: Journal) -> None:
    await within(TALK.start(RUN, S(text="one"), journal=journal))
    result = await within(TALK.start(RUN, S(text="two", total=5), journal=journal))
    assert (result.state.text, result.state.total) == ("two", 7)


async def test_a_path_is_a_journal_of_start(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    for number in range(1, 3):
        assert (await within(TALK.start(RUN, {}, journal=path))).state.total == number


async def test_wrong_input_of_a_completed_run_is_refused_and_nothing_is_recorded() -> None:
    journal = KeptJournal()
    await within(TALK.start(RUN, {}, journal=journal))
    before = journal.rows(RUN)
    with pytest.raises(StateError, match="txt: S has no such field"):
        await TALK.start(RUN, {"txt": "x"}, journal=journal)
    assert journal.rows(RUN) == before


def conversation() -> CompiledGraph[S]:
    """Return a graph with branches, a loop and a question."""
    parallel = parallel_node("p", [show("x"), write("y", total=1)])
    loop = graph(S).loop(write("count", count=1), until=lambda s: s.count > 0)
    return graph(S).then([show("hear"), parallel, loop, ask_user_node("q", "more?"), say("end")]).compile()


async def test_a_kill_in_any_turn_of_a_conversation_loses_nothing() -> None:
    flow = conversation()
    journal = KeptJournal()
    result: Any = None
    for number in range(1, 4):
        result = await within(flow.start(RUN, {"text": f"t{number}"}, journal=journal))
        assert result.status is RunStatus.PAUSED
        result = await within(flow.start(RUN, journal=journal, answers={"q": "yes"}))
        assert result.status is RunStatus.COMPLETED
    expected = result.state
    assert (expected.total, expected.log.count("end")) == (3, 3)
    rows = journal.rows(RUN)
    starts = [place for place, row in enumerate(rows) if row.kind == RowKind.UPDATED]
    for count in range(starts[1] + 1, len(rows)):
        cut = journal.cut(RUN, count)
        result = await within(flow.start(RUN, journal=cut))
        if result.status is RunStatus.PAUSED:
            result = await within(flow.start(RUN, journal=cut, answers={"q": "yes"}))
        assert result.state == expected, f"after {count} rows"


async def test_branches_that_end_apart_are_over_when_it_begins_again(journal: Journal) -> None:
    nodes = [say("s"), show("x"), write("y", total=1)]
    flow = compile_graph(GraphConfig(start_node="s", nodes=nodes, edges=[("s", "x"), ("s", "y")], state=S))
    result: Any = None
    for number in range(1, 4):
        result = await within(flow.start(RUN, {"text": str(number)}, journal=journal))
        assert result.state.total == number
    assert result.state.log == ["s", "x:1", "s", "x:2", "s", "x:3"]
    assert flow.load(journal, RUN) == result.state


async def test_a_catch_node_runs_once_in_each_turn(journal: Journal) -> None:
    async def caught(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"log": [f"caught {len(ctx.errors)}"]}, goto="end")

    flow = graph(S).then([fail("bad"), say("end")]).catch(node("catch", caught)).compile()
    result: Any = None
    for _ in range(3):
        result = await within(flow.start(RUN, {}, journal=journal))
        assert result.status is RunStatus.COMPLETED, result.error
    assert result.state.log == ["caught 1", "end"] * 3


async def test_a_turn_that_failed_is_resumed_and_not_begun_again(journal: Journal) -> None:
    broken = True

    async def work(ctx: NodeContext[S]) -> dict[str, Any]:
        if broken and ctx.state.total == 1:
            raise ValueError("broken")
        return {"total": 1}

    flow = graph(S).then([say("a"), node("work", work)]).compile()
    await within(flow.start(RUN, {}, journal=journal))
    assert (await within(flow.start(RUN, {}, journal=journal))).status is RunStatus.FAILED
    broken = False
    result = await within(flow.start(RUN, {"text": "ignored while it is unfinished"}, journal=journal))
    assert (result.status, result.state.total, result.state.log) == (RunStatus.COMPLETED, 2, ["a", "a"])
    assert result.state.text == ""


async def test_each_turn_has_its_own_limit_of_steps(journal: Journal) -> None:
    flow = graph(S).then([say("a"), say("b")]).compile(max_steps=3)
    for _ in range(4):
        assert (await within(flow.start(RUN, {}, journal=journal))).status is RunStatus.COMPLETED


async def test_code_may_change_between_turns(journal: Journal) -> None:
    """What the first turn has finished may come later in the second one."""
    question: Node[S] = ask_user_node("q", "go?")
    before = graph(S).then([say("a"), say("b"), question]).compile()
    after = graph(S).then([say("b"), say("a"), question, say("c")]).compile()
    await within(before.start(RUN, {}, journal=journal))
    await within(before.start(RUN, journal=journal, answers={"q": "yes"}))
    assert (await within(after.start(RUN, {}, journal=journal))).status is RunStatus.PAUSED
    with pytest.raises(JournalError, match="'b' is finished in this run and would run again"):
        await graph(S).then([say("a"), say("b"), question, say("c")]).compile().start(RUN, journal=journal)
    result = await within(after.start(RUN, journal=journal, answers={"q": "yes"}))
    assert result.state.log == ["a", "b", "b", "a", "c"]


async def test_two_starts_of_one_run_at_once_are_refused() -> None:
    gate = asyncio.Event()

    async def wait(ctx: NodeContext[S]) -> None:
        await gate.wait()

    flow = graph(S).node("wait", wait).compile()
    journal = MemoryJournal()
    first = asyncio.create_task(flow.start(RUN, {}, journal=journal))
    await asyncio.sleep(0)
    with pytest.raises(RunOwnedError):
        await flow.start(RUN, {}, journal=journal)
    gate.set()
    await asyncio.wait([first], timeout=LIMIT)
    assert (await first).status is RunStatus.COMPLETED
