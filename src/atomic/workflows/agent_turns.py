"""What nodes and steps do with agents: a turn, a sub-agent, and reading the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol, Unpack, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.graph.engine.nodes import checked
from atomic.workflows.errors import SubagentError
from atomic.workflows.runtime import IsolatedResult, SubagentRequest, SubagentResult, TurnOptions, WorkflowRuntime


class StepLike(Protocol):
    """What this module needs of the context of a node or a step."""

    @property
    def deps(self) -> WorkflowRuntime: ...

    @property
    def model(self) -> str | None: ...

    def add_usage(self, usage: Mapping[str, float]) -> None: ...


def runtime_of(ctx: StepLike) -> WorkflowRuntime:
    """Return the runtime of the run. Raise AtomicError if it is missing."""
    if cast("WorkflowRuntime | None", ctx.deps) is None:
        raise AtomicError('needs agents: give the run agent="claude", or deps= with the runtime of `agents(…)`')
    return ctx.deps


async def run_turn(ctx: StepLike, prompt: str, returns: Any = None, **options: Unpack[TurnOptions]) -> Any:
    """Run one turn, and return the answer: a text, or a value of the type `returns`.

    The runtime chooses what the caller leaves open: the model, and the tools and the
    prompt of a sub-agent.
    """
    runtime = runtime_of(ctx)
    agent = options.get("agent")
    if agent is not None:
        runtime.entities.require("agent", agent)  # report an unknown name before spending anything
    options["model"] = options.get("model") or ctx.model
    if returns is None:
        return await runtime.turn(prompt, **options)
    return read_answer(await runtime.turn(with_schema(prompt, returns), **options), returns)


async def run_entity(
    ctx: StepLike, kind: Literal["skill", "command"], name: str, args: str, session: str | None
) -> str:
    """Run one turn with the prompt of a skill or command."""
    entity = runtime_of(ctx).entities.require(kind, name)
    model = ctx.model or (None if entity.model == "inherit" else entity.model)
    return await runtime_of(ctx).turn(entity.expand(args), model=model, session=session, tools=entity.tools)


async def run_subagent(ctx: StepLike, request: SubagentRequest) -> Any:
    """Run a sub-agent, and return its answer: a text, a value of the request's schema,
    or an `IsolatedResult`. Raise SubagentError.
    """
    runtime = runtime_of(ctx)
    runtime.entities.require("agent", request.agent)  # report an unknown name before spending anything
    if request.model is None:
        request = msgspec.structs.replace(request, model=ctx.model)
    result = await runtime.bridge.spawn(request)
    add_usage(ctx, result)
    if not result.success:
        raise SubagentError(request.agent, result.error or "it gave no reason")
    value: Any = None
    if request.schema is not None and result.value is not None:
        value = checked(result.value, request.schema, "value")
    elif request.schema is not None:
        value = read_answer(result.text, request.schema)
    if result.work is not None:
        return IsolatedResult(result.text, result.work, value)
    return result.text if request.schema is None else value


def add_usage(ctx: StepLike, result: SubagentResult) -> None:
    """Count what a sub-agent has used for the step."""
    if result.usage:
        figures: Mapping[str, Any] = msgspec.to_builtins(result.usage)
        ctx.add_usage({name: figure for name, figure in figures.items() if figure is not None})


def with_schema(prompt: str, wanted: Any) -> str:
    """Return a prompt that asks for JSON of that type."""
    schema = msgspec.json.encode(msgspec.json.schema(wanted)).decode()
    return f"{prompt}\n\nAnswer with JSON alone, without any other text, that fits this JSON Schema:\n{schema}"


def read_answer(text: str, wanted: Any) -> Any:
    """Decode JSON in an agent's answer: all of it, or a fenced block.

    Raise AtomicError.
    """
    inside = text.partition("```")[2].partition("```")[0].removeprefix("json") if "```" in text else text
    try:
        return msgspec.json.decode(inside.strip().encode(), type=wanted)
    except msgspec.DecodeError as error:
        raise AtomicError(f"the answer is not the JSON that was asked for: {error}") from error
