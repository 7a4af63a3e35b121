"""Chain nodes to a graph. Builders never change: each call returns a new one, so a prefix can be shared."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Generic, Self

import msgspec

from atomic.graph import nodes
from atomic.graph.compiled import CompiledGraph
from atomic.graph.control import Duration, RetryLike
from atomic.graph.node import Condition, Merge, Node, NodeLike, OnError, Run, Sequel
from atomic.graph.nodes import Args, OutputMapper, Text
from atomic.graph.state import State, StateT
from atomic.questions import Option, Question

MigrateState = Callable[[dict[str, Any], int], dict[str, Any]]


class GraphOptions(msgspec.Struct, frozen=True):
    """What `compile` may be told about a graph as a whole."""

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


class GraphBuilder(Generic[StateT]):
    """A graph in the making: the first call is its entry, it ends after the last."""

    def __init__(
        self,
        state: type[StateT],
        items: tuple[Node[StateT, Any], ...] = (),
        catcher: Node[StateT, Any] | None = None,
    ) -> None:
        self._state, self._items, self._catcher = state, items, catcher

    @property
    def state(self) -> type[StateT]:
        return self._state

    @property
    def items(self) -> tuple[Node[StateT, Any], ...]:
        return self._items

    @property
    def catcher(self) -> Node[StateT, Any] | None:
        return self._catcher

    def _add(self, *added: Node[StateT, Any]) -> Self:
        return type(self)(self._state, (*self._items, *added), self._catcher)

    def then(self, node: Sequel[StateT]) -> Self:
        """Add a node that was made elsewhere, or a whole builder."""
        block = nodes.block_of(node)
        return type(self)(self._state, (*self._items, *block.nodes), block.catcher or self._catcher)

    def catch(self, node: Node[StateT, Any]) -> Self:
        """Run this node once when another failed for good; the run stays failed unless it answers `goto`."""
        return type(self)(self._state, self._items, node)

    def node(
        self,
        id: str,
        run: Run[StateT, Any],
        *,
        name: str = "",
        description: str = "",
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        model: str | None = None,
        recovery: bool = False,
    ) -> Self:
        """A node with a function of its own."""
        return self._add(
            nodes.node(
                id, run, name=name, description=description, retry=retry, timeout=timeout,
                on_error=on_error, model=model, recovery=recovery,
            )
        )  # fmt: skip

    def tool(
        self,
        id: str,
        run: Callable[..., Any],
        *,
        args: Args[StateT] | None = None,
        output_mapper: OutputMapper[StateT] | None = None,
        name: str = "",
        description: str = "",
        retry: RetryLike | None = None,
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        input_schema: Any = None,
        output_schema: Any = None,
        recovery: bool = False,
    ) -> Self:
        """Call a function."""
        return self._add(
            nodes.tool_node(
                id, run, args=args, output_mapper=output_mapper, name=name, description=description, retry=retry,
                timeout=timeout, on_error=on_error, input_schema=input_schema, output_schema=output_schema,
                recovery=recovery,
            )
        )  # fmt: skip

    def decision(
        self,
        id: str,
        routes: Sequence[tuple[Condition[StateT], str]],
        *,
        fallback: str | None = None,
        name: str = "",
        description: str = "",
    ) -> Self:
        """Go to the target of the first route that holds."""
        return self._add(nodes.decision_node(id, routes, fallback=fallback, name=name, description=description))

    def ask_user(
        self,
        id: str,
        question: Text[StateT] | Question,
        *,
        options: Sequence[Option | str] = (),
        header: str = "",
        multi_select: bool = False,
        default: str | None = None,
        output_mapper: OutputMapper[StateT] | None = None,
        name: str = "",
        description: str = "",
    ) -> Self:
        """Pause for a person's answer."""
        return self._add(
            nodes.ask_user_node(
                id, question, options=options, header=header, multi_select=multi_select, default=default,
                output_mapper=output_mapper, name=name, description=description,
            )
        )  # fmt: skip

    def wait(
        self,
        prompt: Text[StateT],
        *,
        id: str = "",
        input_mapper: OutputMapper[StateT] | None = None,
        auto_approve: bool | Condition[StateT] = False,
        name: str = "",
        description: str = "",
    ) -> Self:
        """Pause until somebody lets the run go on."""
        return self._add(
            nodes.wait_node(
                id, prompt, input_mapper=input_mapper, auto_approve=auto_approve, name=name, description=description
            )
        )

    def parallel(
        self,
        branches: Mapping[str, Sequel[StateT]] | Sequence[NodeLike[StateT]],
        *,
        id: str = "",
        strategy: str = "all",
        merge: Merge[StateT] | None = None,
        max_concurrency: int | None = None,
        name: str = "",
        description: str = "",
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        model: str | None = None,
    ) -> Self:
        """Run branches at once and go on when they have met."""
        return self._add(
            nodes.parallel_node(
                id, branches, strategy=strategy, merge=merge, max_concurrency=max_concurrency, name=name,
                description=description, timeout=timeout, on_error=on_error, model=model,
            )
        )  # fmt: skip

    def map(
        self,
        id: str,
        over: Callable[[StateT], Iterable[Any]],
        node: Sequel[StateT],
        *,
        max_concurrency: int | None = None,
        name: str = "",
        description: str = "",
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        model: str | None = None,
    ) -> Self:
        """Run a node for each item."""
        return self._add(
            nodes.map_node(
                id, over, node, max_concurrency=max_concurrency, name=name, description=description,
                timeout=timeout, on_error=on_error, model=model,
            )
        )  # fmt: skip

    def subgraph(
        self,
        id: str,
        graph: CompiledGraph[Any] | str,
        *,
        input_mapper: Callable[[StateT], Mapping[str, Any]] | None = None,
        output_mapper: Callable[[Any, StateT], Mapping[str, Any] | None] | None = None,
        name: str = "",
        description: str = "",
        timeout: Duration | None = None,
        on_error: OnError[StateT] | None = None,
        model: str | None = None,
    ) -> Self:
        """Run another graph as one node."""
        return self._add(
            nodes.subgraph_node(
                id, graph, input_mapper=input_mapper, output_mapper=output_mapper, name=name, description=description,
                timeout=timeout, on_error=on_error, model=model,
            )
        )  # fmt: skip

    def if_(
        self,
        condition: Condition[StateT],
        then: Sequel[StateT],
        *,
        else_if: Sequence[tuple[Condition[StateT], Sequel[StateT]]] = (),
        else_: Sequel[StateT] | None = None,
        id: str = "",
    ) -> Self:
        """Take the first branch whose condition holds."""
        return self._add(nodes.if_node(id, condition, then, else_if, else_))

    def loop(
        self,
        body: Sequel[StateT],
        *,
        until: Condition[StateT],
        max_iterations: int = 100,
        id: str = "",
    ) -> Self:
        """Repeat nodes; `until` is asked after each iteration, 0 iterations means no bound."""
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
    ) -> CompiledGraph[StateT]:
        """Check the graph and make it runnable.

        `renamed` (old id to new id) and `removed` name what has changed since runs were recorded that are to
        continue with this code: nodes, branches (`"fork:branch"`), or the graph's own name.

        Raises:
            GraphError: with all the problems there are.
        """
        from atomic.graph.compile import compile_chain

        options = GraphOptions(
            name, description, max_steps, max_concurrency, model, timeout, state_version, migrate_state,
            renamed, removed,
        )  # fmt: skip
        return compile_chain(self._state, nodes.Block(self._items, self._catcher), options)


def graph(state: type[StateT] = State) -> GraphBuilder[StateT]:
    """Begin a graph over that state."""
    return GraphBuilder(state)
