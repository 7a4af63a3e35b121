"""Code that is edited while a run waits, and the effect of `renamed` and `removed`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, cast

import msgspec
import pytest

from atomic.graph import with_options
from atomic.graph.engine.errors import AtomicError, GraphError, JournalError, StateError
from atomic.graph.engine.program import ForkOp
from atomic.sessions import SqliteJournal
from atomic.workflows import (
    CompiledGraph,
    Edge,
    GraphBuilder,
    GraphConfig,
    Journal,
    MemoryJournal,
    Node,
    NodeContext,
    NodeResult,
    Question,
    RunResult,
    RunStatus,
    Signal,
    State,
    ask_user_node,
    compile_graph,
    graph,
    node,
    reducers,
    tool_node,
)
from tests.graph.engine.small import RUN, S, say, within


@pytest.fixture(params=["memory", "sqlite"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Journal]:
    if request.param == "memory":
        yield MemoryJournal()
        return
    with SqliteJournal(tmp_path / "journal.db") as journal:
        yield journal


def chain(*parts: Any, **options: Any) -> CompiledGraph[S]:
    builder = graph(S)
    for part in parts:
        builder = builder.then(part)
    return builder.compile(**options)


def ask(id: str = "ask", text: str = "Go on?") -> Node[S]:
    return ask_user_node(id, text)


async def pause(journal: Journal, compiled: CompiledGraph[Any]) -> RunResult[Any]:
    result = await within(compiled.run(journal=journal, execution_id=RUN))
    assert result.status is RunStatus.PAUSED
    return result


async def finish(journal: Journal, compiled: CompiledGraph[Any], **answers: str) -> Any:
    result = await within(compiled.resume(journal, RUN, answers=answers or {"ask": "yes"}))
    assert result.status is RunStatus.COMPLETED, result.error
    return result.state


async def refused(
    journal: Journal, compiled: CompiledGraph[Any], kind: type[AtomicError] = JournalError, question: str = "ask"
) -> str:
    """Return the message of a refusal, after a check that it changed no row."""
    before = list(journal.history(RUN).rows)
    with pytest.raises(kind) as caught:
        await within(compiled.resume(journal, RUN, answers={question: "yes"}))
    assert journal.history(RUN).rows == before
    return str(caught.value)


def steps_of(journal: Journal) -> list[str]:
    return [record.step_id.removeprefix(f"{RUN}:") for record in journal.records(RUN)]


# What lies ahead may be edited freely


AHEAD: dict[str, tuple[list[Any], list[str]]] = {
    "renamed": ([say("a"), say("b"), ask(), say("other")], ["a", "b", "other"]),
    "added": ([say("a"), say("b"), ask(), say("c"), say("d")], ["a", "b", "c", "d"]),
    "removed": ([say("a"), say("b"), ask()], ["a", "b"]),
    "inserted before finished nodes": ([say("new"), say("a"), say("b"), ask(), say("c")], ["a", "b", "c"]),
    "inserted between finished nodes": ([say("a"), say("new"), say("b"), ask(), say("c")], ["a", "b", "c"]),
    "inserted after finished nodes": ([say("a"), say("b"), say("new"), ask(), say("c")], ["a", "b", "new", "c"]),
    "rest in an if": ([say("a"), say("b"), ask(), graph(S).if_(lambda s: True, say("c"))], ["a", "b", "c"]),
    "rest in a loop": (
        [say("a"), say("b"), graph(S).loop([ask(), say("c")], until=lambda s: True)],
        ["a", "b", "c"],
    ),
}


@pytest.mark.parametrize("edit", AHEAD)
async def test_nodes_that_have_not_run_may_be_edited(journal: Journal, edit: str) -> None:
    await pause(journal, chain(say("a"), say("b"), ask(), say("c")))
    parts, expected = AHEAD[edit]
    assert (await finish(journal, chain(*parts))).log == expected
    assert len(set(steps_of(journal))) == len(steps_of(journal))


async def test_a_chain_may_become_edges_and_edges_a_chain(journal: Journal) -> None:
    nodes: list[Node[S]] = [say("a"), ask(), say("b")]
    edges = compile_graph(GraphConfig(start_node="a", nodes=nodes, edges=[Edge("a", "ask"), Edge("ask", "b")], state=S))
    await pause(journal, chain(*nodes))
    copy = journal.fork(RUN)
    assert (await finish(journal, edges)).log == ["a", "b"]
    journal.delete(RUN)
    assert copy != RUN
    await pause(journal, edges)
    assert (await finish(journal, chain(*nodes))).log == ["a", "b"]


Around = Callable[[list[Any]], GraphBuilder[S]]
INSIDE: dict[str, Around] = {
    "branch": lambda body: graph(S).parallel({"x": body, "y": [say("y")]}),
    "map": lambda body: graph(S).map("each", lambda s: [1], body),
    "loop": lambda body: graph(S).loop(body, until=lambda s: True),
    "subgraph": lambda body: graph(S).subgraph("sub", chain(*body)),
}


@pytest.mark.parametrize("place", INSIDE)
async def test_a_branch_a_map_body_a_loop_or_a_subgraph_may_be_extended(journal: Journal, place: str) -> None:
    paused = await pause(journal, INSIDE[place]([say("a"), ask()]).compile())
    longer = INSIDE[place]([say("a"), ask(), say("b")]).compile()
    state = await finish(journal, longer, **{paused.questions[0].id: "yes"})
    assert [word for word in state.log if word != "y"] == ["a", "b"]


class WithMore(S):
    more: int = 7


async def test_a_field_with_a_default_may_be_added(journal: Journal) -> None:
    await pause(journal, chain(say("a"), ask()))
    a = cast("Any", say("a"))
    question = cast("Any", ask())
    state = await finish(journal, graph(WithMore).then(a).then(question).compile())
    assert (state.log, state.more) == (["a"], 7)


class Old(State):
    log: Annotated[list[str], reducers.concat] = []
    gone: int = 0


class New(State):
    log: Annotated[list[str], reducers.concat] = []


def over(state: type[Any], *, write: dict[str, Any], **options: Any) -> CompiledGraph[Any]:
    async def run(ctx: NodeContext[Any]) -> dict[str, Any]:
        return write

    return graph(state).node("a", run).ask_user("ask", "Go on?").compile(**options)


async def test_a_removed_field_is_refused_and_migrates(journal: Journal) -> None:
    await pause(journal, over(Old, write={"log": ["a"], "gone": 1}))
    message = await refused(journal, over(New, write={}), StateError)
    assert "gone" in message
    assert "migrate_state" in message

    def migrate(old: dict[str, Any], version: int) -> dict[str, Any]:
        return {"log": [*old["log"], f"gone={old['gone']}"]}

    newer = over(New, write={}, state_version=2, migrate_state=migrate)
    assert (await finish(journal, newer)).log == ["a", "gone=1"]


# Finished nodes that are gone


async def test_a_renamed_finished_node_is_refused_with_both_ways_out(journal: Journal) -> None:
    await pause(journal, chain(say("build"), say("b"), ask()))
    message = await refused(journal, chain(say("compile"), say("b"), ask()))
    assert message == (
        "The run has finished node 'build', which the graph no longer has. If it was renamed, compile the graph with "
        'renamed={"build": "its new id"}; if it was removed, with removed={"build"}'
    )


@pytest.mark.parametrize("last", [True, False])
async def test_a_renamed_finished_node_continues_with_renamed(journal: Journal, last: bool) -> None:
    rest = [] if last else [say("b")]
    seen: list[Any] = []

    async def look(ctx: NodeContext[S]) -> None:
        seen.append(ctx.output_of("make"))

    await pause(journal, chain(tool_node("build", lambda: "built"), *rest, ask()))
    renamed = {"build": "make"}
    newer = chain(tool_node("make", lambda: "again"), *rest, ask(), node("look", look), renamed=renamed)
    state = await finish(journal, newer)
    assert seen == ["built"]
    assert state.outputs["make"] == "built"
    assert newer.load(journal, RUN) == state
    assert [step for step in steps_of(journal) if step.startswith("make")] == []


@pytest.mark.parametrize("place", ["first", "middle", "last", "both", "all"])
async def test_a_removed_finished_node_continues_with_removed(journal: Journal, place: str) -> None:
    gone = {"first": {"a"}, "middle": {"b"}, "last": {"c"}, "both": {"b", "c"}, "all": {"a", "b", "c"}}[place]
    await pause(journal, chain(say("a"), say("b"), say("c"), ask(), say("d")))
    kept = [say(id) for id in ("a", "b", "c") if id not in gone]
    newer = chain(*kept, ask(), say("d"), removed=gone)
    state = await finish(journal, newer)
    assert state.log == ["a", "b", "c", "d"]
    assert steps_of(journal) == ["a#1", "b#1", "c#1", "ask#1", "d#1"]
    assert newer.load(journal, RUN, at=3).log == ["a", "b", "c"]


async def test_a_renamed_node_continues_a_second_time(journal: Journal) -> None:
    """Rows of the run before and after the edit are in one journal."""
    await pause(journal, chain(say("a"), graph(S).parallel({"x": [say("x"), ask()], "y": say("y")}, id="both")))
    edited = chain(
        say("start"),
        graph(S).parallel({"left": [say("x"), ask(), ask("more")], "y": say("y")}, id="two"),
        say("end"),
        renamed={"a": "start", "both": "two", "two:x": "two:left"},
    )
    paused = await within(edited.resume(journal, RUN, answers={"ask": "yes"}))
    assert (paused.status, [question.id for question in paused.questions]) == (RunStatus.PAUSED, ["more"])
    state = await finish(journal, edited, more="yes")
    assert state.log == ["a", "x", "y", "end"]
    assert edited.load(journal, RUN) == state
    assert sorted(steps_of(journal)) == ["a#1", "ask#1", "end#1", "more#1", "x#1", "y#1"]


@pytest.mark.parametrize("answered", ["approve", "confirm"])
async def test_a_renamed_waiting_node_keeps_its_question_and_its_answer(journal: Journal, answered: str) -> None:
    await pause(journal, chain(say("a"), ask("approve"), say("b")))
    edited = chain(say("a"), ask("confirm"), say("b"), renamed={"approve": "confirm"})
    state = await finish(journal, edited, **{answered: "yes"})
    assert (state.log, state.outputs["confirm"]) == (["a", "b"], "yes")


async def test_parts_and_attempts_of_a_renamed_node_are_kept(journal: Journal) -> None:
    async def slow(ctx: NodeContext[S]) -> dict[str, Any]:
        if ctx.remembered("half") is None:
            await ctx.remember("half", 1)
        await ctx.ask(Question("Go on?", id="ask"))
        return {"log": [f"{ctx.remembered('half')}"], "total": ctx.attempt}

    await pause(journal, chain(node("old", slow)))
    state = await finish(journal, chain(node("new", slow), renamed={"old": "new"}))
    assert (state.log, state.total) == (["1"], 2)


@pytest.mark.parametrize("place", ["map", "subgraph", "parallel"])
async def test_a_renamed_composite_that_is_open_continues(journal: Journal, place: str) -> None:
    def build(id: str, inner: str, **options: Any) -> CompiledGraph[S]:
        if place == "subgraph":
            renamed = {"in": inner} if inner != "in" else {}
            return graph(S).subgraph(id, chain(say(inner), ask(), renamed=renamed)).compile(**options)
        body = [say(inner), ask()]
        if place == "map":
            return graph(S).map(id, lambda s: [1, 2], body, max_concurrency=1).compile(**options)
        return graph(S).parallel({"x": body, "y": say("y")}, id=id).compile(**options)

    paused = await pause(journal, build("old", "in"))
    renamed = {"old": "new"} | ({} if place == "subgraph" else {"in": "inside"})
    edited = build("new", "inside", renamed=renamed)
    question = paused.questions[0].id.replace("old/", "new/")
    result = await within(edited.resume(journal, RUN, answers={question: "yes"}))
    while result.status is RunStatus.PAUSED:
        result = await within(edited.resume(journal, RUN, answers={result.questions[0].id: "yes"}))
    expected = {"map": ["in", "in"], "subgraph": ["in"], "parallel": ["in", "y"]}[place]
    assert (result.status, sorted(result.state.log)) == (RunStatus.COMPLETED, expected)
    assert len(set(steps_of(journal))) == len(steps_of(journal))


@pytest.mark.parametrize("place", ["map", "subgraph", "parallel"])
async def test_a_removed_finished_composite_keeps_its_updates(journal: Journal, place: str) -> None:
    tool: Node[S] = tool_node("in", lambda: "out")
    composite = {
        "map": graph(S).map("x", lambda s: [1, 2], [tool, say("n")]),
        "subgraph": graph(S).subgraph("x", chain(say("n"))),
        "parallel": graph(S).parallel({"p": say("n"), "q": [say("m"), tool]}, id="x"),
    }[place]
    before = chain(say("a"), composite, ask())
    await pause(journal, before)
    recorded = before.load(journal, RUN)
    after = chain(say("a"), ask(), removed={"x"})
    assert after.load(journal, RUN) == recorded
    assert (await finish(journal, after)).log == recorded.log


async def test_a_composite_that_is_open_cannot_be_removed(journal: Journal) -> None:
    await pause(journal, chain(say("a"), graph(S).parallel({"x": [say("x"), ask()]}, id="both")))
    message = await refused(journal, chain(say("a"), ask(), removed={"both"}))
    assert message == "'both' has begun and is not finished, so it cannot be in removed; put it back"


async def test_a_moved_finished_node_is_refused_with_its_own_reason(journal: Journal) -> None:
    await pause(journal, chain(say("a"), say("b"), ask()))
    moved = chain(say("a"), graph(S).parallel({"x": say("b"), "y": say("y")}), ask())
    message = await refused(journal, moved)
    assert "'b' was finished in another place of the graph" in message
    assert 'removed={"b"}' in message


async def test_a_finished_subgraph_can_be_inlined(journal: Journal) -> None:
    await pause(journal, chain(graph(S).subgraph("sub", chain(say("a"), say("b"))), ask()))
    state = await finish(journal, chain(say("a"), say("b"), ask(), renamed={"sub": "b"}))
    assert state.log == ["a", "b"]


async def test_a_goto_to_a_removed_node_is_refused_with_a_reason(journal: Journal) -> None:
    async def jump(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult(goto="ask")

    await pause(journal, chain(node("jump", jump), say("never"), ask(), say("c")))
    message = await refused(journal, chain(node("jump", jump), say("never"), ask("other"), say("c")))
    assert message.startswith("The run continues at node 'ask', which the graph no longer has")
    edited = chain(node("jump", jump), say("never"), ask("other"), say("c"), renamed={"ask": "other"})
    assert (await finish(journal, edited, other="yes")).log == ["c"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"renamed": {"old": "c"}}, "renamed: 'old' became 'c', which the graph does not have"),
    ({"renamed": {"a": "b"}}, "renamed: 'a' is still in the graph"),
    ({"removed": {"a"}}, "removed: 'a' is still in the graph"),
    ({"removed": "abc"}, "removed is 'abc'; give a set of ids"),
    ({"renamed": ["a"]}, "renamed is ['a']; give a mapping from old to new ids"),
    ({"renamed": {"x": "a"}, "removed": {"x"}}, "'x' is in renamed and in removed"),
]


@pytest.mark.parametrize(("options", "problem"), BAD)
def test_impossible_old_names_are_problems_of_the_graph(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(GraphError) as caught:
        chain(say("a"), say("b"), **options)
    assert problem in str(caught.value)
    config = GraphConfig(start_node="a", nodes=[say("a"), say("b")], edges=[Edge("a", "b")], state=S, **options)
    with pytest.raises(GraphError) as caught:
        compile_graph(config)
    assert problem in str(caught.value)


# History that would become another one


async def test_swapped_finished_nodes_are_refused(journal: Journal) -> None:
    await pause(journal, chain(say("a"), say("b"), ask()))
    message = await refused(journal, chain(say("b"), say("a"), ask()))
    assert message == (
        "'a' is finished in this run and would run again, because the graph now has it after 'b'. Put the nodes back "
        "in their old order, or give new ids to those that are to run again and list the old ids in "
        "compile(removed={…})"
    )


@pytest.mark.parametrize("place", ["branch", "map", "subgraph", "loop"])
async def test_swapped_finished_nodes_inside_of_something_open_are_refused(journal: Journal, place: str) -> None:
    def in_a_loop(body: list[Any]) -> GraphBuilder[S]:
        return graph(S).loop([graph(S).parallel({"x": body})], until=lambda s: True)

    around = in_a_loop if place == "loop" else INSIDE[place]
    await pause(journal, around([say("a"), say("b"), ask()]).compile())
    message = await refused(journal, around([say("b"), say("a"), ask()]).compile())
    assert "would run again" in message


async def test_nodes_swapped_in_a_graph_of_edges_are_refused(journal: Journal) -> None:
    def edges(*order: str) -> CompiledGraph[S]:
        nodes: list[Node[S]] = [say("a"), say("b"), ask()]
        ways = [Edge(one, other) for one, other in pairwise(order)]
        return compile_graph(GraphConfig(start_node=order[0], nodes=nodes, edges=ways, state=S))

    await pause(journal, edges("a", "b", "ask"))
    assert "would run again" in await refused(journal, edges("b", "a", "ask"))


async def test_nodes_that_run_again_by_a_loop_or_a_goto_do_not_count_as_edited(journal: Journal) -> None:
    """An extended graph with cycles: nodes before the last one may run again."""

    async def back(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult(update={"log": ["back"]}, goto="a" if ctx.state.log.count("back") < 2 else "end")

    def build(*more: Node[S]) -> CompiledGraph[S]:
        return chain(say("a"), ask(), node("back", back), say("end"), *more)

    await pause(journal, build())
    again = await within(build(say("more")).resume(journal, RUN, answers={"ask": "yes"}))
    assert again.status is RunStatus.PAUSED
    again = await within(build(say("more"), say("most")).resume(journal, RUN, answers={"ask": "yes"}))
    assert again.status is RunStatus.PAUSED
    state = await finish(journal, build(say("most")), ask="yes")
    assert state.log == ["a", "back", "a", "back", "a", "back", "end", "most"]


async def test_steps_that_finished_before_a_snapshot_count_too(tmp_path: Path) -> None:
    async def jump(ctx: NodeContext[S]) -> NodeResult:
        again = ctx.state.log.count("a") < 2
        return NodeResult(update={"log": ["jump"]}, goto="a" if again else None)

    async def fold(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult(signals=[Signal("checkpoint")])

    a = say("a")
    b = say("b")
    jumping = node("jump", jump)
    folding = node("fold", fold)
    with SqliteJournal(tmp_path / "journal.db") as journal:
        await pause(journal, chain(a, b, jumping, folding, ask()))
        assert journal.history(RUN).snapshot is not None
        assert "'b' is finished" in await refused(journal, chain(a, jumping, folding, b, ask()))
        state = await finish(journal, chain(a, b, jumping, folding, ask(), say("end")))
        assert state.log == ["a", "b", "jump", "a", "b", "jump", "end"]


async def test_a_renamed_branch_is_refused_and_continues_with_renamed(journal: Journal) -> None:
    def build(name: str, **options: Any) -> CompiledGraph[S]:
        return graph(S).parallel({name: [say("x"), ask()], "y": say("y")}, id="both").compile(**options)

    await pause(journal, build("old"))
    message = await refused(journal, build("new"))
    assert "Branch 'old' of 'both' has begun" in message
    assert 'renamed={"both:old": "both:its new name"}' in message
    state = await finish(journal, build("new", renamed={"both:old": "both:new"}))
    assert state.log == ["x", "y"]
    assert sorted(steps_of(journal)) == ["ask#1", "x#1", "y#1"]


async def test_a_branch_that_is_named_by_its_first_node_is_renamed_with_it(journal: Journal) -> None:
    def build(first: str, **options: Any) -> CompiledGraph[S]:
        return graph(S).parallel([graph(S).then(say(first)).then(ask()), say("y")], id="both").compile(**options)

    await pause(journal, build("lint"))
    state = await finish(journal, build("style", renamed={"lint": "style"}))
    assert state.log == ["lint", "y"]


async def test_a_removed_branch_of_a_finished_parallel_keeps_its_updates(journal: Journal) -> None:
    both = graph(S).parallel({"x": say("x"), "y": say("y")}, id="both")
    await pause(journal, both.then(ask()).compile())
    one = graph(S).parallel({"y": say("y")}, id="both").then(ask())
    assert 'removed={"both:x"}' in await refused(journal, one.compile())
    assert (await finish(journal, one.compile(removed={"both:x"}))).log == ["x", "y"]


async def test_a_run_of_another_graph_is_refused(journal: Journal) -> None:
    await pause(journal, chain(say("a"), ask(), name="review"))
    other = chain(say("a"), ask(), name="deploy")
    message = await refused(journal, other)
    assert message == (
        'Run "run" was recorded by graph "review", and this is "deploy". Use that graph; if it was renamed, compile it '
        'with renamed={"review": "deploy"}'
    )
    with pytest.raises(JournalError, match="was recorded by graph"):
        other.load(journal, RUN)
    assert (await finish(journal, chain(say("a"), ask(), name="deploy", renamed={"review": "deploy"}))).log == ["a"]


# Reducers


def counting(reducer: Any, **options: Any) -> CompiledGraph[Any]:
    body = {"__annotations__": {"n": Annotated[int, reducer]}, "n": 1, "__module__": __name__}
    counter: type[State] = cast("Any", type(State))("Counter", (State,), body)

    async def add(ctx: NodeContext[Any]) -> dict[str, Any]:
        return {"n": 3}

    return graph(counter).node("a", add).node("b", add).ask_user("ask", "Go on?").compile(**options)


def times(current: int, update: int) -> int:
    """Multiply."""
    return current * update


def _scaled(factor: int) -> Callable[[int, int], int]:
    def scale(current: int, update: int) -> int:
        return current + factor * update

    return scale


LIMIT = 5


def _helped(current: int, update: int) -> int:
    return _help(current) + update


def _help(value: int) -> int:
    return value + LIMIT


def _help_less(value: int) -> int:
    return value


ADD: Any = eval("lambda a, b: a + b")
SUBTRACT: Any = eval("lambda a, b: a - b")
CHANGES: list[tuple[Any, Any, str]] = [
    (reducers.sum, reducers.max, "its reducer was sum and is max now"),
    (reducers.sum, reducers.replace, "its reducer was sum and is replace now"),
    (times, reducers.sum, "its reducer was times and is sum now"),
    (ADD, SUBTRACT, "the code of its reducer <lambda> was changed"),
    (_scaled(2), _scaled(3), "the code of its reducer scale was changed"),
    (partial(pow, mod=7), partial(pow, mod=5), "the code of its reducer reducer was changed"),
    (operator.add, operator.mul, "its reducer was add and is mul now"),
]


@pytest.mark.parametrize(("before", "after", "words"), CHANGES)
async def test_a_changed_reducer_is_refused(journal: Journal, before: Any, after: Any, words: str) -> None:
    await pause(journal, counting(before))
    message = await refused(journal, counting(after), StateError)
    assert message == (
        f"n: {words}: the recorded steps would give another value. Put the old reducer back, or raise state_version "
        "and give migrate_state(old, from_version)"
    )
    with pytest.raises(StateError, match="reducer"):
        counting(after).load(journal, RUN)


async def test_a_changed_helper_or_constant_of_a_reducer_is_seen(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pause(journal, counting(_helped))
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "LIMIT", 6)
        assert "was changed" in await refused(journal, counting(_helped), StateError)
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "_help", _help_less)
        assert "was changed" in await refused(journal, counting(_helped), StateError)
    assert (await finish(journal, counting(_helped))).n == 17


async def test_a_reducer_that_was_only_renamed_or_documented_continues(journal: Journal) -> None:
    def product(a: int, b: int) -> int:
        """Multiply, as one does."""
        # with a comment
        return a * b

    await pause(journal, counting(times))
    assert (await finish(journal, counting(product))).n == 9


@pytest.mark.parametrize(("before", "value"), [(reducers.sum, 7), (times, 9), (_scaled(2), 13)])
async def test_a_changed_reducer_migrates(journal: Journal, before: Any, value: int) -> None:
    """The old reducer folds the old steps, even one that the author has removed."""
    seen: list[Any] = []

    def migrate(old: dict[str, Any], version: int) -> dict[str, Any]:
        seen.append(old["n"])
        return {"n": old["n"] + 100}

    await pause(journal, counting(before))
    newer = counting(reducers.max, state_version=2, migrate_state=migrate)
    assert (await finish(journal, newer)).n == value + 100
    assert seen == [value]


async def test_a_changed_reducer_of_an_open_subgraph_is_refused(journal: Journal) -> None:
    def build(reducer: Any) -> CompiledGraph[Any]:
        return graph(S).subgraph("sub", counting(reducer), input_mapper=lambda s: {}).compile()

    await pause(journal, build(reducers.sum))
    message = await refused(journal, build(reducers.max), StateError, question="sub/ask")
    assert message.startswith("n: its reducer was sum and is max now: the recorded steps of the open subgraph")


async def test_a_journal_without_fingerprints_stays_readable() -> None:
    """Older versions recorded custom reducers only by name, and no checksum."""
    import msgspec

    from atomic.graph.engine.journal import RowKind, StartBody, decode_body, encode_row

    journal = MemoryJournal()
    await pause(journal, counting(times))
    rows = journal._runs[RUN]  # pyright: ignore[reportPrivateUsage]  # to make it old
    start = decode_body(rows[0], StartBody)
    old_start = msgspec.structs.replace(start, reducers={**start.reducers, "n": "custom:times"}, shape=0)
    fields = msgspec.msgpack.decode(encode_row(RowKind.START, old_start).body)
    rows[0] = rows[0]._replace(body=msgspec.msgpack.encode(fields[:8]))
    assert (await finish(journal, counting(times))).n == 9


def test_two_workflows_of_one_graph_keep_their_own_old_names() -> None:
    shared = chain(graph(S).parallel({"x": say("a"), "y": say("b")}), say("c"))
    first = with_options(shared, msgspec.structs.replace(shared.options, name="first", renamed={"old": "a"}))
    second = with_options(shared, msgspec.structs.replace(shared.options, name="second", removed={"old"}))
    assert [made.program.renamed for made in (shared, first, second)] == [{}, {"old": "a"}, {}]
    assert [made.program.removed for made in (shared, first, second)] == [frozenset(), frozenset(), {"old"}]
    (fork,) = [op for op in first.program.ops if isinstance(op, ForkOp)]
    assert [branch.renamed for branch in fork.branches.values()] == [{"old": "a"}, {"old": "a"}]
