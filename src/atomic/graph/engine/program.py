"""A compiled graph as the engine runs it: flat lists of operations.

Operations refer to each other by number. A `Program` is one scope: the graph itself, a
branch of a parallel, the body of a map, a subgraph. Sequences, ifs and loops are flat
inside their scope; only what runs concurrently has its own program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from atomic.base.errors import did_you_mean
from atomic.graph.engine.node import Body, Condition, Node, SubgraphBody
from atomic.graph.engine.state import StateSpec

STEP, FORK, IF, LOOP, UNTIL, ROUTE = range(6)
END_PC = -1
T = TypeVar("T")


class Op(msgspec.Struct, eq=False):
    """One operation.

    `next` is the operation after it, `loops` are the counters around it.
    """

    id: str
    next: int
    loops: tuple[int, ...]
    pc: int = -2
    kind: int = STEP

    def successors(self) -> Sequence[int]:
        return (self.next,)


class StepOp(Op, kw_only=True, eq=False):
    """Runs a node's function."""

    node: Node[Any, Any]
    call: Callable[[Any], Any]
    timeout: float | None
    model: str | None
    guarded: bool  # a failure or a timeout may lead to another attempt


class ForkOp(Op, kw_only=True, eq=False):
    """Enters other scopes: branches, items, tasks or a subgraph."""

    kind: int = FORK
    node: Node[Any, Any]
    body: Body
    limit: int
    timeout: float | None
    model: str | None
    branches: dict[str, Program]

    def copied(self) -> ForkOp:
        """Return a copy with copies of the branches."""
        return msgspec.structs.replace(self, branches={name: branch.copied() for name, branch in self.branches.items()})


class IfOp(Op, kw_only=True, eq=False):
    """Jumps to the first branch whose condition holds."""

    kind: int = IF
    branches: list[tuple[Condition[Any] | None, int]]

    def successors(self) -> Sequence[int]:
        return [pc for _, pc in self.branches]


class LoopOp(Op, kw_only=True, eq=False):
    """Enters a loop and sets its counter to zero."""

    kind: int = LOOP
    slot: int


class UntilOp(Op, kw_only=True, eq=False):
    """Ends an iteration: leaves the loop or repeats it."""

    kind: int = UNTIL
    slot: int
    until: Condition[Any] | None
    max_iterations: int
    again: int = END_PC

    def successors(self) -> Sequence[int]:
        return (self.next, self.again)


class RouteOp(Op, kw_only=True, eq=False):
    """The edges of a node, in order."""

    kind: int = ROUTE
    conditions: list[tuple[Condition[Any], int]] = []
    always: list[int] = []

    def successors(self) -> Sequence[int]:
        return [pc for _, pc in self.conditions] + self.always


class Program:
    """One scope, ready to run."""

    def __init__(self, spec: StateSpec[Any], limit: int) -> None:
        self.spec = spec
        self.limit = limit
        self.ops: list[Op] = []
        self.entry = END_PC
        self.by_id: dict[str, int] = {}
        self.catcher = END_PC
        self.slots: list[str] = []  # the loop that each counter belongs to
        self.back_edges: dict[tuple[str, str], int] = {}  # from node, to node: the counter of that cycle
        self.max_iterations: int | None = None
        self._in_round: dict[tuple[int, int], list[int]] = {}
        self.meets: frozenset[int] = frozenset()  # where branches made by edges may meet
        # Names that changed since older runs, and the ids of all nodes of the graph:
        # see `edits`.
        self.renamed: Mapping[str, str] = {}
        self.removed: frozenset[str] = frozenset()
        self.graph_ids: frozenset[str] = frozenset()

    def copied(self) -> Program:
        """Return a copy, including the scopes inside, for other `renamed` and
        `removed`.
        """
        made = copy(self)
        made.ops = [op.copied() if isinstance(op, ForkOp) else op for op in self.ops]
        return made

    def find(self, recorded_id: str) -> int | None:
        """Return the operation of a recorded node, which may have been renamed since."""
        pc = self.by_id.get(recorded_id)
        return self.by_id.get(self.renamed.get(recorded_id, "")) if pc is None else pc

    def branch_name(self, fork: ForkOp, recorded: str) -> str | None:
        """Return the current name of a recorded branch of a parallel, or None."""
        if recorded in fork.branches:
            return recorded
        whole = self.renamed.get(f"{fork.id}:{recorded}", "")
        name = whole.partition(":")[2] or self.renamed.get(recorded, "")
        return name if name in fork.branches else None

    @cached_property
    def all_ids(self) -> frozenset[str]:
        """Return the ids of all nodes, including branches and items but not subgraphs."""
        below = [program.all_ids for op in self.ops if isinstance(op, ForkOp) for program in op.branches.values()]
        return frozenset(self.by_id).union(*below)

    @cached_property
    def shape(self) -> int:
        """Return a checksum of the graph's nodes and their order. Never 0."""
        import zlib  # only a run with a journal needs it

        return zlib.crc32(repr(self.outline()).encode("utf-8", "surrogatepass")) or 1

    def outline(self) -> list[Any]:
        """Return the operations of this scope and of those inside as data."""
        ops = [(op.kind, op.id, tuple(self.ways_from(op)), _inside(op)) for op in self.ops]
        return [self.entry, self.catcher, ops]

    def add(self, op: Op) -> int:
        op.pc = len(self.ops)
        self.ops.append(op)
        return op.pc

    def reaches_in_round(self, pc: int, but: int = -1) -> list[int]:
        """Return for each operation its successors without a new round around `pc`.

        The results are bit sets. New rounds of the cycle `but` are allowed. In a cycle
        each branch leads to every other, and no branch would ever be known to be the
        last. Therefore back edges of the cycles around `pc` do not count; back edges of
        other cycles do.
        """
        known = self._in_round.get((pc, but))
        if known is None:
            rounds = {self.slots[slot] for slot in self.cycles_around[pc] if slot != but}
            ways = [[to for to in self.ways_from(op) if not self._starts_round(op, to, rounds)] for op in self.ops]
            known = self._in_round[pc, but] = _closure(ways)
        return known

    @cached_property
    def reaches_around(self) -> list[int]:
        """Return for each operation its successors over any edge, as bit sets."""
        return _closure([self.ways_from(op) for op in self.ops])

    @cached_property
    def cycles_around(self) -> list[tuple[int, ...]]:
        """Return for each operation the counters of the cycles of edges around it."""
        bodies = {slot: self._cycle_body(slot) for slot in sorted(set(self.back_edges.values()))}
        return [tuple(slot for slot, body in bodies.items() if pc in body) for pc in range(len(self.ops))]

    def _cycle_body(self, slot: int) -> set[int]:
        """Return the operations between a cycle's first node and its back edges."""
        header = self.by_id[self.slots[slot]]
        sources = {source for (source, _), other in self.back_edges.items() if other == slot}
        before: dict[int, list[int]] = {}
        for op in self.ops:
            for to in self.ways_from(op):
                before.setdefault(to, []).append(op.pc)
        ends = [op.pc for op in self.ops if op.id in sources]
        between = {*ends, *everything_after(ends, lambda pc: () if pc == header else before.get(pc, ()))}
        return {header, *(pc for pc in between if self.reaches_around[header] >> pc & 1)}

    def ways_from(self, op: Op) -> list[int]:
        """Return the operations that may come next, without the end."""
        targets = op.node.targets if isinstance(op, StepOp) else ()
        ways = [*op.successors(), *(self.by_id[target] for target in targets if target in self.by_id)]
        return [pc for pc in ways if pc >= 0]

    def _starts_round(self, op: Op, to: int, headers: set[str]) -> bool:
        if isinstance(op, UntilOp):
            return to == op.again
        return self.back_slot(op.id, to) >= 0 and self.ops[to].id in headers and not isinstance(self.ops[to], RouteOp)

    def back_slot(self, source: str, pc: int) -> int:
        """Return the counter of the cycle that this edge closes, or -1."""
        return self.back_edges.get((source, self.ops[pc].id), -1) if pc >= 0 else -1


def _inside(op: Op) -> Any:
    """Return the content of a fork, for the outline of a graph."""
    if not isinstance(op, ForkOp):
        return None
    if isinstance(op.body, SubgraphBody):
        graph = op.body.graph
        return graph if isinstance(graph, str) else (graph.program.shape, graph.program.spec.reducer_identities())
    return [(name, program.outline()) for name, program in op.branches.items()]


def breakpoint_problem(program: Program, path: str) -> str | None:
    """Return why the run cannot pause before the node at a path, or None."""
    outer, _, inner = path.partition("/")
    op = _find_op(program, outer)
    if op is None:
        return f"there is no node '{path}'{did_you_mean(path, _paths(program))}"
    if inner:
        body = op.body if isinstance(op, ForkOp) else None
        if not isinstance(body, SubgraphBody):
            return f"'{outer}' is not a subgraph, so it has no '{inner}'"
        if isinstance(body.graph, str):
            return None  # checked when the workflow is known
        problem = breakpoint_problem(body.graph.program, inner)
        return None if problem is None else f"in '{outer}': {problem}"
    if isinstance(op, (StepOp, ForkOp)):
        return None
    return f"'{path}' is an if or a loop; name the first node inside it"


def _find_op(program: Program, id: str) -> Op | None:
    """Return the operation of a node, also in branches and items."""
    if id in program.by_id:
        return program.ops[program.by_id[id]]
    inside = (branch for op in program.ops if isinstance(op, ForkOp) for branch in op.branches.values())
    return next((found for branch in inside if (found := _find_op(branch, id)) is not None), None)


def _paths(program: Program) -> Iterator[str]:
    """Yield the ids of all nodes; those of subgraphs as `outer/inner`."""
    yield from program.by_id
    for op in program.ops:
        if isinstance(op, ForkOp):
            for branch in op.branches.values():
                yield from _paths(branch)
            if isinstance(op.body, SubgraphBody) and not isinstance(op.body.graph, str):
                yield from (f"{op.id}/{path}" for path in _paths(op.body.graph.program))


def everything_after(starts: Iterable[T], following: Callable[[T], Iterable[T]]) -> set[T]:
    """Return everything that these lead to; themselves only if something leads to them."""
    found: set[T] = set()
    open_ends = list(starts)
    while open_ends:
        for place in following(open_ends.pop()):
            if place not in found:
                found.add(place)
                open_ends.append(place)
    return found


def _closure(following: list[list[int]]) -> list[int]:
    """Return for each operation everything that can be reached from it, as bit sets."""
    reach = [0] * len(following)
    changed = True
    while changed:
        changed = False
        for pc in reversed(range(len(following))):
            bits = reach[pc]
            for other in following[pc]:
                bits |= reach[other] | 1 << other
            if bits != reach[pc]:
                reach[pc] = bits
                changed = True
    return reach
