"""What one step may reach: the `ctx.deps` of its node. It knows which node and which task it works for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from atomic.graph import Suspend
from atomic.providers.base import Capabilities, SessionOptions
from atomic.providers.errors import UnsupportedError
from atomic.providers.events import EndReason, TurnEnded
from atomic.providers.modelnames import fitting_model, named_model, original_model
from atomic.step_names import split_first, without_items
from atomic.tasks import Task
from atomic.workflows.bridge import Bridge
from atomic.workflows.broker import LiveBroker
from atomic.workflows.door import Caller, Door, GuardedProvider, GuardedSession, Limited
from atomic.workflows.errors import TurnFailedError
from atomic.workflows.finished_work import FinishedWork
from atomic.workflows.governor import CapReached, Governor, Parked
from atomic.workflows.named_sessions import NamedSessions
from atomic.workflows.runtime import Entities, EntityLike, SubagentRequest, SubagentResult, Tools, Workflows

if TYPE_CHECKING:
    from atomic.graph.context import StepContext
    from atomic.providers.base import AgentProvider, ContextUsage, CustomTool
    from atomic.sessions.facts import Facts
    from atomic.sessions.store import Session
    from atomic.workflows.live_runtime import LiveRuntime, RunTasks

ResultT = TypeVar("ResultT")
_FAMILIES_KNOWN = ("claude", "replay")  # opus, sonnet and haiku are models there


class StepRuntime:
    """What one step may reach: the `ctx.deps` of its node."""

    def __init__(self, run: LiveRuntime, ctx: StepContext) -> None:
        self._run, self._ctx, self._host = run, ctx, run.host
        task = ctx.item.id if isinstance(ctx.item, Task) else None
        self._door = Door(run, ctx, Caller(ctx.node_id, task))
        self.bridge = StepBridge(self, FinishedWork(ctx))

    @property
    def entities(self) -> Entities:
        return self._host.entities

    @property
    def workflows(self) -> Workflows:
        return self._host.workflows

    @property
    def tools(self) -> Tools:
        return self._host.tools

    @property
    def sessions(self) -> StepSessions:
        return StepSessions(self, self._run.sessions)

    @property
    def tasks(self) -> RunTasks:
        return self._run.tasks

    @property
    def governor(self) -> Governor:
        return self._run.governor

    @property
    def broker(self) -> LiveBroker | None:
        return self._run.broker

    @property
    def files(self) -> Session:
        return self._run.session

    @property
    def facts(self) -> Facts:
        return self._run.facts

    @property
    def check_variables(self) -> Sequence[str]:
        """The variables that checks get though they look like secrets."""
        return self._host.settings.checks.env

    @asynccontextmanager
    async def timed(self, what: str) -> AsyncGenerator[None]:
        """Interrupt work of the step that is no turn when `--max-time` and its grace are over; the run pauses then."""
        try:
            async with self.governor.timed(what):
                yield
        except CapReached as reached:
            raise self._door.suspend(reached, is_cut=True) from reached

    @property
    def trusted(self) -> bool:
        """Whether the user has approved what the project brings to run."""
        return self._host.trusted

    @property
    def configured(self) -> Sequence[str]:
        return self._run.configured

    def provider_of(self, role: str) -> str | None:
        """The provider that flags and settings name for a role; None: whichever is found."""
        return self._run.provider_of(role)

    def publish(self, url: str) -> None:
        """Note where the work was published."""
        self._run.session.save(pr=url)

    @property
    def config(self) -> Mapping[str, Any]:
        return self._run.config

    @property
    def clock(self) -> Callable[[], float]:
        return self._host.clock

    @property
    def project(self) -> Path:
        return self._host.project

    async def provider(self, name: str | None = None) -> GuardedProvider:
        """A provider whose calls are governed, logged and told."""
        chosen = name or await self._run.default_name()
        return self._door.guard(await self._run.provider(chosen), chosen)

    async def turn(
        self,
        prompt: str,
        *,
        agent: str | None = None,
        provider: str | None = None,
        model: str | None = None,
        session: str | None = None,
        tools: Sequence[str] | None = None,
        custom_tools: Sequence[CustomTool] = (),
        strict: bool = True,
    ) -> str:
        """One turn in a fresh session, or in the named one; `custom_tools` are offered where the provider can.

        Without a model it is that of the run, else of the agent's file if that is the user's or the project's own.
        Not `strict`: an agent's prompt and tools count as far as the provider can, and it is asked anyway.
        Raises TurnFailedError, ProviderError.
        """
        entity = None if agent is None else self.entities.require("agent", agent)
        caller = msgspec.structs.replace(self.caller(prompt, agent), file=_file_of(entity))
        wanted = model or self._ctx.model or _model_of(entity)

        async def work(chosen: AgentProvider, name: str) -> str:
            options = await self._options(chosen, name, caller, entity, wanted, tools)
            if custom_tools and chosen.capabilities.custom_tools:
                options = msgspec.structs.replace(options, custom_tools=custom_tools)
            words = prompt
            if not strict:
                options, words = _as_far_as(chosen.capabilities, options, prompt)
            guarded = self._door.guard(chosen, name, caller)
            if session is None:
                return await _in_fresh(guarded, options, words)
            async with self._run.sessions.using(session, name, guarded, options) as shared:
                shared.door = self._door
                shared.about = msgspec.structs.replace(shared.about, caller=caller)
                return await _answer(shared, words)

        return await self.served(caller, provider, work)

    def caller(self, prompt: str, agent: str | None) -> Caller:
        """Who calls: the role that the prompt names, else the agent's name."""
        caller = msgspec.structs.replace(self._door.caller, role=agent or None).speaking(prompt)
        self._run.roles.update(word for word in (caller.role, agent, caller.node) if word)
        return caller

    async def served(
        self, caller: Caller, wanted: str | None, work: Callable[[AgentProvider, str], Awaitable[ResultT]]
    ) -> ResultT:
        """Let a provider do it that serves; a limit parks it, or another goes on, and it is no failed attempt."""
        preferred = _chosen(self._host.choices.agents, caller) or wanted or await self._run.default_name()
        return await self._serve(preferred, self._host.others, work)

    async def _serve(
        self, preferred: str, others: Sequence[str], work: Callable[[AgentProvider, str], Awaitable[ResultT]]
    ) -> ResultT:
        governor = self.governor
        while True:
            try:
                with self._ctx.resting():
                    name = await governor.provider_for(preferred, others)
            except Parked as parked:
                raise self._door.suspend(parked) from parked
            try:
                return await work(await self._run.provider(name), name)
            except Limited as limit:
                self._run.reporter.parked(governor.park(limit.reset_at, name))

    async def _options(
        self,
        provider: AgentProvider,
        name: str,
        caller: Caller,
        entity: EntityLike | None,
        model: str | None,
        tools: Sequence[str] | None,
    ) -> SessionOptions:
        return SessionOptions(
            cwd=self._host.folder,
            system_prompt=None if entity is None else entity.prompt,
            model=await self.model_for(provider, name, caller, model, entity),
            tools=tools if tools is not None else None if entity is None else entity.tools,
            denied_tools=() if entity is None else entity.denied_tools,
            record=self._host.record,
            trusted=self._host.trusted,
        )

    def bridge_to(self, provider: AgentProvider, name: str, caller: Caller) -> Bridge:
        """Sub-agents over that provider, behind the door."""
        host = self._host
        guarded = self._door.guard(provider, name, caller)
        return Bridge(guarded, entities=host.entities, cwd=host.folder, record=host.record, trusted=host.trusted)

    async def model_for(
        self, provider: AgentProvider, name: str, caller: Caller, wanted: str | None, entity: EntityLike | None = None
    ) -> str | None:
        """The flag's model; else the one that is asked for, as this provider calls it; else that of the settings."""
        flag = _chosen(self._host.choices.models, caller)
        if flag is not None:
            return flag
        is_of_file = entity is not None and wanted == entity.model
        original = original_model(entity, provider.name) if is_of_file else None
        if wanted == "inherit":
            wanted = None
        if (wanted or original) is None or provider.name in _FAMILIES_KNOWN:
            return wanted or self._host.settings.model
        if named_model(wanted) is not None and not provider.capabilities.models:
            return wanted
        known = await self._run.models(provider, name)
        fitting = wanted if wanted in known else fitting_model(known, original, wanted)
        return fitting or named_model(wanted) or self._host.settings.model

    async def with_named(
        self, sessions: NamedSessions, name: str, work: Callable[[GuardedSession], Awaitable[ResultT]]
    ) -> ResultT | None:
        """Do something with a named session, over the provider that has it; None if there is no such session."""
        caller, provider = self._door.caller, sessions.provider_of(name)

        async def look(chosen: AgentProvider, called: str) -> ResultT | None:
            options = await self._options(chosen, called, caller, None, self._ctx.model, None)
            async with sessions.looked_at(name, self._door.guard(chosen, called, caller), options) as session:
                if session is None:
                    return None
                session.door, session.about = self._door, msgspec.structs.replace(session.about, caller=caller)
                return await work(session)

        return None if provider is None else await self._serve(provider, (), look)


class StepSessions:
    """The named sessions for one step: what is done to them is this step's."""

    def __init__(self, step: StepRuntime, shared: NamedSessions) -> None:
        self._step, self._shared = step, shared

    async def clear(self, name: str) -> None:
        """End it, so that the next turn under that name starts fresh."""
        await self._shared.clear(name)

    async def context(self, name: str) -> ContextUsage | None:
        """Its context meter; None if there is no such session yet."""
        return await self._step.with_named(self._shared, name, lambda session: session.context())

    async def compact(self, name: str) -> None:
        """Summarise its context. Raises Suspend where a cap is reached."""
        await self._step.with_named(self._shared, name, lambda session: session.compact())


class StepBridge:
    """Spawns sub-agents for one step, over whichever provider serves their role."""

    def __init__(self, step: StepRuntime, finished: FinishedWork) -> None:
        self._step, self._finished = step, finished

    async def spawn(self, request: SubagentRequest) -> SubagentResult:
        """Run one to its end; with a schema its answer is in `value`."""
        step = self._step
        caller = step.caller(request.task, request.agent)

        async def work(chosen: AgentProvider, name: str) -> SubagentResult:
            entity = step.entities.require("agent", request.agent) if request.agent else None
            wanted = request.model or (entity.model if entity else None)
            model = await step.model_for(chosen, name, caller, wanted, entity)
            bridge = step.bridge_to(chosen, name, caller)
            return await bridge.spawn(msgspec.structs.replace(request, model=model or "inherit"))

        return await step.served(caller, None, work)

    async def spawn_parallel(
        self, requests: Sequence[SubagentRequest], max_concurrency: int | None = None
    ) -> list[SubagentResult]:
        """Run several at once; the results in the order of the requests.

        Where one must pause, the others end first; the step that goes on does not run them again.
        """
        bound = 4 if max_concurrency is None else max_concurrency
        places = asyncio.Semaphore(bound or max(1, len(requests)))
        held: list[Suspend] = []

        async def one(request: SubagentRequest, key: str) -> SubagentResult | None:
            async with places:
                try:
                    return await self._spawn_once(request, key)
                except Suspend as suspend:
                    held.append(suspend)
                    return None

        keys = [self._finished.key_of(request) for request in requests]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(*pair)) for pair in zip(requests, keys, strict=True)]
        if held:
            raise held[0]
        return [result for task in tasks if (result := task.result()) is not None]

    async def _spawn_once(self, request: SubagentRequest, key: str) -> SubagentResult:
        known = self._finished.find(key, request.schema)
        if known is not None:
            return known
        result = await self.spawn(request)
        await self._finished.keep(key, result)
        return result

    async def ask_for(self, type: type[ResultT], request: SubagentRequest) -> ResultT:
        """An answer of that type. Raises SubagentError where none came."""
        from atomic.workflows.errors import SubagentError

        result = await self.spawn(msgspec.structs.replace(request, schema=type))
        if not result.success:
            raise SubagentError(request.agent or result.id, result.error or "no answer")
        return result.value


def _as_far_as(can: Capabilities, options: SessionOptions, prompt: str) -> tuple[SessionOptions, str]:
    """Options that a provider can take; a system prompt that it cannot take stands behind the prompt."""
    if options.system_prompt is not None and not can.system_prompt:
        prompt = f"{prompt}\n---\n\n{options.system_prompt}"
        options = msgspec.structs.replace(options, system_prompt=None)
    if not can.tool_selection:
        options = msgspec.structs.replace(options, tools=None, denied_tools=())
    return options, prompt


async def _in_fresh(provider: GuardedProvider, options: SessionOptions, prompt: str) -> str:
    """One turn in a fresh session; some agents say only when they run that they take no custom tools."""
    try:
        async with provider.open(options) as session:
            return await _answer(session, prompt)
    except UnsupportedError:
        if not options.custom_tools:
            raise
    return await _in_fresh(provider, msgspec.structs.replace(options, custom_tools=()), prompt)


async def _answer(session: GuardedSession, prompt: str) -> str:
    ended: TurnEnded | None = None
    async for event in session.send(prompt):
        if isinstance(event, TurnEnded):
            ended = event
    if ended is None:
        raise TurnFailedError("error", "the stream ended without saying that the turn is over")
    if ended.reason is not EndReason.DONE:
        why = ended.error or f"the turn ended with '{ended.reason}'"
        raise TurnFailedError(str(ended.reason), why, said=ended.text)
    return ended.text


def _file_of(entity: EntityLike | None) -> str | None:
    """The file with an agent's words, if the agent is not built in."""
    source = getattr(entity, "source", None)
    return None if source is None or source.location == "builtin" else str(source.path)


def _model_of(entity: EntityLike | None) -> str | None:
    """What an agent's file names. One that comes with Atomic makes nobody pay for a model that they did not choose."""
    is_ours = getattr(getattr(entity, "source", None), "location", "") == "builtin"
    return None if entity is None or is_ours else entity.model


def _chosen(choices: Mapping[str, str], caller: Caller) -> str | None:
    """What a flag says for this caller: by role, else by step, node or the node around it, else for all."""
    for word in (caller.role, caller.node, without_items(caller.node), split_first(caller.node)[0]):
        if word and word in choices:
            return choices[word]
    return choices.get("")
