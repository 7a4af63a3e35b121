"""Chain nodes to a graph.

A builder never changes. Each call returns a new one, so that several graphs can share a
prefix. Its methods forward optional arguments to the node factories in `nodes.py`,
which hold the defaults; a test compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Self, TypedDict, Unpack

import msgspec

from atomic.graph.engine import nodes
from atomic.graph.engine.compiled import CompiledGraph
from atomic.graph.engine.control import Duration, RetryPolicies
from atomic.graph.engine.node import (
    Condition,
    InputMapper,
    Limit,
    Merge,
    Node,
    NodeLike,
    OnError,
    OutputMapper,
    Over,
    Run,
    Sequel,
    Strategy,
)
from atomic.graph.engine.nodes import Args, Text
from atomic.graph.engine.state import State, StateT
from atomic.questions import Option, Question


class Labels(TypedDict, total=False):
    """Texts that every node may have."""

    name: str
    description: str


class ScopeOptions(Labels, Generic[StateT], total=False):
    """Options of a node that runs other nodes."""

    timeout: Duration | None
    on_error: OnError[StateT] | None
    model: str | None


class StepOptions(Labels, Generic[StateT], total=False):
    """Options of a node that calls a function."""

    retry: RetryPolicies | None
    timeout: Duration | None
    on_error: OnError[StateT] | None
    recovery: bool


class NodeOptions(StepOptions[StateT], total=False):
    """Options of a node whose function may use a model."""

    model: str | None


class PlainOptions(NodeOptions[StateT], total=False):
    """Options of a node whose function may go to other nodes."""

    goto: str | Sequence[str]


class ToolOptions(StepOptions[StateT], total=False):
    """Options of a node that calls a tool."""

    args: Args[StateT] | None
    output_mapper: OutputMapper[StateT] | None
    input_schema: Any
    output_schema: Any


class AskUserOptions(Labels, Generic[StateT], total=False):
    """Options of a node that asks the user a question."""

    options: Sequence[Option | str]
    header: str
    multi_select: bool
    default: str | None
    returns: Any
    output_mapper: OutputMapper[StateT] | None


class WaitOptions(Labels, Generic[StateT], total=False):
    """Options of a node that waits for an approval."""

    input_mapper: OutputMapper[StateT] | None
    auto_approve: bool | Condition[StateT]


class SleepOptions(Labels, Generic[StateT], total=False):
    """Options of a node that sleeps: a duration, or a time."""

    seconds: float | None
    minutes: float | None
    hours: float | None
    days: float | None
    until: datetime | Callable[[StateT], datetime] | Callable[[StateT, Any], datetime] | None


class ParallelOptions(ScopeOptions[StateT], total=False):
    """Options of a node that runs branches at the same time."""

    strategy: Strategy
    merge: Merge[StateT] | None
    max_concurrency: Limit[StateT] | None


class MapOptions(ScopeOptions[StateT], total=False):
    """Options of a node that runs nodes for each item."""

    max_concurrency: Limit[StateT] | None


class SubgraphOptions(ScopeOptions[StateT], total=False):
    """Options of a node that runs another graph."""

    input_mapper: InputMapper[StateT] | None
    output_mapper: OutputMapper[StateT] | None


MigrateState = Callable[[dict[str, Any], int], dict[str, Any]]


class GraphOptions(msgspec.Struct, frozen=True):
    """Options of `compile`, which hold for the whole graph."""

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
    result: Callable[[Any], Any] | None = None


class _Lineage:
    """The builders that a builder was made from, and the results of their methods that
    were thrown away.

    It does not hold the builders, whose nodes would be kept once for each call.
    """

    __slots__ = ("before", "is_kept", "thrown_away")

    def __init__(self, before: _Lineage | None) -> None:
        self.before = before
        self.is_kept = True  # someone still has the builder
        self.thrown_away: list[str] = []  # ids of their last nodes


class GraphBuilder(Generic[StateT]):
    """A graph under construction. It starts at the first node and ends after the last.

    Every factory `x_node(…)` is a method `.x(…)` with the same arguments.
    """

    def __init__(
        self,
        state: type[StateT],
        items: tuple[Node[StateT, Any], ...] = (),
        catcher: Node[StateT, Any] | None = None,
    ) -> None:
        self._state = state
        self._items = items
        self._catcher = catcher
        self._lineage = _Lineage(None)
        self._is_used = False

    @property
    def state(self) -> type[StateT]:
        return self._state

    @property
    def items(self) -> tuple[Node[StateT, Any], ...]:
        self._is_used = True
        return self._items

    @property
    def catcher(self) -> Node[StateT, Any] | None:
        return self._catcher

    def _with(self, items: tuple[Node[StateT, Any], ...], catcher: Node[StateT, Any] | None) -> Self:
        self._is_used = True
        made = type(self)(self._state, items, catcher)
        made._lineage.before = self._lineage
        return made

    def __del__(self) -> None:
        """Note that the result of a method was thrown away, for `compile`."""
        self._lineage.is_kept = False
        before = self._lineage.before
        while before is not None and not before.is_kept:  # the calls before it in the same chain
            before = before.before
        if before is not None and not self._is_used:
            last = self._catcher
            if last is None and self._items:
                last = self._items[-1]
            before.thrown_away.append("" if last is None else last.id)

    def _add(self, node: Node[StateT, Any]) -> Self:
        return self._with((*self._items, node), self._catcher)

    def then(self, node: Sequel[StateT]) -> Self:
        """Add a node that a factory made, several of them, or another builder."""
        block = nodes.block_of(node)
        return self._with((*self._items, *block.nodes), block.catcher or self._catcher)

    def catch(self, node: Node[StateT, Any]) -> Self:
        """Run this node once when another node failed and has no retries left.

        The run still fails, unless this node returns a `goto`.
        """
        return self._with(self._items, node)

    def node(self, id: str, run: Run[StateT, Any], **options: Unpack[PlainOptions[StateT]]) -> Self:
        """Add a node that runs an async function."""
        return self._add(nodes.node(id, run, **options))

    def tool(self, id: str, run: Callable[..., Any], **options: Unpack[ToolOptions[StateT]]) -> Self:
        """Add a node that calls a function and keeps its result."""
        return self._add(nodes.tool_node(id, run, **options))

    def decision(
        self,
        id: str,
        routes: Sequence[tuple[Condition[StateT], str]],
        *,
        fallback: str | None = None,
        **options: Unpack[Labels],
    ) -> Self:
        """Add a node that goes to the target of the first route whose condition holds."""
        return self._add(nodes.decision_node(id, routes, fallback=fallback, **options))

    def ask_user(self, id: str, question: Text[StateT] | Question, **options: Unpack[AskUserOptions[StateT]]) -> Self:
        """Add a node that asks the user and keeps the answer."""
        return self._add(nodes.ask_user_node(id, question, **options))

    def wait(self, prompt: Text[StateT], *, id: str = "", **options: Unpack[WaitOptions[StateT]]) -> Self:
        """Add a node that pauses the run until the user approves."""
        return self._add(nodes.wait_node(id, prompt, **options))

    def sleep(self, id: str, **options: Unpack[SleepOptions[StateT]]) -> Self:
        """Add a node that sleeps for a duration, or until a time."""
        return self._add(nodes.sleep_node(id, **options))

    def parallel(
        self,
        branches: Mapping[str, Sequel[StateT]] | Sequence[NodeLike[StateT]],
        *,
        id: str = "",
        **options: Unpack[ParallelOptions[StateT]],
    ) -> Self:
        """Add a node that runs branches at the same time and joins them."""
        return self._add(nodes.parallel_node(id, branches, **options))

    def map(
        self,
        id: str,
        over: Over[StateT],
        node: Sequel[StateT],
        **options: Unpack[MapOptions[StateT]],
    ) -> Self:
        """Add a node that runs another node for each item."""
        return self._add(nodes.map_node(id, over, node, **options))

    def subgraph(self, id: str, graph: CompiledGraph[Any] | str, **options: Unpack[SubgraphOptions[StateT]]) -> Self:
        """Add a node that runs another graph."""
        return self._add(nodes.subgraph_node(id, graph, **options))

    def if_(
        self,
        condition: Condition[StateT],
        then: Sequel[StateT],
        *,
        else_if: Sequence[tuple[Condition[StateT], Sequel[StateT]]] = (),
        else_: Sequel[StateT] | None = None,
        id: str = "",
    ) -> Self:
        """Add branches, of which the first whose condition holds runs."""
        return self._add(nodes.if_node(id, condition, then, else_if, else_))

    def loop(
        self,
        body: Sequel[StateT],
        *,
        until: Condition[StateT],
        max_iterations: int = 100,
        id: str = "",
    ) -> Self:
        """Add nodes that repeat until a condition holds, which is checked after each
        iteration.

        0 iterations means no limit.
        """
        return self._add(nodes.loop_node(id, body, until=until, max_iterations=max_iterations))

    def compile(
        self,
        name: str = "",
        description: str = "",
        *,
        max_steps: int = 1000,
        max_concurrency: int = 4,
        model: str | None = None,
        timeout: Duration | None = None,
        state_version: int = 1,
        migrate_state: MigrateState | None = None,
        renamed: Mapping[str, str] = {},
        removed: Collection[str] = (),
        pause_before: Collection[str] = (),
        result: Callable[[StateT], Any] | None = None,
    ) -> CompiledGraph[StateT]:
        """Check the graph and return it in a form that can run.

        `renamed` (old id to new id) and `removed` name nodes, branches
        (`"fork:branch"`) or the graph itself that changed since older runs were
        recorded, so that these can continue with the new code. `result` makes the result
        of a completed run from its state; without it, that is the last output of a node.
        It may return `Failed` or `Blocked`.

        `pause_before` names nodes before which the run pauses each time, for debugging;
        those of a subgraph as `outer/inner`. A resume continues with the node.

        Raises:
            GraphError: The graph has problems; the error lists all of them.
        """
        from atomic.graph.engine.compile import compile_chain

        options = GraphOptions(
            name=name,
            description=description,
            max_steps=max_steps,
            max_concurrency=max_concurrency,
            model=model,
            timeout=timeout,
            state_version=state_version,
            migrate_state=migrate_state,
            renamed=renamed,
            removed=removed,
            pause_before=pause_before,
            result=result,
        )
        return compile_chain(self._state, nodes.Block(self.items, self._catcher), options, self._thrown_away())

    def _thrown_away(self) -> list[str]:
        """Return the last nodes of all results that were thrown away."""
        found: list[str] = []
        lineage: _Lineage | None = self._lineage
        while lineage is not None:
            found = lineage.thrown_away + found
            lineage = lineage.before
        return found


def graph(state: type[StateT] = State) -> GraphBuilder[StateT]:
    """Start a graph whose nodes share this state."""
    return GraphBuilder(state)
