"""Node factories that need no agent: tools, decisions, questions and composites."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.author_functions import AuthorFunctions, call, is_async, value_of
from atomic.graph.engine.compiled import CompiledGraph
from atomic.graph.engine.control import Blocked, Duration, Failed, NodeResult, RetryPolicies
from atomic.graph.engine.node import (
    Block,
    Chain,
    Condition,
    DepsT,
    IfBody,
    InputMapper,
    Limit,
    LoopBody,
    MapBody,
    Merge,
    Node,
    NodeContext,
    NodeKind,
    NodeLike,
    OnError,
    OutputMapper,
    Over,
    ParallelBody,
    Run,
    Sequel,
    Strategy,
    SubgraphBody,
)
from atomic.graph.engine.state import StateT
from atomic.graph.engine.threads import call_in_thread
from atomic.questions import Option, Question

Args = Mapping[str, Any] | InputMapper[StateT]
Text = str | Callable[[StateT], str] | Callable[[StateT, Any], str]


def node(
    id: str,
    run: Run[StateT, DepsT],
    *,
    name: str = "",
    description: str = "",
    retry: RetryPolicies | None = None,
    timeout: Duration | None = None,
    on_error: OnError[StateT] | None = None,
    model: str | None = None,
    recovery: bool = False,
    goto: str | Sequence[str] = (),
) -> Node[StateT, DepsT]:
    """Make a node from a function `async (ctx) -> NodeResult | dict | None`.

    `goto` declares the nodes that its results may go to, so that drawings and joins know
    them. Then a result that goes elsewhere fails the node.
    """
    problems = () if is_async(run) else ("run must be an async function; use tool_node for a plain one",)
    targets = (goto,) if isinstance(goto, str) else tuple(goto)
    if not all(isinstance(target, str) for target in targets):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
        problems = (*problems, f"goto takes ids of nodes, not {goto!r:.60}")
        targets = ()
    return Node(
        id=id, kind=NodeKind.PLAIN, run=run, name=name, description=description, retry=retry, timeout=timeout,
        on_error=on_error, model=model, recovery=recovery, targets=targets, problems=problems,
    )  # fmt: skip


def tool_node(
    id: str,
    run: Callable[..., Any],
    *,
    args: Args[StateT] | None = None,
    output_mapper: OutputMapper[StateT] | None = None,
    name: str = "",
    description: str = "",
    retry: RetryPolicies | None = None,
    timeout: Duration | None = None,
    on_error: OnError[StateT] | None = None,
    input_schema: Any = None,
    output_schema: Any = None,
    recovery: bool = False,
) -> Node[StateT, Any]:
    """Make a node that calls a function and keeps its result under the node's id.

    A blocking function runs in a thread. `Failed` and `Blocked` end the run. With `args` it is called as `run(**args)`;
    without, as `run(item)` inside a map, else as `run(state)`, and as `run()` if it
    takes no parameter.
    """
    tool = callable_of(run)
    wants_input = _takes_a_parameter(run)
    functions = AuthorFunctions(*_tool_problems(run, args, input_schema))
    get_args = functions.read("args", args)
    mapper = functions.read("output_mapper", output_mapper, first="result")

    async def run_tool(ctx: NodeContext[StateT, Any]) -> NodeResult | Failed | Blocked:
        if args is not None:
            given = checked(value_of(get_args, ctx.state, ctx.item), input_schema, "args")
            result = await tool(**keywords_of(given))
        elif wants_input:
            result = await tool(ctx.state if ctx.index is None and ctx.item is None else ctx.item)
        else:
            result = await tool()
        return tool_result(ctx, result, output_schema, mapper)

    return Node(
        id=id, kind=NodeKind.TOOL, run=run_tool, name=name, description=description, retry=retry, timeout=timeout,
        on_error=on_error, recovery=recovery, problems=functions.problems, of_item=functions.of_item,
    )  # fmt: skip


def _tool_problems(run: Any, args: Any, input_schema: Any) -> Iterator[str]:
    if not callable(run):
        yield f"run must be a function, not {run!r:.60}"
    if not (args is None or callable(args) or isinstance(args, Mapping)):
        yield f"args must be a mapping or a function of the state, not {args!r:.60}"
    if input_schema is not None and args is None:
        yield f"input_schema {getattr(input_schema, '__name__', input_schema)} checks args; give args="


def tool_result(ctx: NodeContext[Any, Any], result: Any, schema: Any, mapper: Any) -> NodeResult | Failed | Blocked:
    """Return a tool's result as an update, or as the end of the run. Raise AtomicError."""
    if isinstance(result, Failed | Blocked):
        return result
    return mapped(ctx, checked(result, schema, "result"), mapper)


def mapped(ctx: NodeContext[Any, Any], result: Any, mapper: Any) -> NodeResult:
    """Return a result as an update: of the mapper, or under `outputs[output_key]`.

    Raise AtomicError.
    """
    if mapper is None:
        return NodeResult({"outputs": {ctx.output_key: result}})
    return NodeResult(mapping_of(call(mapper, result, ctx.state, item=ctx.item), "output_mapper"))


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


def callable_of(function: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return the function as an async one. A blocking one runs in a thread."""
    if is_async(function):
        return function

    async def run(*args: Any, **kwargs: Any) -> Any:
        result = await call_in_thread(lambda: function(*args, **kwargs))
        return await result if inspect.isawaitable(result) else result

    return run


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

    targets = (*(target for _, target in routes), *(() if fallback is None else (fallback,)))
    functions = AuthorFunctions(*(() if targets else ("a decision needs at least one route or a fallback",)))
    ways = [(functions.require(f"condition {place}", condition), to) for place, (condition, to) in enumerate(routes, 1)]

    async def decide(ctx: NodeContext[StateT, Any]) -> NodeResult:
        for condition, target in ways:
            if call(condition, ctx.state, item=ctx.item):
                return NodeResult(goto=target)
        if fallback is None:
            raise AtomicError(f"no edge from '{ctx.node_id}' matched; give a fallback, or a route that always holds")
        return NodeResult(goto=fallback)

    return Node(
        id=id, kind=NodeKind.DECISION, run=decide, name=name, description=description, targets=targets,
        problems=functions.problems, of_item=functions.of_item,
    )  # fmt: skip


def ask_user_node(
    id: str,
    question: Text[StateT] | Question,
    *,
    options: Sequence[Option | str] = (),
    header: str = "",
    multi_select: bool = False,
    default: str | None = None,
    returns: Any = None,
    output_mapper: OutputMapper[StateT] | None = None,
    name: str = "",
    description: str = "",
) -> Node[StateT, Any]:
    """Make a node that asks the user and keeps the answer under the node's id.

    With `returns` the answer is data of that type, such as a Struct.
    """
    functions = AuthorFunctions()
    get_text = functions.read("question", question)
    mapper = functions.read("output_mapper", output_mapper, first="answer")

    async def ask(ctx: NodeContext[StateT, Any]) -> NodeResult:
        if isinstance(question, Question):
            asked = msgspec.structs.replace(question, id=ctx.node_id)
        else:
            text = value_of(get_text, ctx.state, ctx.item)
            asked = Question(
                text, options=options, header=header, multi_select=multi_select, default=default, id=ctx.node_id,
                returns=returns,
            )  # fmt: skip
        return mapped(ctx, await ctx.ask(asked), mapper)

    return Node(
        id=id, kind=NodeKind.ASK, run=ask, name=name, description=description, problems=functions.problems,
        of_item=functions.of_item,
    )  # fmt: skip


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
    functions = AuthorFunctions()
    get_text = functions.read("prompt", prompt)
    mapper = functions.read("input_mapper", input_mapper, first="answer")
    skip = auto_approve if isinstance(auto_approve, bool) else functions.require("auto_approve", auto_approve)

    async def wait(ctx: NodeContext[StateT, Any]) -> NodeResult | None:
        if value_of(skip, ctx.state, ctx.item):
            return None
        answer = await ctx.ask(Question(value_of(get_text, ctx.state, ctx.item), id=ctx.node_id))
        if mapper is None:
            return mapped(ctx, answer, None)
        return NodeResult(mapping_of(call(mapper, answer, ctx.state, item=ctx.item), "input_mapper"))

    return Node(
        id=id, kind=NodeKind.WAIT, run=wait, name=name, description=description, problems=functions.problems,
        of_item=functions.of_item,
    )  # fmt: skip


def sleep_node(
    id: str,
    *,
    seconds: float | None = None,
    minutes: float | None = None,
    hours: float | None = None,
    days: float | None = None,
    until: datetime | Callable[[StateT], datetime] | Callable[[StateT, Any], datetime] | None = None,
    name: str = "",
    description: str = "",
) -> Node[StateT, Any]:
    """Make a node that sleeps for a duration, or until a time.

    With `deps.park`, or `--park`, a run that only sleeps ends its process meanwhile.
    """
    amounts = {"seconds": seconds, "minutes": minutes, "hours": hours, "days": days}
    functions = AuthorFunctions(*_sleep_problems(amounts, until))
    get_time = functions.read("until", until)

    async def sleep(ctx: NodeContext[StateT, Any]) -> None:
        if until is None:
            await ctx.sleep(seconds=seconds, minutes=minutes, hours=hours, days=days)
        else:
            await ctx.sleep_until(value_of(get_time, ctx.state, ctx.item))

    return Node(
        id=id, kind=NodeKind.WAIT, run=sleep, name=name, description=description, problems=functions.problems,
        of_item=functions.of_item,
    )  # fmt: skip


def _sleep_problems(amounts: Mapping[str, Any], until: Any) -> Iterator[str]:
    from atomic.graph.engine.waits import duration_of, time_of  # few graphs sleep

    try:
        if until is None:
            duration_of(amounts)
        elif any(amount is not None for amount in amounts.values()):
            yield "sleep_node takes a duration or until=, not both"
        elif not callable(until):
            time_of(until)
    except AtomicError as error:
        yield str(error)


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
    strategy: Strategy = "all",
    merge: Merge[StateT] | None = None,
    max_concurrency: Limit[StateT] | None = None,
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
    functions = AuthorFunctions()
    limit = functions.read("max_concurrency", max_concurrency)
    body = ParallelBody(_named_branches(branches), strategy, merge, limit)
    return Node(
        id=id, kind=NodeKind.PARALLEL, body=body, name=name, description=description,
        timeout=timeout, on_error=on_error, model=model, problems=functions.problems, of_item=functions.of_item,
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
    over: Over[StateT],
    node: Sequel[StateT],
    *,
    max_concurrency: Limit[StateT] | None = None,
    name: str = "",
    description: str = "",
    timeout: Duration | None = None,
    on_error: OnError[StateT] | None = None,
    model: str | None = None,
) -> Node[StateT, Any]:
    """Make a node that runs nodes for each item.

    Functions of these nodes may take the item after the state: `lambda state, item: …`.
    `outputs[id]` lists their outputs in item order.
    """
    functions = AuthorFunctions()
    limit = functions.read("max_concurrency", max_concurrency)
    body = MapBody(functions.require("over", over), block_of(node), limit)
    return Node(
        id=id, kind=NodeKind.MAP, body=body, name=name, description=description, timeout=timeout, on_error=on_error,
        model=model, problems=functions.problems, of_item=functions.of_item,
    )  # fmt: skip


def subgraph_node(
    id: str,
    graph: CompiledGraph[Any] | str,
    *,
    input_mapper: InputMapper[StateT] | None = None,
    output_mapper: OutputMapper[StateT] | None = None,
    name: str = "",
    description: str = "",
    timeout: Duration | None = None,
    on_error: OnError[StateT] | None = None,
    model: str | None = None,
) -> Node[StateT, Any]:
    """Make a node that runs a compiled graph, or a workflow by its name.

    `outputs[id]` is its final state.
    """
    functions = AuthorFunctions(*_subgraph_problems(graph))
    to_child = functions.read("input_mapper", input_mapper)
    from_child = functions.read("output_mapper", output_mapper, first="child")
    return Node(
        id=id, kind=NodeKind.SUBGRAPH, body=SubgraphBody(graph, to_child, from_child), name=name,
        description=description, timeout=timeout, on_error=on_error, model=model, problems=functions.problems,
        of_item=functions.of_item,
    )  # fmt: skip


NOT_A_SUBGRAPH = "is a workflow function, and a subgraph is a graph; call it from another function: flow.run(…)"


def _subgraph_problems(graph: Any) -> tuple[str, ...]:
    if isinstance(graph, str) and graph:
        return ()
    if getattr(graph, "function", None) is not None:
        return (f"{getattr(graph, 'name', 'it')} {NOT_A_SUBGRAPH}",)
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
    ways = [(condition, then), *else_if]
    functions = AuthorFunctions()
    branches: list[tuple[Condition[Any] | None, Block]] = [
        (functions.require(f"condition {place}", test), block_of(sequel))
        for place, (test, sequel) in enumerate(ways, 1)
    ]
    branches.append((None, block_of(() if else_ is None else else_)))
    return Node(
        id=id, kind=NodeKind.IF, body=IfBody(tuple(branches)), problems=functions.problems, of_item=functions.of_item
    )


def loop_node(
    id: str, body: Sequel[StateT], *, until: Condition[StateT] | None, max_iterations: int = 100
) -> Node[StateT, Any]:
    """Make a node that repeats nodes until a condition holds after an iteration."""
    functions = AuthorFunctions()
    loop = LoopBody(block_of(body), functions.require("until", until), max_iterations)
    return Node(id=id, kind=NodeKind.LOOP, body=loop, problems=functions.problems, of_item=functions.of_item)
