"""The real `ctx.deps`: all that a node may reach, over real agents.

A host brings a `Runtime`; a run makes a `LiveRuntime` of it; each step gets its own view, a `StepRuntime`, that knows
which node and which task it works for.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import msgspec

from atomic.config import Settings
from atomic.errors import AtomicError
from atomic.graph import CompiledGraph, Suspend
from atomic.providers.base import SessionOptions
from atomic.providers.events import AgentEvent, EndReason, TurnEnded
from atomic.providers.modelnames import fitting_model, named_model
from atomic.questions import Question
from atomic.tasks import Task, TaskList
from atomic.workflows.bridge import Bridge
from atomic.workflows.door import Caller, Door, GuardedProvider, GuardedSession, Limited
from atomic.workflows.governor import CapReached, Caps, Governor, OnLimit, Parked
from atomic.workflows.named_sessions import NamedSessions
from atomic.workflows.runtime import Entities, EntityLike, SubagentRequest, SubagentResult, Tools, Workflows

if TYPE_CHECKING:
    from atomic.graph.context import StepContext
    from atomic.providers.base import AgentProvider

ResultT = TypeVar("ResultT")
Answer = str | list[str]
_FAMILIES_KNOWN = ("claude", "replay")  # opus, sonnet and haiku are models there


class TurnFailedError(AtomicError):
    """A turn of an agent did not end well; `reason` is that of its end."""

    def __init__(self, reason: str, why: str) -> None:
        self.reason = reason
        super().__init__(why)


class Person(Protocol):
    """Somebody in front of a host."""

    async def ask(self, question: Question) -> Answer | None:
        """The answer; None if the person does not want to answer now."""
        ...


class Choices(msgspec.Struct, frozen=True):
    """What `--agent` and `--model` say: for a role, or under "" for all."""

    agents: Mapping[str, str] = {}
    models: Mapping[str, str] = {}


ChooseProvider = Callable[[str | None], Awaitable["AgentProvider"]]
Prepare = Callable[["AgentProvider", SessionOptions, Callable[[str], object]], Awaitable[SessionOptions]]
"""From a provider and the options of a session to its options; what a person is to know is told on the way."""


@dataclass(frozen=True)
class Runtime:
    """What a host brings to a run. `choose` finds a provider by its name, None: the one to take if none is named."""

    home: Path
    project: Path
    choose: ChooseProvider
    entities: Entities
    workflows: Workflows
    tools: Tools
    cwd: Path | None = None  # None: the project
    settings: Settings = field(default_factory=Settings)
    choices: Choices = field(default_factory=Choices)
    caps: Caps = field(default_factory=Caps)
    on_limit: OnLimit = "wait"
    others: Sequence[str] = ()  # providers that `--on-limit switch` may go on with
    record: str | None = None
    trusted: bool = False  # the project's own hooks, plugins and MCP servers may run
    prepare: Prepare | None = None  # adds to each session what the user has configured
    person: Person | None = None
    clock: Callable[[], float] = time.time
    trust_after: Callable[[Any], Any] | None = (
        None  # what was trusted at a run's start, with what the run changed since
    )

    @property
    def folder(self) -> Path:
        return self.cwd or self.project


class Reporter(Protocol):
    """What a run is told by its runtime."""

    def activity(self, caller: Caller, event: AgentEvent) -> None: ...

    def cap(self, reached: CapReached) -> None: ...

    def parked(self, until: float) -> None: ...

    def call(self, line: Mapping[str, Any]) -> None: ...

    def tasks(self, tasks: Sequence[Task]) -> None: ...

    def warn(self, text: str) -> None: ...

    def answered(self, question: Question) -> None: ...

    def named(self, ids: Mapping[str, Sequence[str]]) -> None: ...


class LiveRuntime:
    """The runtime of one run: its governor, its sessions, its broker."""

    def __init__(
        self, host: Runtime, reporter: Reporter, governor: Governor, *, tasks: Path, named: Mapping[str, Sequence[str]]
    ) -> None:
        self.host, self.reporter, self.governor = host, reporter, governor
        self.sessions = NamedSessions(named, reporter.named, reporter.warn)
        self.tasks = RunTasks(tasks, reporter)
        self.broker = None if host.person is None else LiveBroker(host.person, governor, reporter)
        self.roles: set[str] = set()  # those that have called
        self._providers: dict[str | None, AgentProvider] = {}
        self._models: dict[str, Sequence[str]] = {}
        self._choosing = asyncio.Lock()

    @property
    def workflows(self) -> Workflows:
        return self.host.workflows

    def bound_to(self, ctx: StepContext) -> StepRuntime:
        """The view of one step."""
        return StepRuntime(self, ctx)

    async def provider(self, name: str | None) -> AgentProvider:
        """The provider of that name, made once. Raises AtomicError."""
        async with self._choosing:
            if name not in self._providers:
                self._providers[name] = await self.host.choose(name)
            return self._providers[name]

    async def default_name(self) -> str:
        """The provider to take where nobody names one."""
        host = self.host
        return host.choices.agents.get("") or host.settings.agent or (await self.provider(None)).name

    async def models(self, provider: AgentProvider, name: str) -> Sequence[str]:
        if name not in self._models:
            listed = await provider.models() if provider.capabilities.models else ()
            self._models[name] = [model.id for model in listed]
        return self._models[name]

    async def close(self) -> None:
        await self.sessions.close()

    async def prepared(self, provider: AgentProvider, options: SessionOptions) -> SessionOptions:
        prepare = self.host.prepare
        return options if prepare is None else await prepare(provider, options, self.reporter.warn)

    # what the door is told -------------------------------------------------------------------------------------

    def told_activity(self, caller: Caller, event: AgentEvent) -> None:
        self.reporter.activity(caller, event)

    def told_cap(self, reached: CapReached) -> None:
        self.reporter.cap(reached)

    def ended_call(self, line: Mapping[str, Any]) -> None:
        self.reporter.call(line)


class StepRuntime:
    """What one step may reach: the `ctx.deps` of its node."""

    def __init__(self, run: LiveRuntime, ctx: StepContext) -> None:
        self._run, self._ctx, self._host = run, ctx, run.host
        task = ctx.item.id if isinstance(ctx.item, Task) else None
        self._door = Door(run, ctx, Caller(ctx.node_id, task))
        self.bridge = StepBridge(self)

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
    def sessions(self) -> NamedSessions:
        return self._run.sessions

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
    ) -> str:
        """One turn in a fresh session, or in the named one. Raises TurnFailedError, ProviderError."""
        entity = None if agent is None else self.entities.require("agent", agent)
        caller = self.caller(prompt, agent)

        async def work(chosen: AgentProvider, name: str) -> str:
            options = await self._options(chosen, name, caller, entity, model, tools)
            guarded = self._door.guard(chosen, name, caller)
            if session is None:
                async with guarded.open(options) as fresh:
                    return await _answer(fresh, prompt)
            async with self.sessions.using(session, name, guarded, options) as shared:
                shared.door = self._door
                shared.about = msgspec.structs.replace(shared.about, caller=caller)
                return await _answer(shared, prompt)

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
        governor = self.governor
        preferred = _chosen(self._host.choices.agents, caller) or wanted or await self._run.default_name()
        while True:
            try:
                with self._ctx.resting():
                    name = await governor.provider_for(preferred, self._host.others)
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

    async def model_for(
        self, provider: AgentProvider, name: str, caller: Caller, wanted: str | None, entity: EntityLike | None = None
    ) -> str | None:
        """The flag's model; else the one that is asked for, as this provider calls it; else that of the settings."""
        flag = _chosen(self._host.choices.models, caller)
        if flag is not None:
            return flag
        if wanted == "inherit":
            wanted = None
        if wanted is None or provider.name in _FAMILIES_KNOWN:
            return wanted or self._host.settings.model
        if named_model(wanted) is not None and not provider.capabilities.models:
            return wanted
        known = await self._run.models(provider, name)
        original = getattr(entity, "original_model", None)
        fitting = wanted if wanted in known else fitting_model(known, original, wanted)
        return fitting or named_model(wanted) or self._host.settings.model


class StepBridge:
    """Spawns sub-agents for one step, over whichever provider serves their role."""

    def __init__(self, step: StepRuntime) -> None:
        self._step = step

    async def spawn(self, request: SubagentRequest) -> SubagentResult:
        """Run one to its end; with a schema its answer is in `value`."""
        step = self._step
        caller = step.caller(request.task, request.agent)

        async def work(chosen: AgentProvider, name: str) -> SubagentResult:
            entity = step.entities.require("agent", request.agent) if request.agent else None
            wanted = request.model or (entity.model if entity else None)
            model = await step.model_for(chosen, name, caller, wanted, entity)
            bridge = step_bridge(step, chosen, name, caller)
            return await bridge.spawn(msgspec.structs.replace(request, model=model or "inherit"))

        return await step.served(caller, None, work)

    async def spawn_parallel(
        self, requests: Sequence[SubagentRequest], max_concurrency: int | None = None
    ) -> list[SubagentResult]:
        """Run several at once; the results in the order of the requests. Where one must pause, the others end first."""
        bound = 4 if max_concurrency is None else max_concurrency
        places = asyncio.Semaphore(bound or max(1, len(requests)))
        held: list[Suspend] = []

        async def one(request: SubagentRequest) -> SubagentResult | None:
            async with places:
                try:
                    return await self.spawn(request)
                except Suspend as suspend:
                    held.append(suspend)
                    return None

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(request)) for request in requests]
        if held:
            raise held[0]
        return [result for task in tasks if (result := task.result()) is not None]

    async def ask_for(self, type: type[ResultT], request: SubagentRequest) -> ResultT:
        """An answer of that type. Raises SubagentError where none came."""
        from atomic.workflows.errors import SubagentError

        result = await self.spawn(msgspec.structs.replace(request, schema=type))
        if not result.success:
            raise SubagentError(request.agent or result.id, result.error or "no answer")
        return result.value


def step_bridge(step: StepRuntime, provider: AgentProvider, name: str, caller: Caller) -> Bridge:
    host = step._host  # pyright: ignore[reportPrivateUsage]  # one module, two halves of one thing
    return Bridge(
        step._door.guard(provider, name, caller),  # pyright: ignore[reportPrivateUsage]
        entities=host.entities,
        cwd=host.folder,
        record=host.record,
        trusted=host.trusted,
    )


class RunTasks:
    """The run's list of tasks, in `tasks.json` of its session."""

    def __init__(self, path: Path, reporter: Reporter) -> None:
        self.path, self._reporter = path, reporter

    def read(self) -> TaskList:
        """The list as it is. Raises TaskFileError."""
        return TaskList.read(self.path)

    def write(self, tasks: TaskList) -> None:
        """Replace the list, and tell the host."""
        self._reporter.tasks(tuple(tasks.tasks))


class LiveBroker:
    """Puts questions to the person of the host; an answer from another process counts as well."""

    def __init__(self, person: Person, governor: Governor, reporter: Reporter) -> None:
        self._person, self._governor, self._reporter = person, governor, reporter
        self._waiting: dict[str, asyncio.Future[Answer]] = {}

    async def ask(self, question: Question) -> Answer:
        """The answer. Raises Suspend where the person does not want to give one now."""
        elsewhere: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting[question.id] = elsewhere
        here = asyncio.create_task(_asked(self._person, question))
        try:
            with self._governor.resting():
                await asyncio.wait({here, elsewhere}, return_when=asyncio.FIRST_COMPLETED)
            answer = elsewhere.result() if elsewhere.done() else here.result()
        finally:
            del self._waiting[question.id]
            here.cancel()
            await asyncio.wait({here})
        if answer is None:
            raise Suspend(f"waits for an answer to '{question.id}'", question=question)
        self._reporter.answered(question)
        return answer

    def deliver(self, answers: Mapping[str, Answer]) -> None:
        """Answers that came from another process."""
        for id, answer in answers.items():
            waiting = self._waiting.get(id)
            if waiting is not None and not waiting.done():
                waiting.set_result(answer)


async def _asked(person: Person, question: Question) -> Answer | None:
    return await person.ask(question)


async def _answer(session: GuardedSession, prompt: str) -> str:
    ended: TurnEnded | None = None
    async for event in session.send(prompt):
        if isinstance(event, TurnEnded):
            ended = event
    if ended is None:
        raise TurnFailedError("error", "the stream ended without saying that the turn is over")
    if ended.reason is not EndReason.DONE:
        raise TurnFailedError(str(ended.reason), ended.error or f"the turn ended with '{ended.reason}'")
    return ended.text


def _chosen(choices: Mapping[str, str], caller: Caller) -> str | None:
    """What a flag says for this caller: by role, else by node, else for all."""
    base = caller.node.partition("[")[0]
    for word in (caller.role, caller.node, base):
        if word and word in choices:
            return choices[word]
    return choices.get("")


class NoWorkflows:
    """For hosts that have none."""

    def require(self, name: str) -> CompiledGraph[Any]:
        raise AtomicError(f'Workflow not found: "{name}"')
