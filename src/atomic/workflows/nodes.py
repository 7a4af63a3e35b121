"""Node factories that need an agent or an entity.

Names are resolved when the node runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.lazy_types import deferred
from atomic.graph import Node, NodeContext, NodeKind, NodeResult, Signal, SignalKind
from atomic.graph.engine.builder import Labels, NodeOptions, StepOptions
from atomic.graph.engine.nodes import (
    Args,
    OutputMapper,
    Text,
    callable_of,
    checked,
    keywords_of,
    mapped,
    not_plain_functions,
)
from atomic.graph.engine.state import StateT
from atomic.workflows.errors import SubagentError
from atomic.workflows.runtime import IsolatedResult, SubagentRequest, SubagentResult, WorkflowRuntime, message_of

if TYPE_CHECKING:
    from atomic.workspaces import OpenWorkspace, Work
else:
    OpenWorkspace = deferred("atomic.workspaces", "OpenWorkspace")
    Work = deferred("atomic.workspaces", "Work")

Context = NodeContext[StateT, WorkflowRuntime]
MergeResults = Callable[[Sequence[SubagentResult], StateT], Mapping[str, Any] | None]
ContextAction = Literal["summarize", "recreate", "warn"]
Isolate = bool | Callable[[StateT], Any]
_ANSWER = "answer"


def _text(text: Text[StateT], state: StateT) -> str:
    return text(state) if callable(text) else text


def runtime_of(ctx: Context[StateT]) -> WorkflowRuntime:
    """Return the runtime of the run. Raise AtomicError if it is missing."""
    if cast("WorkflowRuntime | None", ctx.deps) is None:
        raise AtomicError("needs a runtime with agents and entities; pass deps= to run")
    return ctx.deps


def _model_for(ctx: Context[StateT], of_entity: str | None) -> str | None:
    """Return the run's model, else the entity's; "inherit" counts as none."""
    return of_entity if ctx.model is None and of_entity != "inherit" else ctx.model


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

    With `agent` it uses that sub-agent's prompt, model and tools. With `isolate` the
    turn runs in a workspace of its own, and the output is an `IsolatedResult`, for
    `merge_node`.
    """

    async def run(ctx: Context[StateT]) -> NodeResult:
        chosen = tools
        wanted = ctx.model
        if agent is not None:
            entity = runtime_of(ctx).entities.require("agent", agent)
            wanted = _model_for(ctx, entity.model)
            chosen = tools if tools is not None else entity.tools
        text = _text(prompt, ctx.state)

        async def turn(workspace: OpenWorkspace | None) -> str:
            return await runtime_of(ctx).turn(
                text, agent=agent, provider=provider, model=wanted, session=session, tools=chosen, workspace=workspace
            )

        if isolate:
            result = await _isolated_turn(ctx, text, turn)
            if output_schema is not None:
                result = msgspec.structs.replace(result, value=_read_answer(result.text, output_schema))
            return mapped(ctx.output_key, result, ctx.state, output_mapper)
        answer: Any = await turn(None)
        if output_schema is not None:
            answer = _read_answer(answer, output_schema)
        return mapped(ctx.output_key, answer, ctx.state, output_mapper)

    problems = () if prompt != "" else ("an agent needs a prompt",)
    if isolate and session is not None:
        problems = (*problems, f'isolate: the session "{session}" outlives a workspace; leave session= out')
    node_id = id or (f"agent-{agent}" if agent else "")
    if not node_id:
        problems = (*problems, "give an id, or agent= with the agent's name")
    return Node(id=node_id, kind=NodeKind.AGENT, run=run, problems=problems, isolated=isolate, **options)


async def _isolated_turn(
    ctx: Context[StateT], prompt: str, turn: Callable[[OpenWorkspace], Awaitable[str]]
) -> IsolatedResult:
    """Run one turn in a workspace of the step.

    The answer is remembered before the workspace ends, so that a kill in between does
    not repeat the turn.
    """
    async with runtime_of(ctx).workspace(message=message_of(ctx.node_id, prompt)) as place:
        text: str | None = ctx.remembered(_ANSWER)
        if text is None:
            text = await turn(place)
            await ctx.remember(_ANSWER, text)
    return IsolatedResult(text, place.work)


def _read_answer(text: str, schema: Any) -> Any:
    """Decode JSON in an agent's answer: all of it, or a fenced block.

    Raise AtomicError.
    """
    inside = text.partition("```")[2].partition("```")[0].removeprefix("json") if "```" in text else text
    try:
        return msgspec.json.decode(inside.strip().encode(), type=schema)
    except msgspec.DecodeError as error:
        raise AtomicError(f"the answer is not what output_schema asks for: {error}") from error


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

    async def run(ctx: Context[StateT]) -> NodeResult:
        runtime_of(ctx).entities.require("agent", agent)  # report an unknown name before spending anything
        request = SubagentRequest(
            agent, _text(task, ctx.state), id=ctx.step_id, model=ctx.model, tools=tools, schema=output_schema,
            system_prompt=None if system_prompt is None else _text(system_prompt, ctx.state),
            isolate=_work_of(isolate(ctx.state)) if callable(isolate) else isolate,
        )  # fmt: skip
        result = await runtime_of(ctx).bridge.spawn(request)
        _count(ctx, result)
        if not result.success:
            raise SubagentError(agent, result.error or "it gave no reason")
        answer: Any = result.text
        if output_schema is not None and result.value is not None:
            answer = checked(result.value, output_schema, "value")
        elif output_schema is not None:
            answer = _read_answer(result.text, output_schema)
        if result.work is not None:
            answer = IsolatedResult(result.text, result.work, None if output_schema is None else answer)
        return mapped(ctx.output_key, answer, ctx.state, output_mapper)

    problems: tuple[str, ...] = ()
    if callable(isolate):
        problems = not_plain_functions(isolate=isolate)
    elif not isinstance(isolate, bool):  # pyright: ignore[reportUnnecessaryIsInstance]  # a user's mistake
        problems = (f"isolate takes True, False or a function of the state, not {isolate!r:.60}",)
    return Node(id=id, kind=NodeKind.AGENT, run=run, problems=problems, isolated=bool(isolate), **options)


def _work_of(value: Any) -> Work:
    """Return the work to continue. Raise AtomicError."""
    from atomic.workspaces import Work

    return checked(value, Work, "isolate")


def _count(ctx: Context[StateT], result: SubagentResult) -> None:
    if result.usage:
        figures: Mapping[str, Any] = msgspec.to_builtins(result.usage)
        ctx.add_usage({name: figure for name, figure in figures.items() if figure is not None})


def parallel_subagent_node(
    id: str,
    *,
    agents: Sequence[SubagentRequest] | Callable[[StateT], Sequence[SubagentRequest]],
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

    async def run(ctx: Context[StateT]) -> NodeResult:
        wanted = agents(ctx.state) if callable(agents) else agents
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
            _count(ctx, result)
        if merge is not None:
            return NodeResult(merge(results, ctx.state))
        return NodeResult({"outputs": {ctx.output_key: results}})

    problems: tuple[str, ...] = ()
    if max_concurrency is not None and max_concurrency < 0:
        problems = ("max_concurrency takes 0 (no limit) or more",)
    isolated = isolate or (not callable(agents) and any(request.isolate for request in agents))
    return Node(id=id, kind=NodeKind.AGENT, run=run, problems=problems, isolated=isolated, **options)


def _entity_node(
    kind: Literal["skill", "command"],
    entity_name: str,
    args: Text[StateT],
    node_id: str,
    session: str | None,
    output_mapper: OutputMapper[StateT] | None,
    **options: Unpack[NodeOptions[StateT]],
) -> Node[StateT, WorkflowRuntime]:
    async def run(ctx: Context[StateT]) -> NodeResult:
        entity = runtime_of(ctx).entities.require(kind, entity_name)
        prompt = entity.expand(_text(args, ctx.state))
        answer = await runtime_of(ctx).turn(
            prompt, model=_model_for(ctx, entity.model), session=session, tools=entity.tools
        )
        return mapped(ctx.output_key, answer, ctx.state, output_mapper)

    return Node(id=node_id, kind=NodeKind.AGENT, run=run, **options)


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

    async def run(ctx: Context[StateT]) -> NodeResult:
        call = callable_of(runtime_of(ctx).tools.require(tool))
        given = checked((args(ctx.state) if callable(args) else args) or {}, input_schema, "args")
        result = await call(**keywords_of(given))
        return mapped(ctx.output_key, checked(result, output_schema, "result"), ctx.state, output_mapper)

    return Node(id=id, kind=NodeKind.TOOL, run=run, tool=tool, **options)
