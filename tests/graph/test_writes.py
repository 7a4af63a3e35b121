"""Two branches that write one field: refused when the graph is built where the source shows it, and only there."""

from __future__ import annotations

import asyncio
import functools
import linecache
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import count, product
from types import FunctionType
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomic.graph.engine.node import NodeKind
from atomic.graph.engine.writes import Sources
from atomic.workflows import (
    END,
    Goto,
    GraphBuilder,
    GraphError,
    Node,
    NodeContext,
    NodeResult,
    RunStatus,
    Skip,
    State,
    SubagentRequest,
    agent_node,
    ask_user_node,
    command_node,
    custom_tool_node,
    graph,
    node,
    parallel_node,
    parallel_subagent_node,
    reducers,
    review_cycle,
    skill_node,
    subagent_node,
    subgraph_node,
    tool_node,
    wait_node,
)
from tests.graph.small import S, ended, failed, say, within

Answer = Callable[[NodeContext[S]], Awaitable[Any]]
Mapper = Callable[[Any, S], Any]


async def writes(ctx: NodeContext[S]) -> dict[str, Any]:
    return {"text": ctx.node_id}


async def keeps_dark(ctx: NodeContext[S]) -> dict[str, Any]:
    return dict(text=ctx.node_id)  # noqa: C408  # a call: nobody can look into that


def open_writer(id: str, **options: Any) -> Node[S]:
    return node(id, writes, **options)


def problems_of(builder: GraphBuilder[Any]) -> list[tuple[str, str]]:
    """What is said about a graph; nothing if it compiles."""
    try:
        builder.compile()
    except GraphError as error:
        return [(problem.node_id, problem.message) for problem in error.problems]
    return []


def against(*branch: Any, **options: Any) -> GraphBuilder[S]:
    """A parallel of that branch and one that surely writes `text`."""
    return graph(S).parallel({"this": list(branch), "other": open_writer("other")}, id="both", **options)


def is_refused(*branch: Any, **options: Any) -> bool:
    found = problems_of(against(*branch, **options))
    assert all(node_id == "both" and "'text'" in message for node_id, message in found), found
    return bool(found)


# what is said ------------------------------------------------------------------------------------------------


def test_two_branches_that_write_one_field_do_not_compile() -> None:
    builder = graph(S).parallel([open_writer("left"), open_writer("right")], id="both")
    assert problems_of(builder) == [
        ("both", "'left' and 'right' both write 'text', which has no reducer; give it one, or give the parallel merge=")
    ]


class Callee:
    async def __call__(self, ctx: NodeContext[S]) -> dict[str, Any]:
        return {"text": "x"}


async def with_more(more: int, ctx: NodeContext[S]) -> dict[str, Any]:
    return {"text": str(more)}


@pytest.mark.parametrize("run", [keeps_dark, Callee(), functools.partial(with_more, 1)])
async def test_where_nobody_can_see_it_the_join_says_it(run: Answer) -> None:
    compiled = graph(S).parallel([node("left", run), open_writer("right")], id="both").compile()
    text = await failed(compiled, "both")
    for word in ("'left'", "'right'", "'text'"):
        assert word in text


async def several(ctx: NodeContext[S]) -> dict[str, Any]:
    return {"count": 1, "text": "x", "total": 1, "log": ["x"], "outputs": {"x": 1}}


def test_each_field_is_told_once_with_the_first_two_nodes_that_write_it() -> None:
    branches = {
        "a": [node("a1", several), open_writer("a2")],
        "b": [say("b1"), open_writer("b2"), open_writer("b3")],
        "c": [node("c1", several)],
    }
    found = problems_of(graph(S).parallel(branches, id="p"))
    assert [(node_id, message.partition(",")[0]) for node_id, message in found] == [
        ("p", "'a1' and 'b2' both write 'text'"),
        ("p", "'a1' and 'c1' both write 'count'"),
    ]


def test_every_parallel_is_looked_at_and_numbered_nodes_have_their_names() -> None:
    inner = graph(S).parallel([open_writer("b"), open_writer("c")], id="inner")
    wait: Node[S] = wait_node("", "Go on?", input_mapper=lambda answer, state: {"text": answer})
    builder = graph(S).loop(graph(S).parallel([wait, inner], id="outer"), until=lambda s: True)
    assert [(node_id, message[:20]) for node_id, message in problems_of(builder)] == [
        ("inner", "'b' and 'c' both wri"),
        ("outer", "'wait-1' and 'b' bot"),
    ]


def test_it_is_told_together_with_everything_else() -> None:
    found = problems_of(against(open_writer("this")).then(say("a/b")))
    assert {node_id for node_id, _ in found} == {"both", "a/b"}


# functions that show it --------------------------------------------------------------------------------------


async def on_each_way(ctx: NodeContext[S]) -> Any:
    if ctx.state.done:
        return {"text": "", "count": 1}
    for number in range(ctx.state.count):
        if number == 3:
            return NodeResult({"text": str(number)})
    return NodeResult(update={"text": "x"}, signals=["checkpoint"])


async def if_and_else(ctx: NodeContext[S]) -> dict[str, Any]:
    if ctx.state.count == 1:
        return {"text": "1"}
    elif ctx.state.count == 2:
        raise ValueError("two")
    else:
        return {"text": "3"}


async def with_others_inside(ctx: NodeContext[S]) -> dict[str, Any]:
    def helper() -> None:
        return None

    class Helper:
        def __call__(self) -> int:
            return 1

    return {"text": str([helper(), Helper()(), (lambda: 2)()])}


def unchanged(function: Answer) -> Answer:
    return function


@unchanged
@unchanged
async def decorated(
    ctx: NodeContext[S],
) -> dict[str, Any]:
    return {"text": "x"}


Renamed = NodeResult


async def under_another_name(ctx: NodeContext[S]) -> Renamed:
    return Renamed({"text": "x"})


class Writer:
    text = "x"

    async def run(self, ctx: NodeContext[S]) -> dict[str, Any]:
        return {"text": self.text}


@pytest.mark.parametrize(
    "run",
    [writes, on_each_way, if_and_else, with_others_inside, decorated, under_another_name, Writer().run],
    ids=lambda run: run.__name__,
)
def test_a_function_shows_what_it_surely_writes(run: Answer) -> None:
    assert is_refused(node("this", run))


def test_a_function_that_has_often_run_shows_it_too() -> None:
    for _ in range(200):
        asyncio.run(graph(S).node("this", on_each_way).compile().run({"count": 5}))
    assert is_refused(node("this", on_each_way))


def to_text(answer: Any, state: S) -> dict[str, Any]:
    return {"text": str(answer)}


def merge_all(results: Any, state: S) -> dict[str, Any]:
    return {"text": str(results)}


MAPPED: list[Node[S]] = [
    tool_node("this", print, output_mapper=to_text),
    tool_node("this", print, output_mapper=lambda answer, state: {"text": answer}),
    ask_user_node("this", "What?", output_mapper=to_text),
    wait_node("this", "Go on?", input_mapper=to_text),
    agent_node("this", "hello", output_mapper=to_text),
    subagent_node("this", agent="a", task="t", output_mapper=to_text),
    skill_node("s", id="this", output_mapper=to_text),
    command_node("c", id="this", output_mapper=to_text),
    custom_tool_node("this", tool="t", output_mapper=to_text),
    parallel_subagent_node("this", agents=[SubagentRequest("a", "t")], merge=merge_all),
    subgraph_node("this", graph(S).then(say("a")).compile(), output_mapper=to_text),
    subgraph_node("this", "a workflow", output_mapper=to_text),
]


@pytest.mark.parametrize("this", MAPPED, ids=lambda this: this.kind)
def test_a_mapper_shows_what_it_surely_writes(this: Node[S]) -> None:
    assert is_refused(this)


def test_lambdas_on_one_line_are_told_apart() -> None:
    mappers: list[Mapper] = [lambda a, s: {"text": a}, lambda a, s: {"count": a}, lambda a, s: {"text": 1}]
    assert [is_refused(tool_node("this", print, output_mapper=mapper)) for mapper in mappers] == [True, False, True]


def test_a_lambda_in_a_lambda_is_not_taken_for_it() -> None:
    outer: Callable[[Any, S], Mapper] = lambda a, s: lambda b, s: {"text": a}  # noqa: E731
    assert not is_refused(tool_node("this", print, output_mapper=cast("Any", outer)))
    assert is_refused(tool_node("this", print, output_mapper=outer(1, S())))


# functions that do not ---------------------------------------------------------------------------------------


async def not_on_each_way(ctx: NodeContext[S]) -> dict[str, Any]:
    if ctx.state.count:
        return {"text": "x"}
    return {"count": 1}


async def falls_off_the_end(ctx: NodeContext[S]) -> dict[str, Any] | None:
    if ctx.state.count:
        return {"text": "x"}


async def ends_with_nothing(ctx: NodeContext[S]) -> dict[str, Any] | None:
    if ctx.state.count:
        return {"text": "x"}
    return


async def swallows(ctx: NodeContext[S]) -> dict[str, Any] | None:
    try:
        return {"text": str(1 // ctx.state.count)}
    except ZeroDivisionError:
        pass


async def changes_its_mind(ctx: NodeContext[S]) -> dict[str, Any] | None:
    try:
        return {"text": "x"}
    finally:
        if not ctx.state.count:
            return None  # noqa: B012


async def names_a_target(ctx: NodeContext[S]) -> NodeResult:
    return NodeResult({"log": ["x"]}, goto=END)


async def gives_a_target(ctx: NodeContext[S]) -> NodeResult:
    return NodeResult({"log": ["x"]}, END)


async def unpacks(ctx: NodeContext[S]) -> NodeResult:
    both: list[Any] = [None, END]
    return NodeResult(*both)


async def unpacks_names(ctx: NodeContext[S]) -> NodeResult:
    named: dict[str, Any] = {"goto": END}
    return NodeResult(**named)


async def computes_the_key(ctx: NodeContext[S]) -> dict[str, Any]:
    return {"text" if ctx.state.count else "count": 1}


class Forgetful(NodeResult):
    def __init__(self, update: Any) -> None:
        super().__init__({})


async def has_another_result(ctx: NodeContext[S]) -> Any:
    NodeResult = Forgetful
    return NodeResult({"text": "x"})


def forgets(function: Answer) -> Answer:
    @functools.wraps(function)
    async def run(ctx: NodeContext[S]) -> None:
        await function(ctx)

    return run


@pytest.mark.parametrize(
    "run",
    [
        not_on_each_way,
        falls_off_the_end,
        ends_with_nothing,
        swallows,
        changes_its_mind,
        computes_the_key,
        has_another_result,
        forgets(writes),
    ],
)
async def test_a_function_that_need_not_write_is_not_refused(run: Answer) -> None:
    state = (await ended(against(node("this", run)).compile())).state
    assert state.text == "other"


@pytest.mark.parametrize("run", [names_a_target, gives_a_target, unpacks, unpacks_names])
async def test_behind_a_function_that_leaves_nothing_is_sure(run: Answer) -> None:
    assert (await ended(against(node("a", run), open_writer("this")).compile())).state.text == "other"


async def test_a_lambda_that_need_not_write_is_not_refused() -> None:
    this: Node[S] = tool_node("this", lambda: 0, output_mapper=lambda a, s: {"text": a} if a else None)
    assert (await ended(against(this).compile())).state.text == "other"


async def test_a_node_whose_function_was_replaced_is_judged_by_the_new_one() -> None:
    tool: Node[S] = tool_node("this", lambda: 1, output_mapper=to_text)
    other = msgspec.structs.replace(tool, run=say("other").run)
    assert (await ended(against(other).compile())).state.text == "other"


async def test_a_node_made_by_hand_is_judged_by_its_function() -> None:
    async def leaves(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult(goto=END)

    by_hand: Node[S] = Node(id="hand", kind=NodeKind.AGENT, run=leaves)
    assert (await ended(against(by_hand, open_writer("this")).compile())).state.text == "other"
    assert is_refused(Node(id="hand", kind=NodeKind.AGENT, run=writes))


def function_in(lines: str, filename: str, shown: str | None = None) -> Any:
    """The function `run` of that source, whose file now shows something else."""
    scope: dict[str, Any] = {"NodeResult": NodeResult, "END": END}
    exec(compile(lines, filename, "exec", dont_inherit=True), scope)
    show(filename, lines if shown is None else shown)
    return scope["run"]


def show(filename: str, text: str) -> None:
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)


SOMETIMES = 'async def run(ctx):\n    if ctx.state.done:\n        return {"text": "x"}\n    return {"count": 1}\n'
ALWAYS = SOMETIMES.replace("count", "text")


@pytest.mark.parametrize("shown", [ALWAYS, 'async def run(ctx):\n    return {"text": "count"}\n'])
def test_a_source_that_has_changed_since_is_not_believed(shown: str) -> None:
    assert is_refused(node("this", function_in(shown, "changed.py")))
    assert not is_refused(node("this", function_in(SOMETIMES, "changed.py", shown)))
    del linecache.cache["changed.py"]


@pytest.mark.parametrize("shown", [SOMETIMES, f"\n{ALWAYS}", ALWAYS[:-3], "\0", "(" * 500, ""])
def test_what_cannot_be_read_is_left_to_the_join(shown: str) -> None:
    assert not is_refused(node("this", function_in(ALWAYS, "unread.py", shown)))
    del linecache.cache["unread.py"]


def test_lambdas_without_columns_are_not_told_apart() -> None:
    source = 'run = lambda a, s: {"text": a}; other = lambda a, s: {"count": a}\n'
    run = function_in(source, "columns.py")
    assert is_refused(tool_node("this", print, output_mapper=run))
    code = run.__code__
    bare = code.replace(co_linetable=bytes([0x80 | 13 << 3 | 7, 0] * (len(code.co_code) // 16 + 1)))
    assert not any(column for _, _, column, _ in bare.co_positions())
    assert not is_refused(tool_node("this", print, output_mapper=FunctionType(bare, {})))
    del linecache.cache["columns.py"]


def test_a_source_with_warnings_is_read_in_silence() -> None:
    """Warnings are errors here: the first look at the file has had its say already."""
    source = "async def run(ctx):\n    return {'text': '\\d'}\n"
    with pytest.warns(DeprecationWarning if sys.version_info < (3, 12) else SyntaxWarning):
        run = function_in(source, "warns.py")
    assert is_refused(node("this", run))
    del linecache.cache["warns.py"]


# what surely runs --------------------------------------------------------------------------------------------


async def rests(ctx: NodeContext[S]) -> None:
    await asyncio.sleep(0)


async def leaves(ctx: NodeContext[S]) -> NodeResult | None:
    if not ctx.state.done:
        return NodeResult(goto=END)
    return None


def nothing(branches: Mapping[str, S], state: S) -> None:
    """Merges nothing."""


def inner_parallel(**options: Any) -> Node[S]:
    return parallel_node("inner", [say("a"), open_writer("this")], **options)


def cycle(*, reviewer: Node[S], fixer: Node[S]) -> GraphBuilder[S]:
    return review_cycle(S, executor=say("execute"), reviewer=reviewer, fixer=fixer, until=lambda s: not s.done)


SURELY: dict[str, list[Any]] = {
    "behind others": [say("a"), tool_node("b", lambda: 1), node("c", rests), open_writer("this"), node("d", leaves)],
    "in a loop": [graph(S).loop([say("a"), open_writer("this")], until=lambda s: True)],
    "behind a loop": [graph(S).loop([say("a")], until=lambda s: True), open_writer("this")],
    "behind an if": [graph(S).if_(lambda s: s.done, [say("a")], else_=[say("b")]), open_writer("this")],
    "behind a map": [graph(S).map("m", lambda s: [], node("a", leaves)), open_writer("this")],
    "behind a wait": [wait_node("w", "Go on?", auto_approve=True), open_writer("this")],
    "in a parallel": [inner_parallel()],
    "behind a parallel": [parallel_node("inner", [node("a", leaves)]), open_writer("this")],
    "in a review": [cycle(reviewer=open_writer("this"), fixer=say("fix"))],
}


@pytest.mark.parametrize("branch", SURELY.values(), ids=SURELY)
def test_what_surely_runs_counts(branch: list[Any]) -> None:
    assert is_refused(*branch)


def skip(error: Exception, ctx: NodeContext[S]) -> Skip:
    return Skip()


def gives() -> dict[str, Any]:
    return {"text": "x"}


async def breaks(ctx: NodeContext[S]) -> dict[str, Any]:
    if not ctx.state.done:
        raise ValueError("broken")
    return {"text": "x"}


UNSURE: dict[str, list[Any]] = {
    "in an if": [graph(S).if_(lambda s: s.done, [open_writer("this")])],
    "behind a goto": [node("a", leaves), open_writer("this")],
    "behind a decision": [
        graph(S).decision("d", [(lambda s: s.done, "this")], fallback=END).then(open_writer("this")),
    ],
    "behind a goto in an if": [graph(S).if_(lambda s: True, [node("a", leaves)]), open_writer("this")],
    "behind a goto in a loop": [
        graph(S).loop([node("a", leaves), open_writer("this")], until=lambda s: True),
        open_writer("behind"),
    ],
    "behind an on_error that goes": [
        node("a", breaks, on_error=lambda error, ctx: Goto("b")),
        open_writer("this"),
        say("b", recovery=True),
    ],
    "behind a composite's on_error that goes": [
        parallel_node("inner", [node("a", breaks)], on_error=lambda error, ctx: Goto("b")),
        open_writer("this"),
        say("b", recovery=True),
    ],
    "with an on_error": [node("this", breaks, on_error=skip)],
    "with a catch": [graph(S).node("this", breaks).catch(node("c", leaves))],
    "in a map": [graph(S).map("m", lambda s: [], open_writer("this"))],
    "in the race of another": [
        parallel_node("inner", {"a": say("a"), "b": [node("c", rests), open_writer("this")]}, strategy="race"),
    ],
    "in a parallel with merge": [inner_parallel(merge=nothing)],
    "in a parallel with an on_error": [
        parallel_node("inner", [node("a", breaks), open_writer("this")], on_error=skip),
    ],
    "in a branch with a catch": [
        parallel_node("inner", [graph(S).node("this", breaks).catch(node("c", leaves))]),
    ],
    "in a fix": [cycle(reviewer=say("review"), fixer=open_writer("this"))],
    "behind a review that leaves": [cycle(reviewer=node("review", leaves), fixer=say("fix")), open_writer("this")],
    "a wait that need not ask": [
        wait_node("this", "Go on?", input_mapper=to_text, auto_approve=lambda s: not s.done),
    ],
    "a result that nothing maps": [tool_node("this", gives)],
}


@pytest.mark.parametrize("branch", UNSURE.values(), ids=UNSURE)
async def test_what_need_not_run_does_not_count(branch: list[Any]) -> None:
    assert (await ended(against(*branch).compile())).state.text == "other"


def test_a_fix_that_leaves_makes_unsure_what_stands_behind_the_cycle() -> None:
    fixed = cycle(reviewer=say("review"), fixer=node("fix", leaves))
    assert not is_refused(fixed, open_writer("this"))


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": "race"},
        {"strategy": "any"},
        {"merge": nothing},
        {"on_error": skip},
    ],
    ids=["race", "any", "merge", "on_error"],
)
async def test_a_parallel_that_can_go_on_all_the_same_is_not_refused(options: dict[str, Any]) -> None:
    await ended(against(open_writer("this"), **options).compile())


async def test_fields_with_a_reducer_and_outputs_are_no_conflict() -> None:
    class Merged(State):
        text: Annotated[str, reducers.max] = ""

    async def run(ctx: NodeContext[Any]) -> dict[str, Any]:
        return {"text": ctx.node_id, "outputs": {"x": 1}}

    result = await within(graph(Merged).parallel([node("a", run), node("b", run)]).compile().run())
    assert result.state.text == "b"


async def test_one_branch_or_one_parallel_behind_the_other_is_no_conflict() -> None:
    twice = graph(S).then(open_writer("a")).then(open_writer("b"))
    builder = graph(S).parallel([twice, say("c")]).parallel([open_writer("d"), say("e")])
    assert (await ended(builder.compile())).state.text == "d"


async def test_a_field_that_nobody_may_write_is_another_mistake() -> None:
    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"execution_id": "mine"}

    compiled = graph(S).parallel([node("a", run), node("b", run)]).compile()
    assert "execution_id" in await failed(compiled, "")


# what it costs -----------------------------------------------------------------------------------------------


def test_a_graph_without_a_parallel_looks_into_nothing() -> None:
    code = (
        "import sys; from atomic.workflows import graph\n"
        "graph().tool('a', print).loop([graph().tool('b', print)], until=print).map('m', print, []).items\n"
        "graph().tool('a', print).loop([graph().tool('b', print)], until=print).compile()\n"
        "assert 'atomic.graph.engine.writes' not in sys.modules\n"
        "graph().parallel([graph().tool('a', print), graph().tool('b', print)]).compile()\n"
        "assert 'atomic.graph.engine.writes' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_file_is_read_once_for_a_graph_and_not_at_all_where_no_name_is_shared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    getlines = linecache.getlines

    def counted(filename: str, *rest: Any) -> list[str]:
        read.append(filename)
        return getlines(filename, *rest)

    monkeypatch.setattr(linecache, "getlines", counted)
    graph(S).parallel([say("a"), say("b"), open_writer("c")]).compile()
    assert read == []
    inner = parallel_node("inner", [open_writer("c"), open_writer("d")])
    problems_of(graph(S).parallel([open_writer("a"), open_writer("b"), inner]))
    assert read == [__file__]


# laws --------------------------------------------------------------------------------------------------------

SURE = [
    'return {"text": "x"}',
    'return {"text": "x", "count": 1}',
    'return NodeResult({"text": "x"})',
    'return NodeResult(update={"text": "x"}, signals=())',
    "raise ValueError",
]
OTHERS = [
    "pass",
    "break",
    "return",
    "async def inner(): return {}",
    'return {"count": 1}',
    'return {"text" if flag() else "count": 1}',
    'return dict(text="x")',
    'return NodeResult({"text": "x"}, END)',
    'return NodeResult({"text": "x"}, goto=END)',
]
BLOCKS = [
    ("if flag():", "", ""),
    ("if flag():", "else:", ""),
    ("try:", "except ValueError:", ""),
    ("try:", "finally:", ""),
    ("try:", "except ValueError:", "else:"),
    ("for _ in flags():", "", ""),
    ("for _ in flags():", "else:", ""),
    ("with suppress(ValueError):", "", ""),
    ("match flag():", "", ""),
]


def statements(depth: int) -> st.SearchStrategy[list[str]]:
    """The lines of a few statements."""
    plain = st.one_of(st.sampled_from(SURE), st.sampled_from(OTHERS)).map(lambda line: [line])
    one = st.one_of(plain, blocks(depth - 1)) if depth else plain
    return st.lists(one, min_size=1, max_size=3).map(lambda parts: [line for part in parts for line in part])


def blocks(depth: int) -> st.SearchStrategy[list[str]]:
    def lines(heads: tuple[str, ...], *bodies: list[str]) -> list[str]:
        result: list[str] = []
        for head, body in zip(heads, bodies, strict=True):
            if head.startswith("match"):
                body = ["case True:", *(f"    {line}" for line in body)]
            if head:
                result += [head, *(f"    {line}" for line in body)]
        return result

    inner = statements(depth)
    return st.builds(lines, st.sampled_from(BLOCKS), inner, inner, inner)


def answers_of(run: Callable[..., Any], scope: dict[str, Any]) -> Iterator[Any]:
    """What it answers, whatever the flags say; not where it raises."""
    for bits in product((False, True), repeat=6):
        left = iter(bits)
        scope["flag"] = lambda left=left: next(left, False)
        scope["flags"] = lambda left=left: [1] * (1 + next(left, False)) * next(left, False)
        try:
            run(None).send(None)
        except StopIteration as stopped:
            yield stopped.value
        except ValueError:
            pass


@given(statements(2), st.sampled_from(["pass", *SURE]))
@settings(max_examples=600)
def test_what_is_said_of_a_function_holds_for_all_its_answers(body: list[str], last: str) -> None:
    lines = "".join(f"    {line}\n" for line in (*body, last))
    source = f"from contextlib import suppress\nasync def run(ctx):\n{lines}"
    try:
        compile(source, "law.py", "exec")
    except SyntaxError:  # a break outside of a loop
        return
    run = function_in(source, "law.py")
    seen = Sources().read(run)
    for answer in answers_of(run, run.__globals__):
        result = answer if isinstance(answer, NodeResult) else NodeResult(answer)
        assert seen.fields <= set(result.update or ())
        assert result.goto is None or not seen.goes_on


class Part(NamedTuple):
    """Some nodes of a branch; `yes` is what its condition says."""

    kind: str
    yes: bool
    first: list[Part]
    second: list[Part]


def parts(depth: int) -> st.SearchStrategy[list[Part]]:
    simple = ["write", "goto", "fails", "skips"]
    nested = ["if", "loop", "cycle", "parallel", "race", "merge", "map", "caught"]
    none: st.SearchStrategy[list[Part]] = st.just([])
    one = st.builds(Part, st.sampled_from(simple), st.booleans(), none, none)
    if depth:
        inner = parts(depth - 1)
        one = st.one_of(one, st.builds(Part, st.sampled_from(nested), st.booleans(), inner, inner))
    return st.lists(one, min_size=1, max_size=2)


class Shape:
    """The graph of some parts, with functions that show what they do, or that do the same in the dark."""

    def __init__(self, *, dark: bool) -> None:
        self.dark, self._ids = dark, count(1)

    def chain(self, parts: list[Part]) -> GraphBuilder[S]:
        builder = graph(S)
        for part in parts:
            builder = builder.then(self.part(part, f"n{next(self._ids)}"))
        return builder

    def part(self, part: Part, id: str) -> Any:
        yes = part.yes
        match part.kind:
            case "write":
                return node(id, keeps_dark if self.dark else writes)
            case "goto":
                return node(id, self.goes(yes))
            case "fails" | "skips":
                return node(id, self.breaks(yes), on_error=skip if part.kind == "skips" else None)
            case _:
                return self.composite(part, id, self.chain(part.first), self.chain(part.second))

    def composite(self, part: Part, id: str, first: GraphBuilder[S], second: GraphBuilder[S]) -> Any:
        yes = part.yes
        match part.kind:
            case "if":
                return graph(S).if_(lambda s: yes, first, else_=second, id=id)
            case "loop":
                return graph(S).loop(first, until=lambda s: yes, max_iterations=2, id=id)
            case "cycle":
                until: Callable[[S], bool] = lambda s: yes  # noqa: E731
                return review_cycle(S, executor=say(id), reviewer=first, fixer=second, until=until, max_iterations=2)
            case "map":
                return graph(S).map(id, lambda s: [1] * yes, first)
            case "caught":
                return graph(S).parallel([first.catch(node(f"{id}c", leaves))], id=id)
            case kind:
                merge, strategy = nothing if kind == "merge" else None, "race" if kind == "race" else "all"
                return graph(S).parallel({"a": first, "b": second}, strategy=strategy, merge=merge, id=id)

    def goes(self, yes: bool) -> Answer:
        async def run(ctx: NodeContext[S]) -> NodeResult:
            if yes:
                return NodeResult(goto=END)
            return NodeResult({"log": [ctx.node_id]})

        return run

    def breaks(self, yes: bool) -> Answer:
        async def run(ctx: NodeContext[S]) -> dict[str, Any]:
            if yes:
                raise ValueError("broken")
            return {"text": "x"}

        async def in_the_dark(ctx: NodeContext[S]) -> dict[str, Any]:
            return dict(await run(ctx))

        return in_the_dark if self.dark else run


@given(parts(2))
@settings(max_examples=400)
def test_a_parallel_that_is_refused_could_never_have_joined(branch: list[Part]) -> None:
    refused = {node_id for node_id, _ in problems_of(against(Shape(dark=False).chain(branch)))}
    if "both" in refused:
        result = asyncio.run(within(against(Shape(dark=True).chain(branch)).compile().run()))
        assert result.status is RunStatus.FAILED
