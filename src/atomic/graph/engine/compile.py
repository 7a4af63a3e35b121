"""Compile a builder's chain of nodes to a checked program.

Report all problems together. `compile_edges` does the same for nodes and edges given
as data.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, cast

import msgspec

from atomic.base.errors import did_you_mean
from atomic.graph.engine.author_functions import OfItem
from atomic.graph.engine.builder import GraphOptions
from atomic.graph.engine.code_changes import Edits
from atomic.graph.engine.compiled import CompiledGraph
from atomic.graph.engine.control import END, Retry, seconds_of
from atomic.graph.engine.errors import GraphError, Problem, StateError, conflict_text
from atomic.graph.engine.node import (
    Block,
    IfBody,
    LoopBody,
    MapBody,
    Node,
    NodeKind,
    ParallelBody,
    TasksBody,
    blocks_in,
)
from atomic.graph.engine.program import (
    END_PC,
    ForkOp,
    IfOp,
    LoopOp,
    Program,
    StepOp,
    UntilOp,
    breakpoint_problem,
    everything_after,
)
from atomic.graph.engine.state import RESERVED, StateSpec, StateT

if TYPE_CHECKING:
    from atomic.graph.engine.compile_edges import Edge

STRATEGIES = ("all", "race", "any")
_RESERVED_IN_IDS = frozenset("/[]#|:")


def compile_chain(
    state: type[StateT], block: Block, options: GraphOptions, thrown_away: Iterable[str] = ()
) -> CompiledGraph[StateT]:
    """Check a builder's chain and compile it. Raise GraphError with all problems.

    `thrown_away` are the ids of nodes that calls added whose results are lost.
    """
    compiler = Compiler(state, options)
    block = compiler.number(block)
    if not block.nodes:
        compiler.report("", "the graph has no nodes; add at least one")
    for node_id in thrown_away:
        compiler.report(
            node_id,
            "the builder that the call returned was thrown away; a builder never changes, so keep what each call"
            " returns: builder = builder.node(…)",
        )
    return compiler.finish(compiler.chain_program(block), block)


def with_options(graph: CompiledGraph[StateT], options: GraphOptions) -> CompiledGraph[StateT]:
    """Return the same graph with other options for its name and older runs.

    Raise GraphError.
    """
    compiler = Compiler(graph.state_type, options)
    compiler.seen = set(graph.program.graph_ids)
    program = graph.program.copied()  # other workflows may share the graph
    return compiler.finish(program, graph.block, edges=graph.edges, start=graph.start_node)


class Compiler(Generic[StateT]):
    """One compilation.

    It collects problems and continues, to report all of them at once.
    """

    def __init__(self, state: type[StateT], options: GraphOptions) -> None:
        self.state = state
        self.options = options
        self.problems: list[Problem] = []
        self.spec = self._read_state(state)
        self._numbers: dict[str, int] = {}
        self.seen: set[str] = set()
        self._items = 0  # maps and task loops around the node that is being numbered
        self._check_options(options)

    def _read_state(self, state: type[StateT]) -> StateSpec[Any]:
        from atomic.graph.engine.state import State

        try:
            if not (isinstance(state, type) and issubclass(state, State)):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
                raise StateError("state", f"{state!r} is not a State; write `class MyState(State): …`")
            return StateSpec(state)
        except StateError as error:
            self.report("", str(error))
            return StateSpec(State)

    def _check_options(self, options: GraphOptions) -> None:
        self.check_count("", "max_steps", options.max_steps)
        self.check_count("", "max_concurrency", options.max_concurrency)
        self._timeout = self._seconds("", options.timeout)
        version = cast("Any", options.state_version)
        if not isinstance(version, int) or version < 1:
            self.report("", f"state_version is {version!r}; give a whole number, versions begin with 1")

    def check_count(self, node_id: str, what: str, value: Any) -> bool:
        good = isinstance(value, int) and not isinstance(value, bool) and value >= 0
        if not good:
            self.report(node_id, f"{what} is {value!r:.60}; give a whole number, or 0 for no limit")
        return good

    def _seconds(self, node_id: str, given: Any) -> float | None:
        try:
            return None if given is None else seconds_of(given)
        except ValueError as error:
            self.report(node_id, f"timeout {error}")
            return None

    def _policy(self, node_id: str, given: Any) -> Retry | tuple[Retry, ...] | None:
        if isinstance(given, (tuple, list)):
            policies = tuple(cast("Sequence[Any]", given))
            if not policies or not all(isinstance(one, Retry) for one in policies):
                self.report(node_id, f"retry is {given!r:.60}; several policies are a tuple of Retry(…)")
                return None
            for one in policies[:-1]:
                if one.retry_on is None:
                    self.report(
                        node_id, "retry: a policy without retry_on fits every failure, so it must be the last one"
                    )
            for one in policies:
                if problem := one.problem():
                    self.report(node_id, problem)
            return policies
        if given is None or isinstance(given, Retry):
            policy = given
        elif isinstance(given, int) and not isinstance(given, bool):
            policy = Retry(attempts=given)
        else:
            self.report(node_id, f"retry is {given!r:.60}; give Retry(…), or how often to try: retry=3")
            return None
        if policy is not None and (problem := policy.problem()):
            self.report(node_id, problem)
        return policy

    def report(self, node_id: str, message: str) -> None:
        self.problems.append(Problem(node_id, message))

    def finish(
        self, program: Program, block: Block, *, edges: Sequence[Edge] = (), start: str | None = None
    ) -> CompiledGraph[StateT]:
        self._check_breakpoints(program)
        edits = Edits.of(self.options, self.report)
        edits.check(program, self.seen, self.options.name, self.report)
        if self.problems:
            raise GraphError(self.options.name, self.problems)
        edits.apply(program, frozenset(self.seen))
        return CompiledGraph(program, self.options, block, tuple(edges), start)

    def _check_breakpoints(self, program: Program) -> None:
        given = cast("Any", self.options.pause_before)
        if isinstance(given, str) or not all(isinstance(path, str) for path in given):
            self.report("", f'pause_before is {given!r:.60}; give a list of ids: pause_before=["deploy"]')
            return
        for path in given:
            if (problem := breakpoint_problem(program, path)) is not None:
                self.report("", f"pause_before: {problem}")

    def number(self, block: Block) -> Block:
        """Return the block with a checked id on every node, numbered in reading order."""
        nodes = tuple(self._number_node(node) for node in block.nodes)
        catcher = self._number_node(block.catcher) if block.catcher else None
        return Block(nodes, catcher)

    def _number_node(self, node: Node[Any, Any]) -> Node[Any, Any]:
        node_id = self._take_id(node)
        for problem in node.problems:
            self.report(node_id, problem)
        for name in node.of_item if not self._items else ():
            self.report(
                node_id, f"{name} takes an item, but the node is not inside a map or task loop: take (state) only"
            )
        bad = sorted({char for char in node_id if char in _RESERVED_IN_IDS or not char.isprintable()})
        if bad or node_id == END:
            self.report(node_id, f"an id cannot contain {' '.join(map(repr, bad)) or 'END'}")
        body = self._number_body(node, node_id)
        if node.retry is None and node.timeout is None:
            return msgspec.structs.replace(node, id=node_id, body=body)
        retry = self._policy(node_id, node.retry)
        timeout = self._seconds(node_id, node.timeout)
        return msgspec.structs.replace(node, id=node_id, body=body, retry=retry, timeout=timeout)

    def _take_id(self, node: Node[Any, Any]) -> str:
        if node.id and isinstance(node.id, str):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
            node_id = node.id
        elif node.id != "":
            node_id = str(node.id)
            self.report(node_id, f"an id must be text, not {node.id!r:.60}; write '{node_id:.60}' in quotes")
        else:
            kind = str(node.kind)
            node_id = ""
            while not node_id or node_id in self.seen:
                self._numbers[kind] = self._numbers.get(kind, 0) + 1
                node_id = f"{kind}-{self._numbers[kind]}"
        if node_id in self.seen:
            self.report(node_id, "duplicate id: two nodes have this name")
        self.seen.add(node_id)
        return node_id

    def _number_body(self, node: Node[Any, Any], node_id: str) -> Any:
        match node.body:
            case IfBody(branches):
                return IfBody(tuple((condition, self._inline(branch, node_id)) for condition, branch in branches))
            case LoopBody(block, until, bound, enter_at):
                if not block.nodes:
                    self.report(node_id, "the loop has no nodes")
                if self.check_count(node_id, "max_iterations", bound) and bound == 0 and until is None:
                    self.report(node_id, "cycle without a bound: give until= or max_iterations=")
                return LoopBody(self._inline(block, node_id), until, bound, enter_at)
            case ParallelBody(branches, strategy, merge, limit):
                self._check_parallel(node_id, node.body)
                body = ParallelBody(tuple((name, self.number(b)) for name, b in branches), strategy, merge, limit)
                self._check_writes(node, node_id, body)
                return body
            case MapBody(over, block, limit):
                self._check_scope(node_id, block, limit)
                return MapBody(over, self._number_for_items(block), limit)
            case TasksBody(dispatcher, block, until, limit):
                self._check_scope(node_id, block, limit)
                return TasksBody(dispatcher, self._number_for_items(block), until, limit)
            case body:
                return body

    def _number_for_items(self, block: Block) -> Block:
        self._items += 1
        numbered = self.number(block)
        self._items -= 1
        return numbered

    def _inline(self, block: Block, node_id: str) -> Block:
        if block.catcher:
            self.report(node_id, "catch belongs to the whole graph or to a branch, not into an if or a loop")
        return self.number(block)

    def _check_scope(self, node_id: str, block: Block, limit: Any) -> None:
        if not block.nodes:
            self.report(node_id, "it has no node to run")
        self._check_limit(node_id, limit)

    def _check_limit(self, node_id: str, limit: Any) -> None:
        if limit is not None and not callable(limit) and not isinstance(limit, OfItem):
            self.check_count(node_id, "max_concurrency", limit)

    def _check_parallel(self, node_id: str, body: ParallelBody) -> None:
        if not body.branches:
            self.report(node_id, "a parallel needs at least one branch")
        if body.strategy not in STRATEGIES:
            hint = did_you_mean(str(body.strategy), STRATEGIES)
            self.report(node_id, f'unknown strategy "{body.strategy}"{hint}; there are {", ".join(STRATEGIES)}')
        if body.merge is not None and not callable(body.merge):
            self.report(node_id, f"merge must be a function (branches, state) -> update, not {body.merge!r:.60}")
        names = [name for name, _ in body.branches]
        for name in sorted({name for name in names if names.count(name) > 1}):
            self.report(node_id, f"two branches are called '{name}'; name them with a mapping")
        for name, block in body.branches:
            if not block.nodes:
                self.report(node_id, f"branch '{name}' has no way on: it has no nodes")
        self._check_limit(node_id, body.max_concurrency)

    def _check_writes(self, node: Node[Any, Any], node_id: str, body: ParallelBody) -> None:
        """Report fields that two branches certainly write, so that they cannot join.

        Other conflicts are found at the join. A parallel with an `on_error` is not
        checked, because its run may still succeed.
        """
        if body.strategy != "all" or body.merge is not None or node.on_error is not None:
            return
        writers: dict[str, tuple[str, str]] = {}
        conflicts: dict[str, tuple[str, str]] = {}
        for branch, block in body.branches:
            for writer, fields in _first_writes(block):
                for field in sorted(fields & self.spec.replaced - RESERVED):
                    first_branch, first = writers.setdefault(field, (branch, writer))
                    if first_branch != branch:
                        conflicts.setdefault(field, (first, writer))
        for field, (first, second) in conflicts.items():
            self.report(node_id, conflict_text(field, first, second))

    def chain_program(self, block: Block) -> Program:
        program = Program(self.spec, self.options.max_concurrency)
        program.entry = self._lower_block(program, block.nodes, END_PC, ())
        if block.nodes and program.entry == END_PC:
            self.report(block.nodes[0].id, "cannot be reached: only a Goto leads to a node with recovery=True")
        if block.catcher:
            program.catcher = self.lower(program, block.catcher, END_PC, ())
        self.check_targets(program)
        self.check_reads(program)
        self.check_reached(program, {node.id for node in _inside(block.nodes) if node.recovery})
        return program

    def _lower_block(
        self, program: Program, nodes: Sequence[Node[Any, Any]], following: int, loops: tuple[int, ...]
    ) -> int:
        for node in reversed(nodes):  # backwards, because each node needs the number of the next one
            pc = self.lower(program, node, following, loops)
            if not node.recovery:  # only a Goto leads to a recovery node
                following = pc
        return following

    def lower(self, program: Program, node: Node[Any, Any], following: int, loops: tuple[int, ...]) -> int:
        match node.body:
            case IfBody(branches):
                ways = [(condition, self._lower_block(program, b.nodes, following, loops)) for condition, b in branches]
                pc = program.add(IfOp(node.id, END_PC, loops, branches=ways))
            case LoopBody():
                pc = self._lower_loop(program, node.id, node.body, following, loops)
            case None:
                waits = node.kind in (NodeKind.ASK, NodeKind.WAIT)
                timeout = cast("float | None", node.timeout)  # `number` converted it to seconds
                if timeout is None and not waits:
                    timeout = self._timeout
                guarded = bool(node.retry or timeout or node.on_error)
                op = StepOp(
                    node.id, following, loops, node=node, call=cast("Any", node.run), timeout=timeout,
                    model=_own_model(node), guarded=guarded,
                )  # fmt: skip
                pc = program.add(op)
            case _:
                pc = program.add(self._fork(node, following, loops))
        program.by_id[node.id] = pc
        return pc

    def _lower_loop(
        self, program: Program, node_id: str, body: LoopBody, following: int, loops: tuple[int, ...]
    ) -> int:
        slot = len(program.slots)
        program.slots.append(node_id)
        inner = (*loops, slot)
        until = UntilOp(node_id, following, inner, slot=slot, until=body.until, max_iterations=body.max_iterations)
        program.add(until)
        nodes = body.block.nodes
        first = self._lower_block(program, nodes[body.enter_at :], until.pc, inner)
        until.again = self._lower_block(program, nodes[: body.enter_at], first, inner)
        return program.add(LoopOp(node_id, first, loops, slot=slot))

    def _fork(self, node: Node[Any, Any], following: int, loops: tuple[int, ...]) -> ForkOp:
        limit = self.options.max_concurrency
        branches: dict[str, Program] = {}
        match node.body:
            case ParallelBody(named, _, _, own_limit):
                branches = {name: self.chain_program(block) for name, block in named}
                limit = own_limit if isinstance(own_limit, int) else limit
            case MapBody(_, block, own_limit) | TasksBody(_, block, _, own_limit):
                branches = {"": self.chain_program(block)}
                limit = own_limit if isinstance(own_limit, int) else limit
            case _:
                pass
        return ForkOp(
            node.id, following, loops, node=node, body=cast("Any", node.body), limit=limit,
            timeout=cast("float | None", node.timeout), model=_own_model(node), branches=branches,
        )  # fmt: skip

    def unknown(self, node_id: str, what: str, name: str, known: Iterable[str]) -> None:
        self.report(node_id, f"{what} unknown node '{name}'{did_you_mean(str(name), known)}")

    def check_targets(self, program: Program) -> None:
        for op in program.ops:
            for target in op.node.targets if isinstance(op, StepOp) else ():
                if target not in program.by_id and target != END:
                    if target in self.seen:
                        self.report(
                            op.id, f"'{target}' is not in the same branch; a route cannot leave a parallel or map"
                        )
                    else:
                        self.unknown(op.id, "route to", target, program.by_id)

    def check_reads(self, program: Program) -> None:
        for op in program.ops:
            for name in op.node.reads if isinstance(op, StepOp) else ():
                if name not in self.seen:
                    self.unknown(op.id, "reads the output of the", name, self.seen)

    def check_reached(self, program: Program, recovery: set[str]) -> None:
        """Report the nodes that cannot be reached."""
        entries = [pc for pc in (program.entry, program.catcher) if pc >= 0]
        entries += [program.by_id[node_id] for node_id in recovery if node_id in program.by_id]

        def following(pc: int) -> list[int]:
            op = program.ops[pc]
            if isinstance(op, StepOp) and op.node.kind is NodeKind.DECISION:  # it never falls through to the next node
                return [program.by_id[target] for target in op.node.targets if target in program.by_id]
            return program.ways_from(op)

        reached = {*entries, *everything_after(entries, following)}
        for node_id, pc in program.by_id.items():
            if pc not in reached:
                self.report(node_id, "cannot be reached")


def _own_model(node: Node[Any, Any]) -> str | None:
    return None if node.model == "inherit" else node.model


def _first_writes(block: Block) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield a branch's first nodes with their fields, up to one that may write nothing
    or jump.
    """
    for node in block.nodes:
        may_skip = node.on_error is not None or node.recovery or block.catcher is not None
        if may_skip or not isinstance(node.run, FunctionType):
            return
        fields = _literal_fields(node.run)
        if not fields:
            return
        yield node.id, fields


@lru_cache(maxsize=256)
def _literal_fields(function: FunctionType) -> frozenset[str]:
    """Return the fields of a function whose only `return` is a literal `{"field": …}`
    at its end.
    """
    if hasattr(function, "__wrapped__"):
        return frozenset()
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    except (OSError, SyntaxError):
        return frozenset()
    if not isinstance(tree, ast.AsyncFunctionDef) or tree.name != function.__name__:
        return frozenset()
    exits = [part for part in ast.walk(tree) if isinstance(part, (ast.Return, ast.Yield))]
    last = tree.body[-1]
    if exits != [last] or not isinstance(last, ast.Return) or not isinstance(last.value, ast.Dict):
        return frozenset()
    keys = [key.value for key in last.value.keys if isinstance(key, ast.Constant)]
    return frozenset(key for key in keys if isinstance(key, str))


def _inside(nodes: Iterable[Node[Any, Any]]) -> Iterator[Node[Any, Any]]:
    """Yield the nodes of one scope: also in ifs and loops, not in branches and maps."""
    for node in nodes:
        yield node
        if isinstance(node.body, (IfBody, LoopBody)):
            for block in blocks_in(node):
                yield from _inside(block.nodes)
