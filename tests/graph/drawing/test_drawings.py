"""Drawings of graphs. `UPDATE_SNAPSHOTS=1` rewrites the snapshots before they are compared."""

from __future__ import annotations

import linecache
import os
import re
import xml.etree.ElementTree as ET
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

from atomic.graph import (
    END,
    CompiledGraph,
    Edge,
    GraphConfig,
    Node,
    NodeContext,
    NodeKind,
    Retry,
    State,
    compile_graph,
    decision_node,
    graph,
    parallel_node,
    tool_node,
)
from atomic.graph.drawing.words import clean, condition, cut, width
from atomic.graph.engine.node import Block, TasksBody
from atomic.workflows import review_cycle

SNAPSHOTS = Path(__file__).parent / "snapshots"


class Review(State):
    done: bool = False
    stale: bool = False
    findings: list[str] = []
    files: list[str] = []


async def work(ctx: NodeContext[Review]) -> None:
    pass


def is_stale(state: Review) -> bool:
    return state.stale


def tool(id: str, **options: Any) -> Node[Review]:
    return tool_node(id, run=is_stale, **options)


def agent(id: str, **options: Any) -> Node[Review]:
    return Node(id=id, kind=NodeKind.AGENT, run=work, **options)


def tasks(id: str, *nodes: Node[Review]) -> Node[Review]:
    return Node(id=id, kind=NodeKind.TASKS, body=TasksBody(lambda state, deps, item: state, Block(nodes), None, 6))


def review() -> CompiledGraph[Review]:
    return (
        graph(Review)
        .then(agent("planner"))
        .then(tool("parse", retry=Retry()))
        .loop([agent("worker"), tool("checker")], until=lambda s: s.done, max_iterations=20)
        .parallel({"lint": tool("lint"), "tests": [tool("setup"), tool("test")]})
        .if_(
            lambda s: s.findings, then=[agent("fixer")], else_if=[(is_stale, [tool("refresh")])], else_=[tool("praise")]
        )
        .catch(tool("report_failure"))
        .compile(name="review", description="Plan, work, check and fix until it is clean")
    )


def loop_with_a_parallel() -> CompiledGraph[Review]:
    checks = [tool("lint"), tool("types"), graph(Review).then(tool("unit")).then(tool("coverage"))]
    fix = graph(Review).if_(is_stale, then=tool("refresh"), else_=[agent("fix"), tool("recheck")])
    body = graph(Review).then(agent("work")).parallel(checks).if_(lambda s: s.findings, then=fix)
    return (
        graph(Review)
        .then(agent("plan", name="Split the work"))
        .loop(body, until=lambda s: s.done and not s.findings, max_iterations=5)
        .ask_user("approve", "Ship it?", options=["yes", "no"])
        .then(tool("merge"))
        .compile(name="ship")
    )


def one_of_each() -> CompiledGraph[Review]:
    prepare = graph(Review).then(tool("setup")).map("each", over=lambda s: s.files, node=[agent("try"), tool("verify")])
    return (
        graph(Review)
        .subgraph("prepare", prepare.compile(name="preparation"))
        .subgraph("ship", "release-flow")
        .wait("Go on?")
        .decision("route", [(is_stale, "again"), (lambda s: s.done, END)], fallback="again")
        .then(tool("again", recovery=True, timeout=60))
        .then(tasks("backlog", agent("worker"), tool("gate")))
        .parallel(
            {"fast": graph(Review).then(tool("guess")).catch(tool("sorry")), "thorough": agent("think")},
            strategy="race",
            max_concurrency=1,
            id="answer",
        )
        .compile(name="one of each")
    )


def edges() -> CompiledGraph[Review]:
    names = ("lint", "types", "tests", "coverage", "report")
    config = GraphConfig(
        name="edges",
        start_node="plan",
        state=Review,
        max_iterations=5,
        nodes=[agent("plan"), *map(tool, names), agent("fix"), tool("rescue", recovery=True)],
        edges=[
            *(Edge("plan", name) for name in ("lint", "types", "tests")),
            Edge("tests", "coverage"),
            *(Edge(name, "report") for name in ("lint", "types", "coverage", "rescue")),
            Edge("report", "fix", condition=lambda s: s.findings),
            Edge("report", "report", condition=is_stale, label="read again"),
            Edge("report", END),
            Edge("fix", "plan", label="once more"),
        ],
    )
    return compile_graph(config)


def routed() -> CompiledGraph[Review]:
    routes = decision_node("route", [(is_stale, "bug"), (lambda s: s.done, "feature")], fallback="question")
    config = GraphConfig(
        name="routed",
        start_node="classify",
        state=Review,
        max_iterations=5,
        nodes=[
            agent("classify"), routes, agent("bug"), agent("feature"), agent("question"),
            parallel_node("check", [tool("lint"), tool("test")]), tool("done"),
        ],
        edges=[
            Edge("classify", "route"),
            Edge("bug", "check"),
            Edge("feature", "check"),
            Edge("question", "done"),
            Edge("check", "bug", condition=lambda s: s.findings, label="red"),
            Edge("check", "done"),
        ],
    )  # fmt: skip
    return compile_graph(config)


def inside() -> CompiledGraph[Review]:
    return graph(Review).then(tool("before")).subgraph("inner", edges()).then(tool("after")).compile(name="inside")


def cycle() -> CompiledGraph[Review]:
    """Return a loop that is entered and left in the middle of its body."""
    fixer = [agent("fix"), tool("format")]
    return review_cycle(
        Review, executor=agent("execute"), reviewer=agent("judge"), fixer=fixer, until=lambda s: not s.findings
    ).compile(name="cycle")


MADE = (review, loop_with_a_parallel, one_of_each, cycle, edges, routed, inside)
GRAPHS = {made.__name__: made() for made in MADE}


@pytest.mark.parametrize("columns", [100, 40])
@pytest.mark.parametrize("name", GRAPHS)
def test_drawings_match_their_snapshots(name: str, columns: int) -> None:
    path = SNAPSHOTS / f"{name}-{columns}.txt"
    drawn = GRAPHS[name].draw(columns)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(drawn, encoding="utf-8")
    assert drawn == path.read_text(encoding="utf-8")


def test_a_drawing_is_100_columns_wide_at_most_and_never_less_than_40() -> None:
    wide = graph(Review).parallel([tool(f"a-branch-with-a-name-{n}") for n in range(9)]).compile()
    assert 40 < max(map(width, wide.draw().splitlines())) <= 100
    assert wide.draw(1) == wide.draw(40)


def test_a_loop_and_its_parallel_have_titles() -> None:
    text = GRAPHS["loop_with_a_parallel"].draw()
    assert "loop-1 · until s.done and not s.findings · at most 5 times" in text
    assert "parallel-1 · all at once" in text
    assert "again" in text


def test_edges_are_listed_in_the_order_of_their_conditions() -> None:
    text = GRAPHS["edges"].draw(40)
    asked = [text.index(label) for label in ("1: s.findings ─► fix", "2: read again ─► report ↑", "else ─► end")]
    assert asked == sorted(asked)
    assert "from lint, types, coverage, report, res…" in text


def test_edges_in_a_row_are_drawn_like_a_chain() -> None:
    nodes = [tool("last"), tool("first"), tool("second")]
    edges = [("first", "second"), ("second", "last")]
    by_edges = compile_graph(GraphConfig(name="row", start_node="first", state=Review, nodes=nodes, edges=edges))
    chain = graph(Review).then([tool("first"), tool("second"), tool("last")]).compile(name="row")
    assert by_edges.draw() == chain.draw()


def test_a_node_that_only_errors_lead_to_is_marked() -> None:
    assert "✗ on error" in GRAPHS["edges"].draw(100)
    assert "on failure: tool" in GRAPHS["review"].draw(100)


def test_a_sign_marks_only_its_own_node() -> None:
    inner = graph(Review).then(tool("check")).compile()
    made = graph(Review).then(tool("check")).subgraph("inner", inner).compile()
    assert re.findall("│(.)check", made.draw(signs={"inner/check": "✗"})) == [" ", "✗"]
    assert re.findall("│(.)check", made.draw(signs={"check": "✓", "inner": "!"})) == ["✓", " "]
    assert "!" not in made.draw(signs={"inner": "!"})


def test_node_ids_are_in_the_order_of_reading_with_composites_and_subgraphs() -> None:
    assert GRAPHS["one_of_each"].node_ids == (
        "prepare", "prepare/setup", "prepare/each", "prepare/try", "prepare/verify", "ship", "wait-1", "route", "again",
        "backlog", "worker", "gate", "answer", "guess", "sorry", "think",
    )  # fmt: skip
    assert GRAPHS["review"].node_ids[-1] == "report_failure"
    assert GRAPHS["routed"].node_ids[5:] == ("check", "lint", "test", "done")


# Words


@pytest.mark.parametrize(
    ("text", "cells"),
    [("abc", 3), ("名前", 4), ("e\u0301", 1), ("🚀!", 3), ("한", 2), ("\u1112\u1161\u11ab", 2), ("…", 1)],
)
def test_the_width_of_a_text_is_counted_in_cells(text: str, cells: int) -> None:
    assert width(text) == cells


def test_a_text_is_cut_between_signs() -> None:
    assert cut("名前は長い", 6) == "名前…"
    assert cut("e\u0301clair", 3) == "e\u0301c…"
    assert cut("short", 5) == "short"
    assert cut("short", 0) == ""


def test_control_and_direction_characters_are_escaped() -> None:
    assert clean("a\x1b[31m\nb\u202ec\u200dd") == "a\\x1b[31m b\\u202ecd"
    assert clean("\u0301x") == "◌\u0301x"


def label_of(predicate: Callable[[Any], Any]) -> str:
    return condition(predicate)


def test_a_condition_is_called_by_its_name_or_by_its_own_text() -> None:
    limit = 3
    assert condition(is_stale) == "is_stale"
    assert condition(partial(is_stale)) == "is_stale"
    assert label_of(lambda s: not s.done) == "not s.done"
    assert label_of(lambda s: len(s.findings) > limit and s.name == "größe") == (
        'len(s.findings) > limit and s.name == "größe"'
    )
    assert label_of(lambda s: any(f.new for f in s.findings)) == "any(f.new for f in s.findings)"
    assert label_of(
        lambda s: s.done  # a comment
        or s.stale
    ) == "s.done or s.stale"  # fmt: skip
    assert condition(re.compile("x")) == "Pattern"


def test_a_lambda_whose_source_has_changed_is_not_quoted() -> None:
    code = compile("lambda s: s.done", "changed.py", "eval")
    predicate = FunctionType(next(const for const in code.co_consts if hasattr(const, "co_code")), {})
    linecache.cache["changed.py"] = (16, None, ["lambda s: s.fail"], "changed.py")
    assert condition(predicate) == "…"
    linecache.cache["changed.py"] = (16, None, ["lambda s: s.done"], "changed.py")
    assert condition(predicate) == "s.done"
    del linecache.cache["changed.py"]
    assert condition(predicate) == "…"


# Mermaid and SVG

HOSTILE = '"]; click n1 "javascript:x" %%{init: {}}%% <script>&amp;</script> `end` | #quot;'


def hostile() -> CompiledGraph[Review]:
    named = tool('<b>"end"</b>'.replace("/", ""), name=HOSTILE, description="]]>\x00\x1b")
    config = GraphConfig(
        name=HOSTILE,
        description="-->\n</svg>",
        start_node="end",
        state=Review,
        max_iterations=1,
        nodes=[tool("end"), named, tool("subgraph")],
        edges=[
            Edge("end", named.id, label=HOSTILE),
            Edge(named.id, "subgraph"),
            Edge("subgraph", "end", label="\\"),
            Edge("subgraph", END),
        ],
    )
    return compile_graph(config)


def test_mermaid_shows_structure_kinds_and_labels() -> None:
    text = GRAPHS["loop_with_a_parallel"].mermaid()
    assert text.startswith("flowchart TD\n")
    assert 'subgraph g1["loop-1 · until s.done and not s.findings · at most 5 times"]' in text
    assert 'subgraph g2["parallel-1 · all at once"]' in text
    assert re.search(r'n\d+\["plan', text) is None  # an agent has round corners
    assert re.search(r'n\d+\(\["plan<br/>Split the work"\]\):::agent', text)
    assert re.search(r'n\d+\[/"approve"/\]:::ask', text)
    assert re.search(r'-->\|"if s.findings"\| n\d+', text)
    assert '|"again"|' in text


def test_mermaid_takes_jumps_to_where_they_lead() -> None:
    text = GRAPHS["one_of_each"].mermaid()
    ids = {match[2]: match[1] for match in re.finditer(r'(n\d+)\W*?"(route|again|end)[<"]', text)}
    assert f"{ids['route']} --> {ids['again']}" in text
    assert f"{ids['route']} --> {ids['end']}" in text


def test_mermaid_asks_a_cycle_in_its_middle() -> None:
    text = GRAPHS["cycle"].mermaid()
    ids = {
        match[2]: match[1] for match in re.finditer(r'(n\d+)\W*?"(judge|fix|format|until not s.findings|end)"', text)
    }
    asked = ids["until not s.findings"]
    assert f"{ids['judge']} --> {asked}" in text
    assert f'{asked} -->|"again"| {ids["fix"]}' in text
    assert f"{ids['format']} --> {ids['judge']}" in text
    assert f'{asked} -->|"done"| {ids["end"]}' in text


def test_hostile_names_stay_text_in_mermaid() -> None:
    text = hostile().mermaid()
    assert "javascript:" not in text
    assert "%%{" not in text
    assert "<script" not in text
    assert text.count("%%") == 1  # the comment with the name
    for line in text.splitlines():
        assert line.count('"') in (0, 2)


def test_hostile_names_stay_text_in_an_svg() -> None:
    picture = ET.fromstring(hostile().svg())
    assert {element.tag.rpartition("}")[2] for element in picture.iter()} <= {
        "svg", "title", "style", "rect", "text", "g", "path", "polygon", "circle",
    }  # fmt: skip
    assert any("<script>" in (element.text or "") for element in picture.iter())


@pytest.mark.parametrize("name", GRAPHS)
def test_an_svg_is_self_contained_and_supports_light_and_dark(name: str) -> None:
    text = GRAPHS[name].svg()
    assert text.count("http") == 1  # the name of the SVG namespace
    assert "url(" not in text
    assert "@import" not in text
    assert "prefers-color-scheme:dark" in text
    assert all(f'data-id="{path}"' in text for path in GRAPHS[name].node_ids)


def test_a_big_graph_is_drawn_whole() -> None:
    names = [f"node-{number}" for number in range(300)]
    chain = graph(Review).then([tool(name) for name in names]).compile()
    links = [Edge(one, other) for one, other in pairwise(names)]
    web = compile_graph(GraphConfig(start_node=names[0], state=Review, nodes=[tool(n) for n in names], edges=links))
    for made in (chain, web):
        text = made.draw()
        assert all(f" {name} " in text for name in names)
        assert made.svg()
        assert made.mermaid()
