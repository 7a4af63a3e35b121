"""Graphs made of edges: branches that split and join, conditional edges, cycles.

Two models predict their outcome. `wired` lays a plan out as edges, so that the plain
interpreter applies. `Net` is any acyclic net of edges: a node runs once if a taken edge
leads to it, after all nodes that lead to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from atomic.graph import END, CompiledGraph, Edge, GraphConfig, Node, NodeContext, NodeResult, compile_graph, node
from tests.graph.engine.law_building import Outside, work_node
from tests.graph.engine.law_plans import (
    TESTS,
    Drawing,
    If,
    LawState,
    Loop,
    Parallel,
    Part,
    Plan,
    Test,
    Where,
    Work,
    digest,
    values_of,
)
from tests.graph.engine.law_reference import Ran

MOST_ITERATIONS = 3


# A plan as edges


@dataclass(frozen=True)
class Every:
    """Holds at each `times`-th visit of a node: a loop that always takes that many iterations."""

    work_id: str
    times: int

    def __call__(self, state: Any) -> bool:
        return state.visits[self.work_id] % self.times == 0


class EdgeDrawing(Drawing):
    """Draws plans that edges can express: a step before and after each split or repeat."""

    def plan(self, where: Where, *, least: int = 1) -> Plan:
        if least == 0 and self._draw(st.booleans()):
            return ()
        parts: list[Part] = [self.work(where)]
        for _ in range(self._draw(st.integers(0, where.size - 1))):
            parts += [self.part(where), self.work(where)]
        return tuple(parts)

    def part(self, where: Where) -> Part:
        inner = Where(where.depth - 1, where.replaces, size=2)
        match self._draw(st.sampled_from(["if", "loop", "loop", "parallel", "parallel"] if where.depth else ["work"])):
            case "if":
                else_if = ((self._draw(TESTS), self.plan(inner)),) if self._draw(st.booleans()) else ()
                return If(self._draw(TESTS), self.plan(inner), else_if, self.plan(inner, least=0))
            case "loop":
                times = self._draw(st.integers(1, MOST_ITERATIONS))
                last = Work(self.id("n"), "plain", ("visits", "total"))
                return Loop((*self.plan(inner), last), Every(last.id, times), times)
            case "parallel":
                return self._parallel(inner)
            case _:
                return self.work(where)

    def _parallel(self, inner: Where) -> Parallel:
        number = self._draw(st.integers(2, 3))
        writer = self._draw(st.integers(0, number - 1))
        places = [Where(inner.depth, inner.replaces and place == writer, size=2) for place in range(number)]
        return Parallel(self.id("p"), tuple(self.plan(place) for place in places), merges=False, limit=None)


@st.composite
def edge_plans(draw: st.DrawFn, depth: int = 3) -> Plan:
    return EdgeDrawing(draw).plan(Where(depth, size=3))


def wired(plan: Plan, outside: Outside, limit: int = 4) -> CompiledGraph[LawState]:
    wiring = Wiring(outside)
    first = wiring.plan(plan, [])
    return compile_graph(
        GraphConfig(
            start_node=first,
            nodes=wiring.nodes,
            edges=wiring.edges,
            state=LawState,
            max_iterations=MOST_ITERATIONS - 1,
            max_steps=0,
            max_concurrency=limit,
        )
    )


# The nodes from which an edge leads to the next one, with its condition.
Leads = list[tuple[str, Callable[[Any], bool] | None]]


class Wiring:
    def __init__(self, outside: Outside) -> None:
        self._outside = outside
        self.nodes: list[Node[LawState]] = []
        self.edges: list[Edge] = []
        self._open: Leads = []

    def plan(self, plan: Plan, leads: Leads) -> str:
        """Lay out a plan after the open ends; return its first node."""
        self._open = leads
        first = ""
        for part in plan:
            entered = self.part(part)
            first = first or entered
        return first

    def part(self, part: Part) -> str:
        match part:
            case Work():
                return self._work(part)
            case If():
                return self._if(part)
            case Loop():
                first = self.plan(part.body, self._open)
                last = part.body[-1]
                assert isinstance(last, Work)
                self.edges.append(Edge(last.id, first, condition=lambda s: not part.until(s), label="again"))
                return first
            case Parallel():
                (head, _), *_ = self._open
                ends: Leads = []
                for branch in part.branches:
                    self.plan(branch, [(head, None)])
                    ends += self._open
                self._open = ends
                return ""
            case _:
                raise AssertionError(part)

    def _work(self, work: Work) -> str:
        self.nodes.append(work_node(work, self._outside))
        self.edges += [Edge(source, work.id, condition=condition) for source, condition in self._open]
        self._open = [(work.id, None)]
        return work.id

    def _if(self, part: If) -> str:
        (head, _), *_ = self._open
        ends: Leads = []
        for test, way in [(part.test, part.then), *part.else_if]:
            self.plan(way, [(head, test)])
            ends += self._open
        self.plan(part.else_, [(head, None)])
        self._open = ends + self._open
        return ""


# A net


@dataclass(frozen=True)
class Way:
    """An edge from one node to a later one, or to the end (None)."""

    source: int
    target: int | None
    test: Test | None


@dataclass(frozen=True)
class Net:
    """Nodes and edges; `jumps` are the nodes that choose their successors with goto."""

    size: int
    ways: tuple[Way, ...]
    jumps: frozenset[int]


@st.composite
def nets(draw: st.DrawFn, conditional: bool = True) -> Net:
    """Draw a net in which every node is reachable and has an unconditional edge onwards."""
    size = draw(st.integers(2, 9))
    pairs: set[tuple[int, int | None]] = set()
    for target in range(1, size):
        pairs |= {(source, target) for source in draw(st.sets(st.integers(0, target - 1), min_size=1, max_size=3))}
    pairs |= {(source, None) for source in draw(st.sets(st.integers(0, size - 1), max_size=1))}
    ways: list[Way] = []
    for source in range(size):
        own = sorted((pair for pair in pairs if pair[0] == source), key=lambda pair: (pair[1] is None, pair[1]))
        own = draw(st.permutations(own))
        certain = draw(st.integers(0, len(own) - 1)) if own else 0
        for place, (_, target) in enumerate(own):
            test = draw(st.none() | TESTS) if conditional and place != certain else None
            ways.append(Way(source, target, test))
    return Net(size, tuple(ways), draw(st.frozensets(st.integers(0, size - 1))))


@dataclass
class NetOutcome:
    """The expected outcome of a net: the nodes that run, and what each has seen."""

    values: dict[str, Any]
    ran: list[Ran]
    seen: list[tuple[str, int]]
    before: dict[int, frozenset[int]]


def net_update(name: str, seen: int) -> dict[str, Any]:
    return {"visits": {name: 1}, "total": seen % 5, "log": [name]}


def visible(state: LawState) -> int:
    """Return a digest that does not depend on the order in which branches are merged."""
    return digest(state.total, state.visits, sorted(state.log))


def outcome_of(net: Net) -> NetOutcome:
    """Run the nodes in order; each sees the updates of all nodes on taken edges to it."""
    before: dict[int, set[int]] = {0: set()}
    updates: dict[int, dict[str, Any]] = {}
    seen: list[tuple[str, int]] = []
    for number in range(net.size):
        if number not in before:
            continue
        state = _folded([updates[other] for other in sorted(before[number])])
        updates[number] = net_update(f"n{number}", visible(state))
        seen.append((f"n{number}", visible(state)))
        after = _folded([updates[other] for other in sorted({*before[number], number})])
        for target in _taken(net, number, after):
            if target is not None:
                before.setdefault(target, set()).update(before[number], {number})
    final = _folded([updates[number] for number in sorted(updates)])
    ran = [Ran("", f"n{number}", f"n{number}", 0) for number in sorted(updates)]
    return NetOutcome(values_of(final), ran, seen, {number: frozenset(known) for number, known in before.items()})


def _folded(updates: list[dict[str, Any]]) -> LawState:
    visits = {name: 1 for update in updates for name in update["visits"]}
    log = [name for update in updates for name in update["log"]]
    return LawState(total=sum(update["total"] for update in updates), visits=visits, log=log)


def _taken(net: Net, number: int, state: LawState) -> list[int | None]:
    ways = [way for way in net.ways if way.source == number]
    for way in ways:
        if way.test is not None and way.test(state):
            return [way.target]
    return [way.target for way in ways if way.test is None]


def woven(net: Net, outside: Outside, limit: int) -> CompiledGraph[LawState]:
    nodes = [_net_node(net, number, outside) for number in range(net.size)]
    edges = [
        Edge(f"n{way.source}", END if way.target is None else f"n{way.target}", condition=way.test) for way in net.ways
    ]
    return compile_graph(
        GraphConfig(
            start_node="n0",
            nodes=nodes,
            edges=edges,
            state=LawState,
            max_iterations=3,
            max_steps=60,
            max_concurrency=limit,
        )
    )


def _jump(net: Net, number: int, state: LawState, update: dict[str, Any]) -> list[str] | None:
    """Return the targets that the edges would lead to, for a goto of the node."""
    after = LawState(
        total=state.total + update["total"], visits={**state.visits, **update["visits"]}, log=state.log + update["log"]
    )
    targets = ["END" if target is None else f"n{target}" for target in _taken(net, number, after)]
    return [END if target == "END" else target for target in targets] if number in net.jumps and targets else None


def _net_node(net: Net, number: int, outside: Outside) -> Node[LawState]:
    name = f"n{number}"

    async def run(ctx: NodeContext[LawState]) -> NodeResult:
        seen = visible(ctx.state)
        outside.seen.append((name, seen))
        outside.step_ids.append(ctx.step_id)
        await outside.let_others_go_first(digest(name, outside.luck))
        update = net_update(name, seen)
        return NodeResult(update, goto=_jump(net, number, ctx.state, update))

    return node(name, run)


# Any web of edges, cycles and all


@st.composite
def webs(draw: st.DrawFn) -> Net:
    """Draw edges between any nodes; most that lead back have a condition."""
    size = draw(st.integers(2, 6))
    numbers = st.integers(0, size - 1)
    pairs: set[tuple[int, int]] = {(draw(st.integers(0, target - 1)), target) for target in range(1, size)}
    pairs |= draw(st.sets(st.tuples(numbers, numbers), max_size=4))
    ways: list[Way] = []
    for source, target in sorted(pairs):
        certain = draw(st.integers(0, 7)) > (1 if target > source else 6)
        ways.append(Way(source, target, None if certain else draw(TESTS)))
    ways += [Way(source, None, None) for source in sorted(draw(st.sets(numbers, max_size=2)))]
    stuck = {way.source for way in ways} - {way.source for way in ways if way.test is None}
    ways += [Way(source, None, None) for source in sorted(stuck)]
    return Net(size, tuple(ways), draw(st.frozensets(numbers, max_size=2)))
