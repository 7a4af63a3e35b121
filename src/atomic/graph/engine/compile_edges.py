"""Compile nodes and edges given as data, a `GraphConfig`, to a checked program.

A cycle of edges is known by its back edges, which a search from the start node finds.
Each first node of a cycle has a counter.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, cast

import msgspec

from atomic.graph.engine.author_functions import AuthorFunctions
from atomic.graph.engine.builder import GraphOptions, MigrateState
from atomic.graph.engine.compile import Compiler
from atomic.graph.engine.compiled import CompiledGraph
from atomic.graph.engine.control import END, Duration
from atomic.graph.engine.node import Block, Condition, Node
from atomic.graph.engine.program import END_PC, ForkOp, Program, RouteOp, StepOp, UntilOp, everything_after
from atomic.graph.engine.state import StateT


class _EdgeEnds(msgspec.Struct, frozen=True, eq=False):
    # A separate class, because msgspec makes all fields of a class keyword-only or
    # none.
    from_: str
    to: str


class Edge(_EdgeEnds, frozen=True, eq=False, kw_only=True):
    """An edge from one node to another. Edges with a condition are checked first."""

    condition: Condition[Any] | None = None
    label: str = ""


class GraphConfig(msgspec.Struct, Generic[StateT], frozen=True, eq=False, kw_only=True):
    """A graph as data.

    `max_iterations` limits how often a cycle of edges is entered again.
    """

    start_node: str
    nodes: Sequence[Node[StateT, Any]]
    edges: Sequence[Edge | tuple[str, str]]
    state: type[StateT]
    max_iterations: int | None = None
    name: str = ""
    description: str = ""
    max_steps: int = 1000
    max_concurrency: int = 4
    model: str | None = None
    timeout: Duration | None = None
    state_version: int = 1
    migrate_state: MigrateState | None = None
    renamed: Mapping[str, str] = {}
    removed: Collection[str] = ()
    pause_before: Collection[str] = ()
    result: Callable[[StateT], Any] | None = None

    @property
    def options(self) -> GraphOptions:
        return GraphOptions(**{name: getattr(self, name) for name in GraphOptions.__struct_fields__})


def compile_graph(config: GraphConfig[StateT]) -> CompiledGraph[StateT]:
    """Check a graph given as data and compile it.

    Raise GraphError with all problems.
    """
    compiler = Compiler(config.state, config.options)
    nodes = compiler.number(Block(tuple(config.nodes))).nodes
    edges = _read_edges(compiler, config.edges)
    program = _edge_program(compiler, nodes, edges, config)
    return compiler.finish(program, Block(nodes), edges=edges, start=config.start_node)


def _read_edges(compiler: Compiler[Any], given: Iterable[Any]) -> list[Edge]:
    """Return the edges of a config, in which a pair of ids is also an edge."""
    edges: list[Edge] = []
    for edge in given:
        ends = cast("tuple[Any, ...]", edge) if isinstance(edge, tuple) else (getattr(edge, "from_", edge), "")
        if isinstance(edge, Edge) and isinstance(edge.from_, str) and isinstance(edge.to, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            edges.append(edge)
        elif isinstance(edge, tuple) and len(ends) == 2 and all(isinstance(end, str) for end in ends):
            edges.append(Edge(*ends))
        else:
            compiler.report(
                str(ends[0] if ends else ""), f"{edge!r:.60} is not an edge; give Edge('a', 'b') or ('a', 'b')"
            )
    return edges


def _edge_program(
    compiler: Compiler[Any], nodes: tuple[Node[Any, Any], ...], given: Sequence[Edge], config: GraphConfig[Any]
) -> Program:
    ids = {node.id for node in nodes}
    edges = [edge for edge in given if _is_known(compiler, edge, ids)]
    if config.start_node not in ids:
        compiler.unknown("", "start_node:", config.start_node, ids)
    if config.max_iterations is not None:
        compiler.check_count("", "max_iterations", config.max_iterations)
    program = Program(compiler.spec, compiler.options.max_concurrency)
    ways = {
        # A node without edges leads to the end.
        node.id: [edge.to for edge in edges if edge.from_ == node.id] + list(node.targets) or [END]
        for node in nodes
    }
    program.back_edges, program.slots = _back_edges(config.start_node, ways)
    program.max_iterations = config.max_iterations if isinstance(config.max_iterations, int) else None
    _lower_edges(compiler, program, nodes, edges)
    program.entry = program.by_id.get(config.start_node, END_PC)
    _check_cycles(compiler, program, ways, config)
    compiler.check_targets(program)
    compiler.check_reads(program)
    compiler.check_reached(program, {node.id for node in nodes if node.recovery})
    return program


def _is_known(compiler: Compiler[Any], edge: Edge, ids: set[str]) -> bool:
    if edge.condition is not None:
        functions = AuthorFunctions()
        functions.require("condition", edge.condition)
        problems = [
            *functions.problems,
            *(f"{name} takes an item, but no map is around an edge" for name in functions.of_item),
        ]
        for problem in problems:
            compiler.report(edge.from_, f"edge to '{edge.to}': {problem}")
    if edge.from_ not in ids:
        compiler.unknown(edge.from_, "edge from", edge.from_, ids)
    if edge.to not in ids and edge.to != END:
        compiler.unknown(edge.from_, "edge to", edge.to, ids)
    return edge.from_ in ids and (edge.to in ids or edge.to == END)


def _lower_edges(
    compiler: Compiler[Any], program: Program, nodes: tuple[Node[Any, Any], ...], edges: list[Edge]
) -> None:
    loops = tuple(range(len(program.slots)))
    leaving = {node.id: [edge for edge in edges if edge.from_ == node.id] for node in nodes}
    routes = {node_id: RouteOp(node_id, END_PC, loops) for node_id, out in leaving.items() if out}
    for route in routes.values():
        program.add(route)
    for node in nodes:
        compiler.lower(program, node, routes[node.id].pc if node.id in routes else END_PC, loops)
    for node_id, route in routes.items():
        for edge in leaving[node_id]:
            target = END_PC if edge.to == END else program.by_id[edge.to]
            if edge.condition is None:
                route.always.append(target)
            else:
                route.conditions.append((edge.condition, target))
    program.meets = _meeting_points(program, edges)
    _shorten(program)


def _check_cycles(
    compiler: Compiler[Any], program: Program, ways: dict[str, list[str]], config: GraphConfig[Any]
) -> None:
    if config.max_iterations is None:
        for source, target in program.back_edges:
            compiler.report(
                target, f"cycle without a bound ('{source}' leads back to '{target}'); give max_iterations="
            )
    for node_id in _without_end(ways):
        compiler.report(node_id, "branch with no way on: the end cannot be reached from here")


def _back_edges(start: str, ways: dict[str, list[str]]) -> tuple[dict[tuple[str, str], int], list[str]]:
    """Return the edges that close a cycle, each with the counter of its cycle."""
    found: dict[tuple[str, str], int] = {}
    slots: list[str] = []
    on_path: set[str] = set()
    done: set[str] = set()
    for first in [start, *ways]:
        stack: list[tuple[str, Iterator[str]]] = []
        if first in ways and first not in done:
            stack.append((first, iter(ways[first])))
            on_path.add(first)
        while stack:
            source, targets = stack[-1]
            target = next(targets, None)
            if target is None:
                stack.pop()
                on_path.discard(source)
                done.add(source)
            elif target in on_path:
                if target not in slots:
                    slots.append(target)
                found[source, target] = slots.index(target)
            elif target in ways and target not in done:
                on_path.add(target)
                stack.append((target, iter(ways[target])))
    return found, slots


def _without_end(ways: dict[str, list[str]]) -> list[str]:
    """Return the nodes from which the end cannot be reached."""
    sources: dict[str, list[str]] = {}
    for source, targets in ways.items():
        for target in targets:
            sources.setdefault(target, []).append(source)
    good = everything_after([str(END)], lambda node_id: sources.get(node_id, ()))
    return [node_id for node_id, targets in ways.items() if node_id not in good and all(t in ways for t in targets)]


def _meeting_points(program: Program, edges: list[Edge]) -> frozenset[int]:
    """Return the nodes where branches may meet.

    These are the nodes with several incoming edges, if any node has several edges that
    are taken at the same time.
    """
    forks = any(isinstance(op, RouteOp) and len(op.always) > 1 for op in program.ops)
    if not forks:
        return frozenset()
    incoming: dict[str, int] = {}
    for edge in edges:
        incoming[edge.to] = incoming.get(edge.to, 0) + 1
    return frozenset(program.by_id[to] for to, count in incoming.items() if count > 1 and to in program.by_id)


def _shorten(program: Program) -> None:
    """Skip the route of a node with one plain edge where no cycle has to be counted."""
    counted = {program.by_id.get(target) for _, target in program.back_edges}
    for op in program.ops:
        if op.next < 0 or not isinstance(op, (StepOp, ForkOp, UntilOp)):
            continue
        route = program.ops[op.next]
        if isinstance(route, RouteOp) and not route.conditions and len(route.always) == 1:
            target = route.always[0]
            if target not in counted:
                op.next = target
