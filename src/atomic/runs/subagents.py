"""Spawns sub-agents over any provider, each in a new session.

A failure of an agent does not raise: it is in the result. A cancellation is raised
after the session is closed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from os import PathLike
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.lazy_types import deferred
from atomic.base.usage import Usage
from atomic.graph import Suspend
from atomic.graph.engine.nodes import checked
from atomic.workflows.errors import SubagentError
from atomic.workflows.runtime import Entities, EntityLike, SubagentRequest, SubagentResult, message_of

if TYPE_CHECKING:
    from atomic.providers.base import AgentProvider, AgentSession, Ask, CustomTool, McpServer, SessionOptions
    from atomic.providers.events import AgentEvent, TurnEnded
    from atomic.runs.bridge_runtime import BridgeRuntime
    from atomic.runs.calling_step import CallingStep
    from atomic.runs.step_runtime import StepRuntime
    from atomic.workspaces import View
else:
    View = deferred("atomic.workspaces.views", "View")
    AgentProvider = deferred("atomic.providers.base", "AgentProvider")
    Ask = deferred("atomic.providers.base", "Ask")
    BridgeRuntime = deferred("atomic.runs.bridge_runtime", "BridgeRuntime")
    CustomTool = deferred("atomic.providers.base", "CustomTool")
    McpServer = deferred("atomic.providers.base", "McpServer")
    AgentEvent = deferred("atomic.providers.events", "AgentEvent")

ValueT = TypeVar("ValueT")
Watch = Callable[[str, AgentEvent], None]
"""Called with the id of the request and each event of the sub-agent."""


class Bridge:
    """Spawns sub-agents with the prompt, tools and model of the agent's file, unless
    the request has others.
    """

    def __init__(
        self,
        provider: AgentProvider,
        *,
        entities: Entities | None = None,
        cwd: str | PathLike[str] | None = None,
        model: str | None = None,
        ask: Ask | None = None,
        record: str | PathLike[str] | None = None,
        trusted: bool = False,
        mcp_servers: Sequence[McpServer] = (),
        disabled_mcp_servers: Sequence[str] = (),
        max_concurrency: int = 4,
        watch: Watch | None = None,
    ) -> None:
        self.provider = provider
        self.entities = entities
        self._cwd = cwd
        self._model = model
        self._ask = ask
        self._record = record
        self._trusted = trusted
        self._mcp_servers = mcp_servers
        self._disabled_mcp_servers = disabled_mcp_servers
        self._max_concurrency = max_concurrency
        self._watch = watch
        self._numbers = count(1)
        self._known_models: Sequence[str] | None = None

    async def spawn(self, request: SubagentRequest) -> SubagentResult:
        """Run one sub-agent; with a schema its answer is in `value`."""
        from msgspec.structs import replace

        if not request.id:
            request = replace(request, id=f"{request.agent or 'agent'}-{next(self._numbers)}")
        work = _Work(request, self._watch)
        if request.isolate:
            work.error = (
                "isolate=True needs a workspace, which a Bridge cannot make: use the bridge of `agents(…)`, or"
                " ctx.deps.bridge of a node"
            )
            return work.result()
        try:
            async with asyncio.timeout(request.timeout):
                entity = self._entity_of(request)
                if request.schema is None:
                    async with self._open(request, entity, work) as session:
                        await _run_turn(session, request.task)
                else:
                    work.value = await self._answer(request.schema, request, entity, work)
        except TimeoutError:
            work.error = f"took longer than {request.timeout:g} s" if request.timeout else "took too long"
        except AtomicError as error:
            work.error = work.error or str(error)
        return work.result()

    async def spawn_parallel(
        self, requests: Sequence[SubagentRequest], max_concurrency: int | None = None
    ) -> list[SubagentResult]:
        """Run several at once, at most `max_concurrency` (0: no limit), and return the
        results in order.
        """
        limit = self._max_concurrency if max_concurrency is None else max_concurrency
        slots = asyncio.Semaphore(limit or max(1, len(requests)))

        async def one(request: SubagentRequest) -> SubagentResult:
            async with slots:
                return await self.spawn(request)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(request)) for request in requests]
        return [task.result() for task in tasks]

    async def ask_for(self, type: type[ValueT], request: SubagentRequest) -> ValueT:
        """Return an answer of that type.

        Raises SubagentError if the sub-agent gives none.
        """
        from msgspec.structs import replace

        result = await self.spawn(replace(request, schema=type))
        if not result.success:
            raise SubagentError(request.agent or result.id, result.error or "no answer")
        return result.value

    async def turn(
        self, request: SubagentRequest, *, custom_tools: Sequence[CustomTool] = (), strict: bool = True
    ) -> str:
        """Run one turn and return its answer. With `strict=False` what the provider does
        not support is moved into the prompt or left out.

        Raises TurnFailedError, ProviderError.
        """
        from atomic.runs.single_turns import answer_in_new_session, supported_options

        entity = self._entity_of(request)
        can = self.provider.capabilities
        given = custom_tools if can.custom_tools else ()
        options = self._options(
            request, entity, await self._model_for(request, entity), _Work(request, self._watch), given
        )
        text = request.task
        if not strict:
            options, text = supported_options(can, options, text)
        return await answer_in_new_session(self.provider, options, text)

    def bound_to(self, ctx: object) -> BridgeRuntime:
        """Return what a node sees as `ctx.deps` if this is the `deps` of its run."""
        from atomic.runs.bridge_runtime import BridgeRuntime

        return BridgeRuntime(self)

    def _entity_of(self, request: SubagentRequest) -> EntityLike | None:
        """Return the agent of a request.

        Raises AtomicError with the nearest name if it is unknown.
        """
        if not request.agent:
            return None
        if self.entities is None:
            raise AtomicError(
                f'agent "{request.agent}" is requested, but this bridge has no entities: give it entities=, or use'
                " `agents(…)`"
            )
        return self.entities.require("agent", request.agent)

    async def _answer(self, type: Any, request: SubagentRequest, entity: EntityLike | None, work: _Work) -> Any:
        from atomic.providers.answers import Wanted, answer_tool

        if self.provider.capabilities.structured != "tool":
            async with self._open(request, entity, work) as session:
                return await session.ask_for(type, request.task)
        handed_in: list[Any] = []
        async with self._open(request, entity, work, answer_tool(Wanted(type), handed_in)) as session:
            await _run_turn(session, f"{request.task}\n\nHand in your final answer by calling the tool `answer`.")
            if handed_in or work.error:
                return handed_in[-1] if handed_in else None
            return await session.ask_for(type, "You have not handed in your answer. Give it now, as text.")

    @asynccontextmanager
    async def _open(
        self, request: SubagentRequest, entity: EntityLike | None, work: _Work, *tools: Any
    ) -> AsyncGenerator[AgentSession]:
        model = await self._model_for(request, entity)
        async with self.provider.open(self._options(request, entity, model, work, tools)) as session:
            yield session

    async def _model_for(self, request: SubagentRequest, entity: EntityLike | None) -> str | None:
        return request.model or self._model or (await self._model_of(entity) if entity else None)

    async def _model_of(self, entity: EntityLike) -> str | None:
        """Return this provider's name of the model in the agent's file.

        None if it has no such model.
        """
        from atomic.providers.model_names import fitting_model, original_model

        original = original_model(entity, self.provider.name)
        if (entity.model in (None, "inherit") and original is None) or self.provider.name == "claude":
            return entity.model  # Claude Code knows the families by these names
        if self._known_models is None:
            models = await self.provider.models() if self.provider.capabilities.models else ()
            self._known_models = [model.id for model in models]
        return fitting_model(self._known_models, original, entity.model)

    def _options(
        self, request: SubagentRequest, entity: EntityLike | None, model: str | None, work: _Work, tools: Sequence[Any]
    ) -> SessionOptions:
        from atomic.providers.base import SessionOptions

        prompt = request.system_prompt
        chosen = request.tools
        if entity is not None:
            prompt = entity.prompt if prompt is None else prompt
            chosen = entity.tools if chosen is None else chosen
        return SessionOptions(
            cwd=request.cwd or self._cwd,
            system_prompt=prompt,
            model=None if model == "inherit" else model,
            tools=chosen,
            denied_tools=entity.denied_tools if entity else (),
            mcp_servers=self._mcp_servers,
            disabled_mcp_servers=self._disabled_mcp_servers,
            custom_tools=tools,
            ask=self._ask,
            record=self._record,
            trusted=self._trusted,
            watch=work.handle,
        )


async def _run_turn(session: AgentSession, prompt: str) -> None:
    async for _ in session.send(prompt):
        pass  # the options' `watch` handles the events


class _Work:
    """Collects the events of one sub-agent into its result."""

    def __init__(self, request: SubagentRequest, watch: Watch | None) -> None:
        self.error: str | None = None
        self.value: Any = None
        self._request = request
        self._watch = watch
        self._ends: list[TurnEnded] = []
        self._tool_calls = 0
        self._started = perf_counter()

    def handle(self, event: AgentEvent) -> None:
        from atomic.providers.events import EndReason, ToolStarted, TurnEnded

        if isinstance(event, ToolStarted):
            self._tool_calls += 1
        elif isinstance(event, TurnEnded):
            self._ends.append(event)
            failed = event.reason is not EndReason.DONE
            self.error = (event.error or f"the turn ended with '{event.reason}'") if failed else None
        if self._watch is not None:
            self._watch(self._request.id, event)

    def result(self) -> SubagentResult:
        return SubagentResult(
            id=self._request.id,
            success=self.error is None,
            text=self._ends[-1].text if self._ends else "",
            error=self.error,
            value=self.value,
            usage=self._usage(),
            tool_calls=self._tool_calls,
            seconds=perf_counter() - self._started,
        )

    def _usage(self) -> Usage | None:
        if not self._ends:
            return None
        total, *rest = [end.usage for end in self._ends]
        for usage in rest:
            total += usage
        return total


class SubagentResults:
    """The results of one step by request; a changed request is a new one."""

    def __init__(self, ctx: CallingStep) -> None:
        self._ctx = ctx
        self._attempt = ctx.attempt
        self._seen: Counter[str] = Counter()

    def key_of(self, request: SubagentRequest) -> str:
        """Return the key of a request; equal requests of a step are numbered."""
        if self._attempt != self._ctx.attempt:
            self._attempt = self._ctx.attempt
            self._seen = Counter()
        from hashlib import sha256  # imported late: `atomic.workflows` must import quickly

        names = [name for name in request.__struct_fields__ if name not in ("schema", "isolate")]
        facts = [getattr(request, name) for name in names]
        if request.isolate:  # a run of an older version finds the results of other requests
            facts.append(request.isolate)
        digest = sha256(msgspec.msgpack.encode([*facts, repr(request.schema)])).hexdigest()
        self._seen[digest] += 1
        return f"subagent-{digest}-{self._seen[digest]}"

    def find(self, key: str, schema: Any) -> SubagentResult | None:
        """Return the result that an earlier attempt of this step has kept, if there is
        one.
        """
        kept = self._ctx.remembered(key)
        if kept is None:
            return None
        facts: dict[str, Any] = {**kept}  # a copy: the remembered value must not change
        facts["usage"] = msgspec.convert(kept["usage"], Usage | None)
        if kept.get("work") is not None:
            from atomic.workspaces.run_branch import Work

            facts["work"] = msgspec.convert(kept["work"], Work)
        try:
            facts["value"] = None if kept["value"] is None else checked(kept["value"], schema, "value")
        except AtomicError:  # the schema has changed, so this answer does not fit
            return None
        return SubagentResult(**facts)

    async def keep(self, key: str, result: SubagentResult) -> None:
        """Keep a result; it is on the disk when this returns."""
        await self._ctx.remember(key, result)


class StepBridge:
    """Spawns the sub-agents of one step, each over the provider that serves its role."""

    def __init__(self, step: StepRuntime, finished: SubagentResults) -> None:
        self._step = step
        self._finished = finished

    async def spawn(self, request: SubagentRequest) -> SubagentResult:
        """Run one sub-agent; with a schema its answer is in `value`.

        An isolated one works in a workspace of its own, and `work` has its commits.
        """
        if request.isolate:
            return await self._spawn_once(request, self._finished.key_of(request))
        return await self._spawn(request, None)

    async def _spawn(self, request: SubagentRequest, view: View | None) -> SubagentResult:
        step = self._step
        caller = step.caller(request.task, request.agent)

        async def work(chosen: AgentProvider, name: str) -> SubagentResult:
            entity = step.entities.require("agent", request.agent) if request.agent else None
            wanted = request.model or (entity.model if entity else None)
            model = await step.model_for(chosen, name, caller, wanted, entity)
            bridge = step.bridge_to(chosen, name, caller, view)
            return await bridge.spawn(msgspec.structs.replace(request, model=model or "inherit", isolate=False))

        return await step.serve(caller, None, work)

    async def spawn_parallel(
        self, requests: Sequence[SubagentRequest], max_concurrency: int | None = None
    ) -> list[SubagentResult]:
        """Run several sub-agents at once, and return the results in the order of the
        requests.

        If one must pause, the others end first, and the resumed step does not run them
        again.
        """
        limit = 4 if max_concurrency is None else max_concurrency
        slots = asyncio.Semaphore(limit or max(1, len(requests)))
        suspended: list[Suspend] = []

        async def one(request: SubagentRequest, key: str) -> SubagentResult | None:
            async with slots:
                try:
                    return await self._spawn_once(request, key)
                except Suspend as suspend:
                    suspended.append(suspend)
                    return None

        keys = [self._finished.key_of(request) for request in requests]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*pair)) for pair in zip(requests, keys, strict=True)]
        if suspended:
            raise suspended[0]
        return [result for task in tasks if (result := task.result()) is not None]

    async def _spawn_once(self, request: SubagentRequest, key: str) -> SubagentResult:
        known = self._finished.find(key, request.schema)
        if known is not None:
            return known
        if request.isolate:
            result = await self._spawn_isolated(request, key)
        else:
            result = await self._spawn(request, None)
        await self._finished.keep(key, result)
        return result

    async def _spawn_isolated(self, request: SubagentRequest, key: str) -> SubagentResult:
        """Run one sub-agent in a workspace of its own.

        Its answer is kept before the workspace ends, so that a kill in between does not
        repeat the turn.
        """
        kept_as = f"{key}-answer"
        continues = None if isinstance(request.isolate, bool) else request.isolate
        name = self._step.workspace_name(request.id or key) if continues is None else continues.name
        async with self._step.workspace(name, continues=continues, message=message_of(name, request.task)) as place:
            answer = self._finished.find(kept_as, request.schema)
            if answer is None:
                answer = await self._spawn(request, place.view)
                await self._finished.keep(kept_as, answer)
        return msgspec.structs.replace(answer, work=place.work)

    async def ask_for(self, type: type[ValueT], request: SubagentRequest) -> ValueT:
        """Return an answer of that type.

        Raises SubagentError if the sub-agent gives none.
        """
        result = await self.spawn(msgspec.structs.replace(request, schema=type))
        if not result.success:
            raise SubagentError(request.agent or result.id, result.error or "no answer")
        return result.value
