"""States, and how updates are merged into them."""

from __future__ import annotations

import asyncio
import copy
import enum
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, cast
from uuid import UUID

import msgspec
import pytest

from atomic.workflows import (
    Edge,
    GraphConfig,
    MemoryJournal,
    Node,
    NodeContext,
    NodeResult,
    RunStatus,
    State,
    StateError,
    compile_graph,
    graph,
    node,
    reducers,
)
from tests.graph.engine.small import RUN, S, ended, failed, say, within, write


class Finding(msgspec.Struct, frozen=True):
    id: str
    line: int = 0


class Review(State):
    prompt: str = ""
    findings: Annotated[list[Finding], reducers.merge_by_id("id")] = []
    rounds: Annotated[int, reducers.sum] = 0


class Deeper(Review):
    more: str = ""


@pytest.mark.parametrize("kind", [State, Review, Deeper])
def test_states_are_frozen_and_keyword_only(kind: type[State]) -> None:
    with pytest.raises(TypeError):
        cast("Any", kind)("run")
    with pytest.raises(AttributeError):
        cast("Any", kind()).execution_id = "other"


def test_every_state_brings_id_time_and_outputs() -> None:
    assert (Deeper().execution_id, Deeper().last_updated, Deeper().outputs) == ("", "", {})


async def test_the_engine_fills_in_id_and_time() -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    result = await ended(graph(S).then(say("a")).compile(), execution_id=RUN)
    assert result.state.execution_id == result.execution_id == RUN
    assert before <= datetime.fromisoformat(result.state.last_updated) <= datetime.now(UTC) + timedelta(seconds=1)
    assert datetime.fromisoformat(result.state.last_updated).utcoffset() == timedelta(0)


@pytest.mark.parametrize("shape", ["parallel", "map", "subgraph", "edges"])
async def test_the_state_has_the_time_of_the_last_step_in_any_shape(shape: str) -> None:
    branches = {
        "parallel": graph(S).parallel([say("a"), say("b")]),
        "map": graph(S).map("m", over=lambda s: [1], node=say("a")),
        "subgraph": graph(S).subgraph("sub", graph(S).then(say("a")).compile()),
    }
    edges = GraphConfig(
        start_node="a", nodes=[say("a"), say("b"), say("c")], edges=[Edge("a", "b"), Edge("a", "c")], state=S
    )
    compiled = branches[shape].compile() if shape in branches else compile_graph(edges)
    journal = MemoryJournal()
    before = datetime.now(UTC) - timedelta(milliseconds=1)
    state = (await ended(compiled, journal=journal, execution_id=RUN)).state
    assert datetime.fromisoformat(state.last_updated) >= before
    assert compiled.load(journal, RUN).last_updated == state.last_updated


async def test_a_step_without_an_update_sets_the_time() -> None:
    async def nothing(ctx: NodeContext[S]) -> None:
        assert ctx.state.log == ["a"]
        await asyncio.sleep(0.005)

    journal = MemoryJournal()
    compiled = graph(S).then(say("a")).node("n", nothing).compile()
    first, last = [step.state async for step in compiled.stream(journal=journal, execution_id=RUN)]
    assert first.last_updated < last.last_updated
    assert compiled.load(journal, RUN).last_updated == last.last_updated


def test_comparing_leaves_the_time_out() -> None:
    assert S(text="a", last_updated="2020-01-01T00:00:00Z") == S(text="a", last_updated="2021-01-01T00:00:00Z")
    assert S(text="a") != S(text="b")
    assert S(execution_id="a") != S(execution_id="b")
    assert S() != State()


class Box(msgspec.Struct, frozen=True):
    items: list[str] = []


class Boxed(State):
    names: list[str] = []
    table: dict[str, list[str]] = msgspec.field(default_factory=lambda: {"a": []})
    box: Box = Box()


# Python 3.14 stores these annotations as a function; a workflow file needs no __future__.
UNQUOTED = """
class Own(State):
    names: list[str] = ["a"]
    box: Box = Box(["a"])
    later: "Later" = None
    shared = ["a"]
"""


def test_defaults_of_a_class_with_plain_annotations_are_not_shared() -> None:
    module: dict[str, Any] = {"State": State, "Box": Box, "__name__": __name__}
    exec(compile(UNQUOTED, "<file>", "exec", dont_inherit=True), module)  # like a workflow file
    one = module["Own"]()
    other = module["Own"]()
    one.names.append("b")
    one.box.items.append("b")
    assert (other.names, other.box.items) == (["a"], ["a"])
    assert one.shared is other.shared


async def test_defaults_are_never_shared_between_two_states() -> None:
    one = Boxed()
    other = Boxed()
    one.names.append("x")
    one.table["a"].append("x")
    one.outputs["x"] = 1
    assert (other.names, other.table, other.outputs) == ([], {"a": []}, {})

    async def spoil(ctx: NodeContext[Boxed]) -> None:
        ctx.state.names.append("x")
        ctx.state.table["a"].append("x")
        ctx.state.box.items.append("x")
        ctx.state.outputs["x"] = 1

    compiled = graph(Boxed).node("spoil", spoil).compile()
    await within(compiled.run())
    fresh = Boxed()
    assert (fresh.names, fresh.table, fresh.box.items, fresh.outputs) == ([], {"a": []}, [], {})


# Reducers


def put_before(current: str, update: str) -> str:
    return update + current


class Reduced(State):
    replaced: str = ""
    listed: Annotated[list[int], reducers.concat] = []
    texts: Annotated[str, reducers.concat] = ""
    merged: Annotated[dict[str, Any], reducers.merge] = {}
    dicts: Annotated[list[dict[str, Any]], reducers.merge_by_id("id")] = []
    structs: Annotated[list[Finding], reducers.merge_by_id("id")] = []
    most: Annotated[int, reducers.max] = 0
    least: Annotated[int, reducers.min] = 0
    summed: Annotated[float, reducers.sum] = 0
    either: Annotated[bool, reducers.or_] = False
    both: Annotated[bool, reducers.and_] = False
    kept: Annotated[str, reducers.if_defined] = ""
    own: Annotated[str, put_before] = ""
    bounded: Annotated[int, msgspec.Meta(ge=0), reducers.sum] = 0


@pytest.mark.parametrize(
    ("field", "current", "update", "expected"),
    [
        ("replaced", "old", "new", "new"),
        ("listed", [1, 2], [2, 3], [1, 2, 2, 3]),
        ("texts", "a", "b", "ab"),
        ("merged", {"a": {"x": 1}, "b": 1}, {"a": {"y": 2}}, {"a": {"y": 2}, "b": 1}),
        (
            "dicts",
            [{"id": 1, "a": 1}, {"id": 2}],
            [{"id": 3}, {"id": 1, "b": 2}],
            [{"id": 1, "a": 1, "b": 2}, {"id": 2}, {"id": 3}],
        ),
        (
            "structs",
            [Finding("a", 1), Finding("b", 2)],
            [Finding("c"), Finding("a", 9)],
            [Finding("a", 9), Finding("b", 2), Finding("c")],
        ),
        ("most", 5, 3, 5),
        ("most", 5, 8, 8),
        ("least", 5, 3, 3),
        ("least", 5, 8, 5),
        ("summed", 1.5, 2, 3.5),
        ("either", True, False, True),
        ("either", False, False, False),
        ("both", True, False, False),
        ("both", True, True, True),
        ("kept", "old", None, "old"),
        ("kept", "old", "new", "new"),
        ("own", "a", "b", "ba"),
        ("bounded", 1, 2, 3),
    ],
)
async def test_each_reducer_merges_according_to_its_name(field: str, current: Any, update: Any, expected: Any) -> None:
    async def run(ctx: NodeContext[Reduced]) -> dict[str, Any]:
        assert getattr(ctx.state, field) == current  # no reducer changed the input
        return {field: update}

    journal = MemoryJournal()
    compiled = graph(Reduced).node("n", run).compile()
    result = await within(compiled.run({field: current}, journal=journal, execution_id=RUN))
    assert result.error is None
    assert getattr(result.state, field) == expected
    assert getattr(compiled.load(journal, RUN), field) == expected


async def test_outputs_are_merged_by_key() -> None:
    compiled = graph(S).then(write("a", outputs={"x": 1, "y": 1})).then(write("b", outputs={"y": 2})).compile()
    assert (await ended(compiled)).state.outputs == {"x": 1, "y": 2}


async def test_a_node_changes_only_the_fields_it_returns() -> None:
    result = await ended(graph(S).then(write("a", text="new")).compile(), {"text": "old", "count": 3, "log": ["x"]})
    assert (result.state.text, result.state.count, result.state.log) == ("new", 3, ["x"])


# Values that do not fit


async def test_an_unknown_field_fails_the_node_and_names_the_nearest() -> None:
    text = await failed(graph(S).then(write("save", txet="x")).compile(), "save, txet: ")
    assert '"text"' in text


async def test_a_failed_node_leaves_the_state_unchanged() -> None:
    compiled = graph(S).then(write("a", text="kept")).then(write("b", log=["lost"], text=7)).compile()
    result = await within(compiled.run())
    assert str(result.error).startswith("b, text: ")
    assert (result.state.text, result.state.log) == ("kept", [])


@pytest.mark.parametrize(
    ("update", "where"),
    [
        ({"prompt": 1}, "n, prompt: "),
        ({"rounds": "1"}, "n, rounds: "),
        ({"rounds": None}, "n, rounds: "),
        ({"rounds": 1.5}, "n, rounds: "),
        ({"findings": "abc"}, "n, findings: "),
        ({"findings": [{"id": "a", "line": "7"}]}, "n, findings[0].line: "),
        ({"findings": [Finding("a"), {"line": 1}]}, "n, findings[1]: "),
        ({"outputs": []}, "n, outputs: "),
        ({"outputs": {"x": {"deep": [object()]}}}, "n, outputs.x.deep[0]: "),
    ],
)
async def test_a_value_of_another_type_fails_with_its_path(update: Any, where: str) -> None:
    async def run(ctx: NodeContext[Review]) -> Any:
        return update

    text = await failed(graph(Review).node("n", run).compile(), where)
    assert len(text) > len(where) + 5


async def test_a_mapping_becomes_the_struct_of_the_field() -> None:
    async def run(ctx: NodeContext[Review]) -> Any:
        return {"findings": [{"id": "a", "line": 7}]}

    result = await within(graph(Review).node("n", run).compile().run())
    assert result.state.findings == [Finding("a", 7)]


async def test_bounds_of_a_field_hold_for_updates() -> None:
    async def run(ctx: NodeContext[Reduced]) -> Any:
        return {"bounded": -1}

    await failed(graph(Reduced).node("n", run).compile(), "n, bounded: ")


@pytest.mark.parametrize("field", ["execution_id", "last_updated"])
async def test_a_node_cannot_write_fields_of_the_engine(field: str) -> None:
    await failed(graph(S).then(write("n", **{field: "x"})).compile(), f"n, {field}: ")


async def test_a_number_too_large_to_record_fails_its_node() -> None:
    await failed(graph(S).then(write("n", count=2**70)).compile(), "n, count: ")


async def test_a_sum_that_is_too_large_to_record_does_not_crash() -> None:
    async def run(ctx: NodeContext[S]) -> NodeResult:
        return NodeResult({"total": 2**62}, signals=["checkpoint"])

    many = graph(S).loop([node("n", run)], until=lambda s: False, max_iterations=20)
    journal = MemoryJournal()
    result = await within(many.subgraph("sub", graph(S).then(say("a")).compile()).compile().run(journal=journal))
    if result.error is None:
        assert result.state.total == 20 * 2**62
    else:
        assert str(result.error).startswith(("n", "sub"))
        assert "total" in str(result.error)


@pytest.mark.parametrize("input", [{"txet": "x"}, {"count": "1"}, {"log": [1]}])
async def test_a_wrong_input_is_refused_before_anything_runs(input: dict[str, Any]) -> None:
    ran: list[str] = []
    journal = MemoryJournal()
    compiled = graph(S).tool("t", run=lambda: ran.append("t")).compile()
    with pytest.raises(StateError, match=next(iter(input))):
        await compiled.run(input, journal=journal)
    assert ran == []
    assert journal.list() == []


class Required(State):
    prompt: str


async def test_an_input_without_a_required_field_is_refused() -> None:
    async def run(ctx: NodeContext[Required]) -> None: ...

    compiled = graph(Required).node("n", run).compile()
    with pytest.raises(StateError, match="prompt"):
        await compiled.run()
    assert (await within(compiled.run(Required(prompt="x")))).state.prompt == "x"


# States and updates that were handed out


async def test_a_state_that_was_handed_out_never_changes() -> None:
    kept: list[tuple[Any, Any]] = []  # each returned state, and a copy made at that moment

    def keep(value: Any) -> Any:
        kept.append((value, copy.deepcopy(value)))
        return value

    async def run(ctx: NodeContext[S]) -> dict[str, Any]:
        keep(ctx.state)
        return {"log": ["n"], "total": 1, "outputs": {"n": [1]}}

    async def hold_parts(ctx: NodeContext[S]) -> dict[str, Any]:
        keep(ctx.state.log)
        keep(ctx.state.outputs)
        return keep({"log": ["p"], "outputs": {"p": 1}})

    def asked(state: S) -> bool:
        keep(state)
        return False

    def merge(branches: Any, state: S) -> dict[str, Any]:
        keep(branches)
        keep(state)
        return {"log": ["merged"]}

    inner = graph(S).node("inner", run).node("held", hold_parts)
    compiled = (
        graph(S)
        .loop([node("n", run), node("parts", hold_parts)], until=asked, max_iterations=3)
        .parallel({"a": node("a", run), "b": node("b", hold_parts)})
        .parallel({"c": node("c", run), "d": node("d", run)}, merge=merge)
        .map("m", over=lambda s: keep(list(s.log)), node=node("item", run))
        .subgraph("sub", inner.compile(), output_mapper=lambda end, s: keep({"log": end.log[-1:]}))
        .tool("t", run=keep)
        .node("last", run)
        .compile()
    )
    async for step in compiled.stream({"log": keep(["first"])}, journal=MemoryJournal()):
        keep(step.state)
        keep(step.update)
    for value, then in kept:
        assert value == then
    assert len(kept) > 40


async def test_a_node_may_change_its_update_after_it_returned() -> None:
    mine = ["a"]

    async def first(ctx: NodeContext[S]) -> dict[str, Any]:
        return {"log": mine, "outputs": {"x": mine}}

    async def second(ctx: NodeContext[S]) -> dict[str, Any]:
        mine.append("changed later")
        return {"log": ["b"]}

    result = await ended(graph(S).node("first", first).node("second", second).compile())
    assert result.state.log == ["a", "b"]
    assert result.state.outputs["x"] == ["a"]
    assert mine == ["a", "changed later"]


async def test_an_input_stays_as_it_was() -> None:
    input = S(log=["first"], outputs={"x": 1})
    await ended(graph(S).then(write("n", log=["n"], outputs={"y": 2})).compile(), input)
    assert input == S(log=["first"], outputs={"x": 1})


def extend(current: list[str], update: list[str]) -> list[str]:
    current.extend(update)
    return current


class Careless(State):
    names: Annotated[list[str], extend] = []


async def test_a_reducer_that_changes_its_argument_spoils_nothing() -> None:
    def named(id: str) -> Node[Careless]:
        async def run(ctx: NodeContext[Careless]) -> dict[str, Any]:
            return {"names": [id]}

        return node(id, run)

    journal = MemoryJournal()
    compiled = graph(Careless).then(named("a")).parallel([named("x"), named("y")]).then(named("z")).compile()
    states = [step.state async for step in compiled.stream(journal=journal, execution_id=RUN)]
    assert states[0].names == ["a"]
    assert states[-1].names == ["a", "x", "y", "z"]
    assert compiled.load(journal, RUN) == states[-1]


# Live and resumed


class Colour(enum.Enum):
    RED = "red"


class Everything(State):
    raw: bytes = b""
    when: datetime | None = None
    day: date | None = None
    span: timedelta | None = None
    key: UUID | None = None
    price: Decimal | None = None
    colour: Colour | None = None
    numbers: set[int] = set()
    frozen: frozenset[str] = frozenset()
    pair: tuple[int, str] | None = None
    finding: Finding | None = None
    nested: dict[str, list[Finding]] = {}
    by_number: dict[int, str] = {}
    ratio: float = 0.0
    anything: Any = None
    added: Annotated[list[Any], reducers.concat] = []


EVERYTHING: dict[str, Any] = {
    "raw": b"\x00\xff",
    "when": datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC),
    "day": date(2026, 1, 2),
    "span": timedelta(days=1, microseconds=7),
    "key": UUID(int=7),
    "price": Decimal("1.10"),
    "colour": Colour.RED,
    "numbers": {3, 1},
    "frozen": frozenset("ab"),
    "pair": (1, "x"),
    "finding": Finding("a", 1),
    "nested": {"x": [Finding("b")]},
    "by_number": {1: "one"},
    "ratio": 2,
}
LOOSE: list[Any] = [
    {1: "int keys", 2: {"deep": (1, 2)}},
    (1, [2, (3,)]),
    {"set"},
    Finding("c", 3),
    [Finding("d")],
    b"bytes",
    datetime(2026, 1, 2, tzinfo=UTC),
    datetime(2026, 1, 2),
    date(2026, 1, 2),
    UUID(int=8),
    Decimal("2.5"),
    Colour.RED,
    1.0,
    2**63,
    "text \N{SNOWMAN}",
]


@pytest.mark.parametrize("loose", LOOSE, ids=lambda value: type(value).__name__)
async def test_live_and_resumed_states_are_equal(loose: Any) -> None:
    async def run(ctx: NodeContext[Everything]) -> dict[str, Any]:
        return {**EVERYTHING, "anything": loose, "added": [loose], "outputs": {"x": loose, "y": [loose]}}

    async def then(ctx: NodeContext[Everything]) -> dict[str, Any]:
        return {"added": [loose]}

    journal = MemoryJournal()
    compiled = graph(Everything).node("n", run).node("then", then).compile()
    result = await within(compiled.run({"added": [loose]}, journal=journal, execution_id=RUN))
    assert result.error is None
    for name, value in EVERYTHING.items():
        assert getattr(result.state, name) == value
    for other in (compiled.load(journal, RUN), (await compiled.resume(journal, RUN)).state):
        assert other == result.state
        assert repr_of(other) == repr_of(result.state)


UNORDERED = ("last_updated", "numbers", "frozen")


def repr_of(state: State) -> list[str]:
    """Return the fields with their types: 1 and 1.0 differ, as do a list and a tuple."""
    return [repr(getattr(state, name)) for name in state.__struct_fields__ if name not in UNORDERED]


async def test_values_under_any_are_plain_data_at_once() -> None:
    seen: list[Any] = []

    async def run(ctx: NodeContext[Everything]) -> dict[str, Any]:
        return {"anything": (Finding("a", 1), (2,)), "outputs": {"x": Finding("b", 2)}}

    async def look(ctx: NodeContext[Everything]) -> None:
        seen.append((ctx.state.anything, ctx.output_of("x")))

    await within(graph(Everything).node("n", run).node("look", look).compile().run())
    assert seen == [([{"id": "a", "line": 1}, [2]], {"id": "b", "line": 2})]


Reducer = Callable[[Any, Any], Any]


def test_reducers_are_plain_functions_too() -> None:
    reduce: Reducer = reducers.merge_by_id("id")
    assert reduce([{"id": 1}], [{"id": 1, "a": 2}]) == [{"id": 1, "a": 2}]
    assert reducers.sum(1, 2) == 3


# Comparisons and reducers


def test_states_that_are_equal_are_not_unequal() -> None:
    class Point(State):
        x: int = 0

    class Other(State):
        x: int = 0

    assert Point(x=1) == Point(x=1, last_updated="2026-01-01T00:00:00Z")
    assert not Point(x=1) != Point(x=1, last_updated="2026-01-01T00:00:00Z")  # noqa: SIM202
    assert Point(x=1) != Point(x=2)
    assert Point(x=1) != Other(x=1)
    assert Point(x=1) != 1


def join_as_text(current: list[str], update: list[str]) -> Any:
    return ",".join([*current, *update])


def with_a_number(current: list[str], update: list[str]) -> Any:
    return [*current, *update, 1]


class Strict(State):
    text: Annotated[list[str], join_as_text] = []
    mixed: Annotated[list[str], with_a_number] = []
    few: Annotated[int, msgspec.Meta(le=2), reducers.sum] = 0
    short: Annotated[list[str], msgspec.Meta(max_length=1), reducers.concat] = []
    log: Annotated[list[str], reducers.concat] = []


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("text", ["a"], "n, text: reducer join_as_text returned 'a': Expected `array`, got `str`"),
        ("mixed", ["a"], "n, mixed[1]: reducer with_a_number returned ['a', 1]: Expected `str`, got `int`"),
        ("few", 2, "n, few: reducer sum returned 3: Expected `int` <= 2"),
        ("short", ["b"], "n, short: reducer concat returned ['a', 'b']: Expected `array` of length <= 1"),
    ],
)
@pytest.mark.parametrize("beside", [{}, {"log": ["x"]}], ids=["alone", "beside another"])
async def test_the_result_of_a_reducer_must_fit_its_field(
    field: str, value: Any, reason: str, beside: dict[str, Any]
) -> None:
    async def run(ctx: Any) -> Any:
        return {field: value, **beside}

    result = await graph(Strict).node("n", run).compile().run({"few": 1, "short": ["a"]})
    assert (result.status, str(result.error)) == (RunStatus.FAILED, reason)
    assert (result.state.few, result.state.short, result.state.text, result.state.log) == (1, ["a"], [], [])
