"""Node factories that need no agent: tools, decisions, questions and composites."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.compiled import CompiledGraph
from atomic.graph.engine.control import Duration, NodeResult, RetryLike
from atomic.graph.engine.node import (
    Block,
    Chain,
    Condition,
    DepsT,
    IfBody,
    LoopBody,
    MapBody,
    Merge,
    Node,
    NodeContext,
    NodeKind,
    NodeLike,
    OnError,
    ParallelBody,
    Run,
    Sequel,
    SubgraphBody,
)
from atomic.graph.engine.state import StateT
from atomic.graph.engine.threads import call_in_thread
from atomic.questions import Option, Question

Args = Mapping[str, Any] | Callable[[StateT], Mapping[str, Any]]
OutputMapper = Callable[[Any, StateT], Mapping[str, Any] | None]
Text = str | Callable[[StateT], str]


def node(
    id: str,
    run: Run[StateT, DepsT],
    *,
    name: str = "",
    description: str = "",
    retry: RetryLike | None = None,
    timeout: Duration | None = None,
    on_error: OnError[StateT] | None = None,
    model: str | None = None,
    recovery: bool = False,
) -> Node[StateT, DepsT]:
    """Make a node from a function `async (ctx) -> NodeResult | dict | None`."""
    problems = () if is_async(run) else ("run must be an async function; use tool_node for a plain one",)
    return Node(
        id=id, kind=NodeKind.PLAIN, run=run, name=name, description=description, retry=retry, timeout=timeout,
        on_error=on_error, model=model, recovery=recovery, problems=problems,
    )  # fmt: skip


def tool_node(
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
) -> Node[StateT, Any]:
    """Make a node that calls a function and keeps its result under the node's id.

    A blocking function runs in a thread. With `args` it is called as `run(**args)`;
    without, as `run(item)` inside a map, else as `run(state)`, and as `run()` if it
    takes no parameter.
    """
    call = callable_of(run)
    wants_input = _takes_a_parameter(run)
    problems = tuple(_tool_problems(run, args, input_schema))

    async def run_tool(ctx: NodeContext[StateT, Any]) -> NodeResult:
        if args is not None:
            given = checked(args(ctx.state) if callable(args) else args, input_schema, "args")
            result = await call(**keywords_of(given))
        elif wants_input:
            result = await call(ctx.state if ctx.index is None and ctx.item is None else ctx.item)
        else:
            result = await call()
        return mapped(ctx.output_key, checked(result, output_schema, "result"), ctx.state, output_mapper)

    return Node(
        id=id, kind=NodeKind.TOOL, run=run_tool, name=name, description=description, retry=retry, timeout=timeout,
        on_error=on_error, recovery=recovery, problems=problems,
    )  # fmt: skip


def _tool_problems(run: Any, args: Any, input_schema: Any) -> Iterator[str]:
    if not callable(run):
        yield f"run must be a function, not {run!r:.60}"
    if not (args is None or callable(args) or isinstance(args, Mapping)):
        yield f"args must be a mapping or a function of the state, not {args!r:.60}"
    if input_schema is not None and args is None:
        yield f"input_schema {getattr(input_schema, '__name__', input_schema)} checks args; give args="


def not_plain_functions(**functions: Any) -> tuple[str, ...]:
    """Return a problem for each value that is not a plain function.

    An async function is a problem, because the coroutine that it returns is always
    true.
    """
    problems = {
        name: "must be a plain function; it is async" if is_async(value) else f"must be a function, not {value!r:.60}"
        for name, value in functions.items()
        if not callable(value) or is_async(value)
    }
    return tuple(f"{name} {problem}" for name, problem in problems.items())


def mapped(node_id: str, result: Any, state: StateT, mapper: OutputMapper[StateT] | None) -> NodeResult:
    """Return a result as an update: of the mapper, or under `outputs[node_id]`.

    Raise AtomicError.
    """
    if mapper is None:
        return NodeResult({"outputs": {node_id: result}})
    return NodeResult(mapping_of(mapper(result, state), "output_mapper"))


def mapping_of(update: Any, what: str) -> Mapping[str, Any] | None:
    """Return the result of an author's function, if it can be an update.

    Raise AtomicError.
    """
    if update is None or isinstance(update, Mapping):
        return cast("Mapping[str, Any] | None", update)
    raise AtomicError(f"{what} returned {update!r:.60}; return a mapping of fields to values, or None")


def checked(value: Any, schema: Any, what: str) -> Any:
    """Return the value as the schema's type.

    Raises AtomicError with the path of what does not fit.
    """
    if schema is None:
        return value
    try:
        return msgspec.convert(msgspec.to_builtins(value), schema)
    except (msgspec.ValidationError, TypeError) as error:
        reason, _, where = str(error).partition(" - at ")
        raise AtomicError(f"{what}{where.strip('`').removeprefix('$')}: {reason}") from error


def keywords_of(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(cast("Mapping[str, Any]", given))
    return {name: getattr(given, name) for name in given.__struct_fields__}


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call of this function must be awaited."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def callable_of(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return the function as an async one. A blocking one runs in a thread."""
    if is_async(function):
        return function

    async def call(*args: Any, **kwargs: Any) -> Any:
        result = await call_in_thread(lambda: function(*args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    return call


def _takes_a_parameter(function: Callable[..., Any]) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some built-in functions have no signature
        return True
    return any(parameter.kind is not parameter.KEYWORD_ONLY for parameter in parameters)


def decision_node(
    id: str,
    routes: Sequence[tuple[Condition[StateT], str]],
    *,
    fallback: str | None = None,
    name: str = "",
    description: str = "",
) -> Node[StateT, Any]:
    """Make a node that goes to the target of the first route whose condition holds."""

    async def decide(ctx: NodeContext[StateT, Any]) -> NodeResult:
        for condition, target in routes:
            if condition(ctx.state):
                return NodeResult(goto=target)
        if fallback is None:
            raise AtomicError(f"no edge from '{ctx.node_id}' matched; give a fallback, or a route that always holds")
        return NodeResult(goto=fallback)

    targets = (*(target for _, target in routes), *(() if fallback is None else (fallback,)))
    problems = () if targets else ("a decision needs at least one route or a fallback",)
    conditions = {f"condition {place}": condition for place, (condition, _) in enumerate(routes, 1)}
    problems = (*problems, *not_plain_functions(**conditions))
    return Node(
        id=id,
        kind=NodeKind.DECISION,
        run=decide,
        name=name,
        description=description,
        targets=targets,
        problems=problems,
    )


def ask_user_node(
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
) -> Node[StateT, Any]:
    """Make a node that asks the user and keeps the answer under the node's id."""

    async def ask(ctx: NodeContext[StateT, Any]) -> NodeResult:
        if isinstance(question, Question):
            asked = msgspec.structs.replace(question, id=ctx.node_id)
        else:
            text = question(ctx.state) if callable(question) else question
            asked = Question(
                text, options=options, header=header, multi_select=multi_select, default=default, id=ctx.node_id
            )
        return mapped(ctx.output_key, await ctx.ask(asked), ctx.state, output_mapper)

    return Node(id=id, kind=NodeKind.ASK, run=ask, name=name, description=description)


def wait_node(
    id: str,
    prompt: Text[StateT],
    *,
    input_mapper: OutputMapper[StateT] | None = None,
    auto_approve: bool | Condition[StateT] = False,
    name: str = "",
    description: str = "",
) -> Node[StateT, Any]:
    """Make a node that pauses until the user approves.

    `auto_approve` skips the pause.
    """

    async def wait(ctx: NodeContext[StateT, Any]) -> NodeResult | None:
        if auto_approve(ctx.state) if callable(auto_approve) else auto_approve:
            return None
        text = prompt(ctx.state) if callable(prompt) else prompt
        answer = await ctx.ask(Question(text, id=ctx.node_id))
        if input_mapper is not None:
            return NodeResult(mapping_of(input_mapper(answer, ctx.state), "input_mapper"))
        return mapped(ctx.output_key, answer, ctx.state, None)

    problems = () if isinstance(auto_approve, bool) else not_plain_functions(auto_approve=auto_approve)
    return Node(id=id, kind=NodeKind.WAIT, run=wait, name=name, description=description, problems=problems)


def block_of(sequel: Sequel[StateT]) -> Block:
    """Return nodes and builders, one or several, as one block."""
    parts: Sequence[Any] = sequel if isinstance(sequel, (list, tuple)) else [sequel]
    nodes: list[Node[Any, Any]] = []
    catcher: Node[Any, Any] | None = None
    for part in parts:
        if isinstance(part, Node):
            nodes.append(cast("Node[Any, Any]", part))
        elif hasattr(part, "items") and hasattr(part, "catcher"):
            chain = cast("Chain[Any]", part)
            nodes.extend(chain.items)
            catcher = chain.catcher or catcher
        else:
            # A placeholder, so that compiling reports the value with all other problems.
            what = f"{part!r:.60} is neither a node nor a builder"
            nodes.append(Node(id="", kind=NodeKind.PLAIN, problems=(what,)))
    return Block(tuple(nodes), catcher)


def parallel_node(
    id: str,
    branches: Mapping[str, Sequel[StateT]] | Sequence[NodeLike[StateT]],
    *,
    strategy: str = "all",
    merge: Merge[StateT] | None = None,
    max_concurrency: int | None = None,
    name: str = "",
    description: str = "",
    timeout: Duration | None = None,
    on_error: OnError[StateT] | None = None,
    model: str | None = None,
) -> Node[StateT, Any]:
    """Make a node that runs branches at the same time.

    Strategy `all` waits for every branch, `race` for the first to end, `any` for the
    first success.
    """
    body = ParallelBody(_named_branches(branches), strategy, merge, max_concurrency)
    return Node(
        id=id, kind=NodeKind.PARALLEL, body=body, name=name, description=description,
        timeout=timeout, on_error=on_error, model=model,
    )  # fmt: skip


def _named_branches(branches: Any) -> tuple[tuple[str, Block], ...]:
    if isinstance(branches, Mapping):
        named = cast("Mapping[str, Any]", branches)
        return tuple((name, block_of(branch)) for name, branch in named.items())
    blocks = [block_of(branch) for branch in branches]
    names = [block.nodes[0].id if block.nodes else "" for block in blocks]
    return tuple((name or str(place), block) for place, (name, block) in enumerate(zip(names, blocks, strict=True), 1))


def map_node(
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
) -> Node[StateT, Any]:
    """Make a node that runs nodes for each item.

    `outputs[id]` lists their outputs in item order.
    """
    return Node(
        id=id, kind=NodeKind.MAP, body=MapBody(over, block_of(node), max_concurrency), name=name,
        description=description, timeout=timeout, on_error=on_error, model=model,
        problems=not_plain_functions(over=over),
    )  # fmt: skip


def subgraph_node(
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
) -> Node[StateT, Any]:
    """Make a node that runs a compiled graph, or a workflow by its name.

    `outputs[id]` is its final state.
    """
    return Node(
        id=id, kind=NodeKind.SUBGRAPH, body=SubgraphBody(graph, input_mapper, output_mapper), name=name,
        description=description, timeout=timeout, on_error=on_error, model=model, problems=_subgraph_problems(graph),
    )  # fmt: skip


def _subgraph_problems(graph: Any) -> tuple[str, ...]:
    if isinstance(graph, str) and graph:
        return ()
    if hasattr(graph, "program"):
        return ()
    if hasattr(graph, "compile"):
        return ("the graph is not compiled yet; give graph(…).compile()",)
    return (f"a subgraph is a compiled graph or the name of a workflow, not {graph!r:.60}",)


def if_node(
    id: str,
    condition: Condition[StateT],
    then: Sequel[StateT],
    else_if: Sequence[tuple[Condition[StateT], Sequel[StateT]]] = (),
    else_: Sequel[StateT] | None = None,
) -> Node[StateT, Any]:
    """Make a node that runs the first branch whose condition holds, if any."""
    branches: list[tuple[Condition[Any] | None, Block]] = [(condition, block_of(then))]
    branches += [(other, block_of(sequel)) for other, sequel in else_if]
    branches.append((None, block_of(() if else_ is None else else_)))
    conditions = {f"condition {place}": branch[0] for place, branch in enumerate(branches[:-1], 1)}
    return Node(id=id, kind=NodeKind.IF, body=IfBody(tuple(branches)), problems=not_plain_functions(**conditions))


def loop_node(
    id: str, body: Sequel[StateT], *, until: Condition[StateT] | None, max_iterations: int = 100
) -> Node[StateT, Any]:
    """Make a node that repeats nodes until a condition holds after an iteration."""
    problems = not_plain_functions(until=until)
    return Node(id=id, kind=NodeKind.LOOP, body=LoopBody(block_of(body), until, max_iterations), problems=problems)
