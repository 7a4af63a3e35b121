"""Every drawing of a graph fits, is complete, and has no overlaps."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Iterator
from itertools import combinations, pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from atomic.graph import (
    END,
    CompiledGraph,
    Edge,
    GraphBuilder,
    GraphConfig,
    Node,
    NodeContext,
    NodeKind,
    Retry,
    State,
    ask_user_node,
    compile_graph,
    decision_node,
    graph,
    node,
    tool_node,
    wait_node,
)
from atomic.graph.drawing.layout import layout
from atomic.graph.drawing.parts import Box, Label, Line, Point, Shape, Sketch
from atomic.graph.drawing.tree import tree_of
from atomic.graph.drawing.words import clean, cut, width
from atomic.graph.engine.node import Block, LoopBody, TasksBody

HOSTILE = [
    "end",
    "subgraph",
    'say "hi"',
    "<b>&amp;</b>",
    "%%{init: {}}%%",
    "a\x1b[31mb\nc\td",
    "`x`",
    "名前は",
    "🚀🚀",
    "é" * 60,
]
WORDS = st.sampled_from(["plan", "work", "a-rather-long-name-of-a-node", "x", *HOSTILE]) | st.text(max_size=20)
WIDTHS = st.integers(40, 130)
Builder = GraphBuilder[State]
Draw = Callable[[st.SearchStrategy[Any]], Any]


async def do_nothing(ctx: NodeContext[State]) -> None:
    pass


def is_good(state: State) -> bool:
    return True


def is_new(state: State) -> bool:
    return not state.outputs


class Graphs:
    """Draws graphs; every id is new."""

    def __init__(self, draw: Draw) -> None:
        self._draw = draw
        self._count = 0

    def number(self, least: int, most: int) -> int:
        return self._draw(st.integers(least, most))

    def maybe(self) -> bool:
        return self._draw(st.booleans())

    def words(self) -> str:
        return self._draw(WORDS)

    def name(self) -> str:
        self._count += 1
        letters = "".join(c for c in self.words() if c.isprintable() and c not in "/[]#|:")
        return f"{letters}~{self._count}"  # a separator: ("2", 2) must differ from ("", 22)

    def step(self) -> Node[State]:
        name = self.name()
        about = self.words()
        match self._draw(st.sampled_from(["plain", "tool", "agent", "ask", "wait", "workflow"])):
            case "tool":
                retry = Retry() if self.maybe() else None
                return tool_node(name, run=is_good, name=about, retry=retry, timeout=9.5)
            case "agent":
                return Node(id=name, kind=NodeKind.AGENT, run=do_nothing, description=about, model=self.words())
            case "ask":
                return ask_user_node(name, about)
            case "wait":
                return wait_node(name, about)
            case "workflow":
                return graph(State).subgraph(name, about or "other").items[0]
            case _:
                return node(name, do_nothing)

    def chain(self, depth: int) -> Builder:
        chain = graph(State)
        for _ in range(self.number(1, 3)):
            chain = self._grown(chain, depth)
        return chain

    def _grown(self, chain: Builder, depth: int) -> Builder:
        kinds = ["step", "step", "if", "loop", "cycle", "parallel", "map", "subgraph", "tasks"]
        name = self.name() if self.maybe() else ""
        match self._draw(st.sampled_from(kinds if depth else ["step"])):
            case "if":
                others = [(is_new, self.chain(depth - 1)) for _ in range(self.number(0, 2))]
                last = self.chain(depth - 1) if self.maybe() else None
                return chain.if_(is_good, then=self.chain(depth - 1), else_if=others, else_=last, id=name)
            case "loop":
                return chain.loop(self.chain(depth - 1), until=lambda s: len(s.outputs) > 3, max_iterations=7, id=name)
            case "cycle":
                again = self.chain(depth - 1).items
                body = self.chain(depth - 1).items
                both = LoopBody(Block((*again, *body)), is_good, 5, enter_at=len(again))
                return chain.then(Node[State](id=name, kind=NodeKind.LOOP, body=both))
            case "parallel":
                branches = {f"{self.words()}{place}": self.scope(depth - 1) for place in range(self.number(1, 4))}
                return chain.parallel(branches, strategy=self._draw(st.sampled_from(["all", "race", "any"])), id=name)
            case "map":
                return chain.map(self.name(), over=lambda s: s.outputs, node=self.scope(depth - 1))
            case "subgraph":
                return chain.subgraph(self.name(), self.graph(depth - 1))
            case "tasks":
                body = TasksBody(lambda state, deps, item: state, Block(self.scope(depth - 1).items), None, 3)
                return chain.then(Node[State](id=self.name(), kind=NodeKind.TASKS, body=body))
            case _:
                return chain.then(self.step())

    def scope(self, depth: int) -> Builder:
        """Draw a chain that may have a catcher, and a decision at its end that leads back."""
        chain = self.chain(depth)
        first = chain.items[0].id
        if self.maybe() and first:
            chain = chain.then(decision_node(self.name(), [(is_good, END), (is_new, first)]))
        return chain.catch(self.step()) if self.maybe() else chain

    def graph(self, depth: int) -> CompiledGraph[State]:
        return self.web(depth) if self.number(0, 2) == 0 else self.tree(depth)

    def tree(self, depth: int) -> CompiledGraph[State]:
        return self.scope(depth).compile(name=self.words(), description=self.words())

    def web(self, depth: int) -> CompiledGraph[State]:
        nodes = [self.chain(depth).items[0] for _ in range(self.number(1, 7))]
        nodes = [other if other.id else replace(other, id=self.name()) for other in nodes]
        ids = [other.id for other in nodes]
        edges = [Edge(ids[self.number(0, place)], target) for place, target in enumerate(ids[1:])]
        for _ in range(self.number(0, 5)):
            source = ids[self.number(0, len(ids) - 1)]
            target = ids[self.number(0, len(ids) - 1)]
            edges.append(Edge(source, target, condition=is_good, label=self.words()))
        forward = {edge.from_ for edge in edges if ids.index(edge.from_) < ids.index(edge.to)}
        edges += [Edge(source, END) for source in ids if source not in forward]
        if self.maybe():
            route = decision_node(self.name(), [(is_good, ids[self.number(0, len(ids) - 1)]), (is_new, END)])
            nodes = [*nodes, route]
            edges = [*edges, Edge(ids[self.number(0, len(ids) - 1)], route.id)]
        return compile_graph(GraphConfig(start_node=ids[0], state=State, nodes=nodes, edges=edges, max_iterations=9))


@st.composite
def graphs(draw: Draw) -> CompiledGraph[State]:
    return Graphs(draw).graph(draw(st.sampled_from([0, 1, 1, 2, 2, 3])))


@st.composite
def webs(draw: Draw) -> CompiledGraph[State]:
    return Graphs(draw).web(0)


def shown(compiled: CompiledGraph[State]) -> list[str]:
    """Return the ids as a drawing shows them: without the subgraph that contains them."""
    return [clean(name.rpartition("/")[2]) for name in compiled.node_ids]


# Text


@given(graphs(), WIDTHS)
def test_every_line_fits_the_width(compiled: CompiledGraph[State], columns: int) -> None:
    for line in compiled.draw(columns).splitlines():
        assert width(line) <= columns
        assert line.isprintable()


@given(graphs(), WIDTHS)
def test_every_id_is_in_the_drawing(compiled: CompiledGraph[State], columns: int) -> None:
    text = compiled.draw(columns)
    for name in shown(compiled):
        assert name in text or any(cut(name, cells) in text for cells in range(3, width(name)))


@given(graphs())
def test_a_drawing_is_the_same_each_time(compiled: CompiledGraph[State]) -> None:
    assert compiled.draw() == compiled.draw()


# The layout of text and SVG


def cells_of(line: Line, x: int = 0, y: int = 0) -> Iterator[tuple[Point, str]]:
    """Yield the cells of a line: `-` and `|` pass, `+` ends or turns."""
    points = [point for number, point in enumerate(line.points) if number == 0 or point != line.points[number - 1]]
    for (a, b), (c, d) in pairwise(points):
        dx = (c > a) - (c < a)
        dy = (d > b) - (d < b)
        for step in range(1, abs(c - a) + abs(d - b)):
            yield (x + a + dx * step, y + b + dy * step), "-" if dx else "|"
    for a, b in points:
        yield (x + a, y + b), "+"


def taken_by(x: int, y: int, part: Box | Label) -> Iterable[Point]:
    """Yield the cells of a part that no other may touch; a frame shares its inside."""
    if isinstance(part, Label):
        return [(x + n, y) for n in range(width(part.text) + (2 if part.marker else 0))]
    rows = range(y, y + part.height)
    if part.shape is Shape.FRAME or (part.shape is Shape.ASIDE and not part.lines):
        rows = range(y, y + 1 + len(part.lines))
    return [(column, row) for row in rows for column in range(x, x + part.width)]


def check_places(sketch: Sketch) -> None:
    taken: dict[Point, Box | Label] = {}
    lines: list[tuple[int, int, Line]] = []
    for x, y, part in sketch.flat():
        if isinstance(part, Line):
            lines.append((x, y, part))
            continue
        for cell in taken_by(x, y, part):
            assert cell not in taken, (part, taken[cell])
            assert 0 <= cell[0] < sketch.width
            assert 0 <= cell[1] < sketch.height
            taken[cell] = part
    for x, y, line in lines:
        for cell, _ in cells_of(line, x, y):
            over = taken.get(cell)
            assert 0 <= cell[0] < sketch.width
            assert 0 <= cell[1] < sketch.height
            assert over is None or isinstance(over, Label) or touches_the_border(cell, over, sketch)


def touches_the_border(cell: Point, box: Box, sketch: Sketch) -> bool:
    """Return whether a line leaves through a lower border or enters through an upper one."""
    places = [(x, y) for x, y, part in sketch.flat() if part is box]
    rows = {y + box.height - 1 for _, y in places} | {y for _, y in places if box.shape is Shape.FRAME}
    return cell[1] in rows


@given(graphs(), WIDTHS | st.just(220))
def test_nothing_covers_anything_else(compiled: CompiledGraph[State], columns: int) -> None:
    check_places(layout(tree_of(compiled), columns))


@given(graphs(), WIDTHS)
def test_frames_contain_exactly_their_own_parts(compiled: CompiledGraph[State], columns: int) -> None:
    boxes = [(x, y, part) for x, y, part in layout(tree_of(compiled), columns).flat() if isinstance(part, Box)]
    areas = [(x, y, x + box.width, y + box.height) for x, y, box in boxes]
    for (a, b, c, d), (e, f, g, h) in combinations(areas, 2):
        apart = c <= e or g <= a or d <= f or h <= b
        inside = (a < e and b < f and g < c and h < d) or (e < a and f < b and c < g and d < h)
        assert apart or inside


@given(webs())
def test_two_edges_never_look_like_one(compiled: CompiledGraph[State]) -> None:
    sketch = layout(tree_of(compiled), 100_000)
    lines = [part for _, _, part in sketch.parts if isinstance(part, Line)]
    for one, other in combinations(lines, 2):
        related = {one.points[0], one.points[-1]} & {other.points[0], other.points[-1]}
        here = dict(cells_of(one))
        for cell, how in cells_of(other):
            crossing = {here.get(cell, how), how} == {"-", "|"}
            assert cell not in here or related or crossing, (one, other)


# Mermaid

LABEL = r'"[^"\[\]{}<>&`|%;\\]*(?:(?:#\d+;|<br/>)[^"\[\]{}<>&`|%;\\]*)*"'
OPENINGS = ["(((", "((", "([", "[[", "[/", "{{", "{", "[", "("]
CLOSINGS = [")))", "))", "])", "]]", "/]", "}}", "}", "]", ")"]
SHAPES = [re.escape(opening) + LABEL + re.escape(closing) for opening, closing in zip(OPENINGS, CLOSINGS, strict=True)]
ANY_SHAPE = "|".join(SHAPES)
DEFINITION = re.compile(rf"(n\d+)(?:{ANY_SHAPE})(?::::(\w+))?")
CONNECTION = re.compile(rf"(n\d+) (?:-->|==>|-\.->)(?:\|{LABEL}\|)? (n\d+)")
OPENING = re.compile(rf"subgraph g\d+\[{LABEL}\]")
CLASS = re.compile(r"classDef (\w+) [a-z0-9:#,\- ]+")


def check_mermaid(text: str) -> set[str]:
    """Parse the Mermaid text that Atomic writes; return the nodes it defines."""
    first, *lines = text.splitlines()
    assert first == "flowchart TD"
    defined: set[str] = set()
    used: set[str] = set()
    depth = 0
    for line in map(str.strip, lines):
        if match := DEFINITION.fullmatch(line):
            assert match[1] not in defined
            defined.add(match[1])
        elif match := CONNECTION.fullmatch(line):
            used |= {match[1], match[2]}
        elif OPENING.fullmatch(line):
            depth += 1
        elif line == "end":
            depth -= 1
            assert depth >= 0
        else:
            assert CLASS.fullmatch(line) or re.fullmatch(r"%% [^%{}]*", line), line
    assert depth == 0
    assert used <= defined
    return defined


@given(graphs())
def test_mermaid_text_is_well_formed_whatever_the_names(compiled: CompiledGraph[State]) -> None:
    check_mermaid(compiled.mermaid())


# SVG

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def numbers(element: ET.Element, *names: str) -> list[float]:
    return [float(element.get(name, "0")) for name in names]


def corners(element: ET.Element) -> list[tuple[float, float]]:
    """Return the outermost points of an element."""
    match element.tag.rpartition("}")[2]:
        case "rect":
            x, y, wide, high = numbers(element, "x", "y", "width", "height")
            return [(x, y), (x + wide, y + high)]
        case "circle":
            x, y, r = numbers(element, "cx", "cy", "r")
            return [(x - r, y - r), (x + r, y + r)]
        case "text":
            x, y = numbers(element, "x", "y")
            return [(x, y), (x + width(element.text or "") * 6.4, y)]
        case "polygon":
            found = [float(number) for number in NUMBER.findall(element.get("points", ""))]
            return list(zip(found[::2], found[1::2], strict=True))
        case _:
            return []


@given(graphs())
def test_svg_is_well_formed_and_stays_inside_its_frame(compiled: CompiledGraph[State]) -> None:
    picture = ET.fromstring(compiled.svg())
    _, _, wide, high = (float(number) for number in picture.get("viewBox", "").split())
    for element in picture.iter():
        for x, y in corners(element):
            assert 0 <= x <= wide
            assert 0 <= y <= high


@given(graphs())
def test_svg_has_every_id_once(compiled: CompiledGraph[State]) -> None:
    picture = ET.fromstring(compiled.svg())
    found = [element.get("data-id") for element in picture.iter() if element.get("data-id")]
    assert sorted(filter(None, found)) == sorted(compiled.node_ids)


@given(graphs())
def test_boxes_and_texts_of_an_svg_do_not_overlap(compiled: CompiledGraph[State]) -> None:
    picture = ET.fromstring(compiled.svg())
    groups = [element for element in picture.iter() if element.get("class", "").split()[:1] in (["box"], ["bar"])]
    areas = [corners(element) for group in groups for element in group if element.tag.endswith("rect")]
    for ((a, b), (c, d)), ((e, f), (g, h)) in combinations(areas, 2):
        assert c <= e or g <= a or d <= f or h <= b
