"""Node factories that need an agent or an entity.

Names are resolved when the node runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

import msgspec

from atomic.base.lazy_types import deferred
from atomic.graph import Node, NodeContext, NodeKind, NodeResult, Signal, SignalKind
from atomic.graph.engine.author_functions import AuthorFunctions, call, value_of
from atomic.graph.engine.builder import Labels, NodeOptions, StepOptions
from atomic.graph.engine.control import Blocked, Failed
from atomic.graph.engine.node import OutputMapper
from atomic.graph.engine.nodes import (
    Args,
    Text,
    callable_of,
    checked,
    keywords_of,
    mapped,
    tool_result,
)
from atomic.graph.engine.state import StateT
from atomic.workflows.agent_turns import (
    add_usage,
    read_answer,
    run_entity,
    run_subagent,
    run_turn,
    runtime_of,
    with_schema,
)
from atomic.workflows.runtime import IsolatedResult, SubagentRequest, SubagentResult, WorkflowRuntime, message_of

if TYPE_CHECKING:
    from atomic.workspaces import Work
else:
    Work = deferred("atomic.workspaces", "Work")

Context = NodeContext[StateT, WorkflowRuntime]
MergeResults = (
    Callable[[Sequence[SubagentResult], StateT], Mapping[str, Any] | None]
    | Callable[[Sequence[SubagentResult], StateT, Any], Mapping[str, Any] | None]
)
ContextAction = Literal["summarize", "recreate", "warn"]
Isolate = bool | Callable[[StateT], Any] | Callable[[StateT, Any], Any]
Requests = (
    Sequence[SubagentRequest]
    | Callable[[StateT], Sequence[SubagentRequest]]
    | Callable[[StateT, Any], Sequence[SubagentRequest]]
)
_ANSWER = "answer"


def agent_node(
    id: str = "",
    prompt: Text[StateT] = "",
    *,
    agent: str | None = None,
    provider: str | None = None,
    session: str | None = None,
    tools: Sequence[str] | None = None,
    output_mapper: OutputMapper[StateT] | None = None,
    output_schema: Any = None,
    isolate: bool = False,
    **options: Unpack[NodeOptions[StateT]],
) -> Node[StateT, WorkflowRuntime]:
    """Make a node that runs one turn in a new session, or in the session of that name.

    With `agent` it uses that sub-agent's prompt, model and tools; the run's model, if
    it has one, comes first. With `output_schema` the prompt asks for JSON of that type,
    and the output is the value. With `isolate` the turn runs in a workspace of its own,
    and the output is an `IsolatedResult`, for `merge_node`.
    """
    functions = AuthorFunctions()
    get_text = functions.read("prompt", prompt)
    mapper = functions.read("output_mapper", output_mapper, first="answer")

    async def run(ctx: Context[StateT]) -> NodeResult:
        text = value_of(get_text, ctx.state, ctx.item)
        turn = partial(run_turn, ctx, agent=agent, provider=provider, session=session, tools=tools)
        if isolate:
            return mapped(ctx, await _isolated_turn(ctx, text, output_schema, turn), mapper)
        return mapped(ctx, await turn(text, output_schema), mapper)

    problems = functions.problems if prompt != "" else ("an agent needs a prompt", *functions.problems)
    if isolate and session is not None:
        problems = (*problems, f'isolate: the session "{session}" outlives a workspace; leave session= out')
    node_id = id or (f"agent-{agent}" if agent else "")
    if not node_id:
        problems = (*problems, "give an id, or agent= with the agent's name")
    return Node(
        id=node_id, kind=NodeKind.AGENT, run=run, problems=problems, of_item=functions.of_item, isolated=isolate,
        **options,
    )  # fmt: skip


async def _isolated_turn(
    ctx: Context[StateT], prompt: str, schema: Any, turn: Callable[..., Awaitable[str]]
) -> IsolatedResult:
    """Run one turn in a workspace of the step.

    The answer is remembered before the workspace ends, so that a kill in between does
    not repeat the turn.
    """
    async with runtime_of(ctx).workspace(message=message_of(ctx.node_id, prompt)) as place:
        text: str | None = ctx.remembered(_ANSWER)
        if text is None:
            text = await turn(prompt if schema is None else with_schema(prompt, schema), workspace=place)
            await ctx.remember(_ANSWER, text)
    return IsolatedResult(text, place.work, None if schema is None else read_answer(text, schema))


def subagent_node(
    id: str,
    *,
    agent: str,
    task: Text[StateT],
    system_prompt: Text[StateT] | None = None,
    tools: Sequence[str] | None = None,
    output_mapper: OutputMapper[StateT] | None = None,
    output_schema: Any = None,
    isolate: Isolate[StateT] = False,
    **options: Unpack[NodeOptions[StateT]],
) -> Node[StateT, WorkflowRuntime]:
    """Make a node that runs a sub-agent. A result without success fails the node.

    With `isolate` it works in a workspace of its own, and the output is an
    `IsolatedResult`, for `merge_node`. A function of the state returns the `Work` to
    continue, such as one that `merge_node` could not merge. The workspace then begins
    with its commits, and has the tip of the run's branch as the branch `atomic-tip`.
    """
    functions = AuthorFunctions(*_isolate_problems(isolate))
    get_task = functions.read("task", task)
    get_system_prompt = functions.read("system_prompt", system_prompt)
    get_isolate = functions.read("isolate", isolate)
    mapper = functions.read("output_mapper", output_mapper, first="answer")

    async def run(ctx: Context[StateT]) -> NodeResult:
        isolated = value_of(get_isolate, ctx.state, ctx.item)
        request = SubagentRequest(
            agent, value_of(get_task, ctx.state, ctx.item), id=ctx.step_id, model=ctx.model, tools=tools,
            schema=output_schema, system_prompt=value_of(get_system_prompt, ctx.state, ctx.item),
            isolate=_work_of(isolated) if callable(isolate) else isolated,
        )  # fmt: skip
        return mapped(ctx, await run_subagent(ctx, request), mapper)

    return Node(
        id=id, kind=NodeKind.AGENT, run=run, problems=functions.problems, of_item=functions.of_item,
        isolated=bool(isolate), **options,
    )  # fmt: skip


def _isolate_problems(isolate: Any) -> tuple[str, ...]:
    if isinstance(isolate, bool) or callable(isolate):
        return ()
    return (f"isolate takes True, False or a function of the state, not {isolate!r:.60}",)


def _work_of(value: Any) -> Work:
    """Return the work to continue. Raise AtomicError."""
    from atomic.workspaces import Work

    return checked(value, Work, "isolate")


def parallel_subagent_node(
    id: str,
    *,
    agents: Requests[StateT],
    merge: MergeResults[StateT] | None = None,
    max_concurrency: int | None = None,
    isolate: bool = False,
    **options: Unpack[NodeOptions[StateT]],
) -> Node[StateT, WorkflowRuntime]:
    """Make a node that runs several sub-agents and collects all results, including
    failures.

    With `isolate` each works in a workspace of its own, as do those whose request has
    it. Their results have `work`, for `merge_node`.
    """
    functions = AuthorFunctions()
    get_requests = functions.read("agents", agents)
    merger = functions.read("merge", merge, first="results")

    async def run(ctx: Context[StateT]) -> NodeResult:
        wanted: Sequence[SubagentRequest] = value_of(get_requests, ctx.state, ctx.item)
        for request in wanted:
            runtime_of(ctx).entities.require("agent", request.agent)
        requests = [
            msgspec.structs.replace(
                request,
                id=request.id or f"{ctx.step_id}-{place}",
                model=request.model or ctx.model,
                isolate=request.isolate or isolate,
            )
            for place, request in enumerate(wanted, 1)
        ]
        results = list(await runtime_of(ctx).bridge.spawn_parallel(requests, max_concurrency))
        for result in results:
            add_usage(ctx, result)
        if merger is not None:
            return NodeResult(call(merger, results, ctx.state, item=ctx.item))
        return NodeResult({"outputs": {ctx.output_key: results}})

    problems = functions.problems
    if max_concurrency is not None and max_concurrency < 0:
        problems = (*problems, "max_concurrency takes 0 (no limit) or more")
    isolated = isolate or (not callable(agents) and any(request.isolate for request in agents))
    return Node(
        id=id, kind=NodeKind.AGENT, run=run, problems=problems, of_item=functions.of_item, isolated=isolated, **options
    )


def _entity_node(
    kind: Literal["skill", "command"],
    entity_name: str,
    args: Text[StateT],
    node_id: str,
    session: str | None,
    output_mapper: OutputMapper[StateT] | None,
    **options: Unpack[NodeOptions[StateT]],
) -> Node[StateT, WorkflowRuntime]:
    functions = AuthorFunctions()
    get_args = functions.read("args", args)
    mapper = functions.read("output_mapper", output_mapper, first="answer")

    async def run(ctx: Context[StateT]) -> NodeResult:
        answer = await run_entity(ctx, kind, entity_name, value_of(get_args, ctx.state, ctx.item), session)
        return mapped(ctx, answer, mapper)

    return Node(
        id=node_id, kind=NodeKind.AGENT, run=run, problems=functions.problems, of_item=functions.of_item, **options
    )


def skill_node(
    skill: str,
    *,
    args: Text[StateT] = "",
    id: str | None = None,
    session: str | None = None,
    output_mapper: OutputMapper[StateT] | None = None,
    **options: Unpack[NodeOptions[StateT]],
) -> Node[StateT, WorkflowRuntime]:
    """Make a node that runs a skill's prompt in a new session and keeps the answer.

    The name is resolved when the node runs, because a workflow loads before the
    project's skills.
    """
    return _entity_node("skill", skill, args, id or f"skill-{skill}", session, output_mapper, **options)


def command_node(
    command: str,
    *,
    args: Text[StateT] = "",
    id: str | None = None,
    session: str | None = None,
    output_mapper: OutputMapper[StateT] | None = None,
    **options: Unpack[NodeOptions[StateT]],
) -> Node[StateT, WorkflowRuntime]:
    """Make a node that runs a command's prompt in a new session and keeps the answer."""
    node_id = id or f"command-{command.replace(':', '-')}"
    return _entity_node("command", command, args, node_id, session, output_mapper, **options)


def clear_context_node(id: str, *, session: str, **options: Unpack[Labels]) -> Node[Any, WorkflowRuntime]:
    """Make a node that ends a named session, so that its next turn starts a new one."""

    async def run(ctx: Context[Any]) -> None:
        await runtime_of(ctx).sessions.clear(session)

    return Node(id=id, kind=NodeKind.AGENT, run=run, **options)


def context_monitor_node(
    id: str,
    *,
    session: str,
    threshold: float = 45,
    action: ContextAction = "summarize",
    **options: Unpack[Labels],
) -> Node[Any, WorkflowRuntime]:
    """Make a node that acts when a session uses more than `threshold` % of its context.

    It summarizes the session, recreates it or warns.
    """

    async def run(ctx: Context[Any]) -> NodeResult:
        meter = await runtime_of(ctx).sessions.context(session)
        percent = 100 * meter.used / meter.limit if meter is not None and meter.limit else 0.0
        over = percent > threshold
        if over and action == "summarize":
            await runtime_of(ctx).sessions.compact(session)
        elif over and action == "recreate":
            await runtime_of(ctx).sessions.clear(session)
        seen = {"percent": round(percent, 1), "action": action if over else None}
        text = f'session "{session}" uses {percent:.0f} % of its context'
        signals = (Signal(SignalKind.CONTEXT_WINDOW_WARNING, text, seen),) if over else ()
        return NodeResult({"outputs": {ctx.output_key: seen}}, signals=signals)

    problems: tuple[str, ...] = ()
    if action not in ("summarize", "recreate", "warn"):
        problems = (f'unknown action "{action}"; there are summarize, recreate, warn',)
    if not 0 <= threshold <= 100:
        problems = (*problems, f"threshold is {threshold}; it is a percentage from 0 to 100")
    return Node(id=id, kind=NodeKind.AGENT, run=run, problems=problems, **options)


def custom_tool_node(
    id: str,
    *,
    tool: str,
    args: Args[StateT] | None = None,
    output_mapper: OutputMapper[StateT] | None = None,
    input_schema: Any = None,
    output_schema: Any = None,
    **options: Unpack[StepOptions[StateT]],
) -> Node[StateT, WorkflowRuntime]:
    """Make a node that calls a tool of the project or the user by its name."""
    functions = AuthorFunctions()
    get_args = functions.read("args", args)
    mapper = functions.read("output_mapper", output_mapper, first="result")

    async def run(ctx: Context[StateT]) -> NodeResult | Failed | Blocked:
        function = callable_of(runtime_of(ctx).tools.require(tool))
        given = checked(value_of(get_args, ctx.state, ctx.item) or {}, input_schema, "args")
        result = await function(**keywords_of(given))
        return tool_result(ctx, result, output_schema, mapper)

    return Node(
        id=id, kind=NodeKind.TOOL, run=run, tool=tool, problems=functions.problems, of_item=functions.of_item, **options
    )
