"""The content of a drawing: what there is to draw and its texts, without positions.

The text drawing, the SVG and the Mermaid text all start from this tree.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from atomic.graph.drawing.words import clean, condition, cut, seconds
from atomic.graph.engine.control import END
from atomic.graph.engine.node import (
    Block,
    IfBody,
    Limit,
    LoopBody,
    MapBody,
    Node,
    NodeKind,
    ParallelBody,
    SubgraphBody,
    TasksBody,
    blocks_in,
)

if TYPE_CHECKING:
    from atomic.graph.engine.compile_edges import Edge
    from atomic.graph.engine.compiled import CompiledGraph
    from atomic.graph.engine.control import Retry
    from atomic.graph.engine.function import FunctionWorkflow

WORDS = {NodeKind.PLAIN: "node", NodeKind.ASK: "question"}
STRATEGIES = {"all": "all at once", "race": "race: first to end wins", "any": "any: first success wins"}
NOTE_LIMIT = 44


@dataclass(frozen=True, eq=False)
class Step:
    """A node that runs. `jumps` are nodes that it may go to; None is the end."""

    path: str  # its id, in a subgraph `outer/inner`
    id: str
    kind: NodeKind
    word: str
    notes: tuple[str, ...] = ()
    jumps: tuple[str | None, ...] = ()
    leaves: bool = True  # False: the flow never continues to the next node


@dataclass(frozen=True, eq=False)
class Frame:
    """A node that contains others: a loop, a map, a subgraph."""

    path: str
    id: str
    kind: NodeKind
    title: str
    facts: tuple[str, ...]
    body: Flow
    asked: int = 0  # a loop that is left after this many items, not at its end


@dataclass(frozen=True, eq=False)
class Fork:
    """Branches: all of them at the same time, or one of them."""

    path: str
    id: str
    kind: NodeKind
    title: str
    facts: tuple[str, ...]
    branches: tuple[tuple[str, Chain], ...]

    @property
    def at_once(self) -> bool:
        return self.kind is NodeKind.PARALLEL


Item = Step | Frame | Fork


@dataclass(frozen=True, eq=False)
class Chain:
    """Items in sequence. The catcher runs after a failure."""

    items: tuple[Item, ...]
    catcher: Item | None = None


@dataclass(frozen=True, eq=False)
class Link:
    """An edge between two nodes of a web. `to` is None for the end.

    Several links that are `at_once` are followed at the same time.
    """

    from_: str
    to: str | None
    label: str = ""
    back: bool = False
    at_once: bool = False


@dataclass(frozen=True, eq=False)
class Web:
    """Nodes and edges of a `GraphConfig`. The nodes are in flow order, by id."""

    items: dict[str, Item]
    links: tuple[Link, ...]
    start: str


Flow = Chain | Web


def tree_of(compiled: CompiledGraph[Any]) -> Flow:
    """Return everything there is to draw of a graph."""
    return _flow(compiled, "")


def walk_ids(compiled: CompiledGraph[Any] | FunctionWorkflow[..., Any]) -> Iterator[str]:
    """Yield every id of the graph in reading order.

    Composites have ids too (a route may lead to `loop-1`), each before its contents. A
    catch node is the last in its block. Nodes of a subgraph are `outer/inner`. Of a
    workflow given by name, only the id of its node is known.
    """
    return _block_ids(compiled.block, "")


def _block_ids(block: Block, prefix: str) -> Iterator[str]:
    for node in (*block.nodes, *(() if block.catcher is None else (block.catcher,))):
        yield prefix + node.id
        if isinstance(node.body, SubgraphBody) and not isinstance(node.body.graph, str):
            yield from _block_ids(node.body.graph.block, f"{prefix}{node.id}/")
        for inner in blocks_in(node):
            yield from _block_ids(inner, prefix)


def _flow(compiled: CompiledGraph[Any], prefix: str) -> Flow:
    drawer = _Drawer(prefix, compiled.options.max_concurrency)
    if compiled.start_node is None:
        return drawer.chain(compiled.block)
    back = compiled.program.back_edges.keys()
    leaving: dict[str, list[Edge]] = {}
    for edge in compiled.edges:
        leaving.setdefault(edge.from_, []).append(edge)
    links = [link for node in compiled.block.nodes for link in _links_of(node, leaving.get(node.id, []), back)]
    items = {node.id: drawer.item(node, in_web=True) for node in compiled.block.nodes}
    order = _in_order(items, links, compiled.start_node)
    ways = {(link.from_, link.to, link.label) for link in links}
    if ways == {(name, following, "") for name, following in pairwise([*order, None])}:
        return Chain(tuple(items[name] for name in order))
    return Web({name: items[name] for name in order}, tuple(links), compiled.start_node)


def _links_of(node: Node[Any, Any], own: Iterable[Edge], back: Container[tuple[str, str]]) -> list[Link]:
    """Return the edges of a node: first those with conditions, in order, then the
    others.
    """
    asked = [edge for edge in own if edge.condition is not None]
    plain = [edge for edge in own if edge.condition is None]
    found: list[tuple[str, str]] = []
    for place, edge in enumerate(asked, 1):
        label = clean(edge.label) or condition(edge.condition)
        found.append((edge.to, f"{place}: {label}" if len(asked) > 1 else label))
    otherwise = "else" if asked else ""
    found += [(edge.to, clean(edge.label) or otherwise) for edge in plain]
    found += [(target, "") for target in dict.fromkeys(node.targets)]
    at_once = range(len(asked), len(asked) + len(plain)) if len(plain) > 1 else ()
    links = [
        Link(node.id, None if target == END else target, label, (node.id, target) in back, place in at_once)
        for place, (target, label) in enumerate(found)
    ]
    return links or [Link(node.id, None)]


def _in_order(items: Iterable[str], links: Iterable[Link], start: str) -> list[str]:
    """Sort the nodes so that every edge except back edges leads down.

    Nodes that only errors lead to come last.
    """
    following: dict[str, list[str]] = {name: [] for name in items}
    for link in reversed(list(links)):
        if link.to is not None and not link.back:
            following[link.from_].append(link.to)
    done: dict[str, None] = {}  # in reverse order: each node after its followers
    entered: set[str] = set()
    stack = [start, *(name for name in following if name != start)]
    while stack:
        name = stack[-1]
        entered.add(name)
        target = next((target for target in following[name] if target not in entered), None)
        if target is not None:
            stack.append(target)
        else:
            done.setdefault(stack.pop())
    return list(done)[::-1]


class _Drawer:
    """Describes the nodes of one compiled graph."""

    def __init__(self, prefix: str, limit: int) -> None:
        self._prefix = prefix
        self._limit = limit

    def chain(self, block: Block) -> Chain:
        catcher = None if block.catcher is None else self.item(block.catcher)
        return Chain(tuple(self.item(node) for node in block.nodes), catcher)

    def item(self, node: Node[Any, Any], *, in_web: bool = False) -> Item:
        match node.body:
            case None:
                targets = () if in_web else dict.fromkeys(node.targets)
                jumps = tuple(None if target == END else target for target in targets)
                leaves = in_web or node.kind is not NodeKind.DECISION
                word = WORDS.get(node.kind, str(node.kind))
                return Step(self._prefix + node.id, clean(node.id), node.kind, word, tuple(_notes(node)), jumps, leaves)
            case IfBody(branches):
                words = ("if", *["else if"] * len(branches))
                labels = [
                    "else" if test is None else f"{word} {condition(test)}"
                    for word, (test, _) in zip(words, branches, strict=False)
                ]
                return self._fork(node, [], labels, [block for _, block in branches])
            case ParallelBody(branches, strategy, _, own_limit):
                facts = [STRATEGIES.get(strategy, strategy)]
                limit = own_limit if isinstance(own_limit, int) else self._limit
                if own_limit is not None and not isinstance(own_limit, int):
                    facts.append(self._at_once(own_limit))
                elif 0 < limit < len(branches):
                    facts.append(_at_a_time(limit))
                # A branch that is named after its first node needs no label.
                is_named = any(block.nodes and block.nodes[0].id != name for name, block in branches)
                labels = [clean(name) if is_named else "" for name, _ in branches]
                return self._fork(node, facts, labels, [block for _, block in branches])
            case LoopBody():
                return self._loop(node, node.body)
            case MapBody(over, block, limit):
                facts = [f"for each of {condition(over)}", self._at_once(limit)]
                return self._frame(node, facts, self.chain(block))
            case TasksBody(_, block, until, limit):
                facts = ["each task when it is ready", self._at_once(limit)]
                facts += [] if until is None else [f"until {condition(until)}"]
                return self._frame(node, facts, self.chain(block))
            case SubgraphBody(graph):
                if isinstance(graph, str):
                    notes = (cut(clean(graph), NOTE_LIMIT), *_notes(node))
                    return Step(self._prefix + node.id, clean(node.id), node.kind, "workflow", notes)
                facts = [clean(graph.name)] if graph.name and graph.name != node.id else []
                return self._frame(node, facts, _flow(graph, f"{self._prefix}{node.id}/"))

    def _frame(self, node: Node[Any, Any], facts: list[str], body: Flow) -> Frame:
        all_facts = (*facts, *_notes(node))
        return Frame(self._prefix + node.id, clean(node.id), node.kind, _title(node), all_facts, body)

    def _loop(self, node: Node[Any, Any], body: LoopBody) -> Frame:
        """Return a loop from where it is entered, which may be in its middle."""
        nodes = (*body.block.nodes[body.enter_at :], *body.block.nodes[: body.enter_at])
        asked = len(nodes) - body.enter_at if body.enter_at else 0
        facts = [] if body.until is None else [f"until {condition(body.until)}"]
        if asked:
            facts.append(f"asked after {clean(nodes[asked - 1].id)}")
        if body.max_iterations:
            facts.append("once" if body.max_iterations == 1 else f"at most {body.max_iterations} times")
        return replace(self._frame(node, facts, self.chain(Block(nodes, body.block.catcher))), asked=asked)

    def _fork(self, node: Node[Any, Any], facts: list[str], labels: list[str], blocks: list[Block]) -> Fork:
        all_facts = (*facts, *_notes(node))
        branches = tuple((label, self.chain(block)) for label, block in zip(labels, blocks, strict=True))
        return Fork(self._prefix + node.id, clean(node.id), node.kind, _title(node), all_facts, branches)

    def _at_once(self, own: Limit[Any] | None) -> str:
        if own is not None and not isinstance(own, int):
            return f"{condition(own)} at once"
        limit = self._limit if own is None else own
        return _at_a_time(limit) if limit else "all at once"


def _at_a_time(limit: int) -> str:
    return "one at a time" if limit == 1 else f"{limit} at a time"


def _title(node: Node[Any, Any]) -> str:
    """Return the title of a node: `loop-1` as it is, `polish` as `loop polish`."""
    word = str(node.kind)
    return clean(node.id) if node.id.startswith(word) else f"{word} {clean(node.id)}"


def _notes(node: Node[Any, Any]) -> Iterator[str]:
    """Yield further facts about a node."""
    about = node.name if node.name and node.name != node.id else node.description
    if about:
        yield cut(clean(about), NOTE_LIMIT)
    if policies := list(_policies(node)):
        yield cut(" · ".join(policies), NOTE_LIMIT)


def _policies(node: Node[Any, Any]) -> Iterator[str]:
    if node.recovery:
        yield "recovery"
    # Compiled nodes have these types.
    several = node.retry if isinstance(node.retry, tuple) else None
    if several is not None:
        yield f"{sum(one.attempts for one in several)} attempts"
    retry = cast("Retry | None", None if several is not None else node.retry)
    timeout = cast("float | None", node.timeout)
    if retry and retry.attempts > 1:
        yield f"{retry.attempts} attempts"
    if timeout is not None:
        yield f"timeout {seconds(timeout)}"
    if node.model:
        yield clean(node.model)
