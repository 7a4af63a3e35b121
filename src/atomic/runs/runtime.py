"""The runtime of a run, and the view of it that each step gets as `ctx.deps`.

A host gives a `Runtime` (`runs/host.py`). The run builds one `RunRuntime` from it,
which owns the shared parts: budget, event log, named sessions, task list, facts. Each
step gets a `StepRuntime`, which knows the node and the task that it works for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.step_names import split_first, without_items
from atomic.git import GitError
from atomic.graph import Suspend
from atomic.loading.run_changes import RunChanges
from atomic.loading.trusted_files import SETUP
from atomic.providers.base import Capabilities, SessionOptions
from atomic.providers.environment import child_environment
from atomic.providers.errors import UnsupportedError
from atomic.providers.events import EndReason, TurnEnded
from atomic.providers.model_names import fitting_model, named_model, original_model
from atomic.runs.agent_calls import Caller, MeteredProvider, MeteredSession, ProviderLimited, StepCalls
from atomic.runs.budget import Budget
from atomic.runs.event_log import EventLog
from atomic.runs.events import TasksChanged
from atomic.runs.host import HostBroker, Runtime
from atomic.runs.isolation import announce_branch, no_workspaces, require_kind
from atomic.runs.kept_tasks import KeptTasks, RunTasks
from atomic.runs.limits import CapReached
from atomic.runs.named_sessions import NamedSessions
from atomic.runs.rate_limits import Parked
from atomic.runs.subagents import Bridge, StepBridge, SubagentResults
from atomic.sessions.facts import Facts
from atomic.sessions.model import Cost
from atomic.tasks import Task
from atomic.workflows.errors import TurnFailedError
from atomic.workflows.runtime import Entities, EntityLike, Tools, Workflows, message_of
from atomic.workspaces import (
    BranchMovedError,
    Conflict,
    Landed,
    OpenWorkspace,
    ProjectSetup,
    RunWorkspaces,
    View,
    Work,
    WorkspaceError,
)

if TYPE_CHECKING:
    from atomic.graph.engine.context import StepContext
    from atomic.providers.base import AgentProvider, ContextUsage, CustomTool
    from atomic.sessions.store import Session

ResultT = TypeVar("ResultT")
ProblemT = TypeVar("ProblemT")
_FAMILIES_KNOWN = ("claude", "replay")  # providers with models called opus, sonnet and haiku


class RunRuntime:
    """The parts of a run that all its steps share."""

    def __init__(self, host: Runtime, session: Session, events: EventLog, config: Mapping[str, Any]) -> None:
        self.host = host
        self.session = session
        self.events = events
        self.config = MappingProxyType(config)  # no node may change it for the others
        self.facts = Facts(session.dir, session.redactor)  # the run opens it with its journal
        self.workspaces = RunWorkspaces(
            session.id,
            session.dir.parent.parent,
            self.facts,
            self.facts.set,
            host.folder,
            host.settings.workspace,
            setup=_setup_of(host),
        )
        kept_tasks = KeptTasks(session.dir, self.facts, session.redactor)
        self.tasks = RunTasks(kept_tasks, lambda tasks: events.emit(TasksChanged, tasks=tasks))
        self.changes = RunChanges(session, approved=host.approved)
        self.budget = Budget(host.caps, on_limit=host.on_limit, run=session.id, warn=events.warn, clock=host.clock)
        self.sessions = NamedSessions(session.record.named, events.save_named_sessions, events.warn)
        self.broker = None if host.person is None else HostBroker(host.person, self.budget, events)
        self.roles: set[str] = set()  # the roles, agents and nodes that have called an agent
        self._providers: dict[str | None, AgentProvider] = {}
        self._models: dict[str, Sequence[str]] = {}
        self._choosing = asyncio.Lock()
        self._beginning = asyncio.Lock()  # of the workspaces
        # For the engine, which asks before each step. None: nothing to ask.
        self.pause_before_step = None if host.caps.max_time is None else self._pause_before_step

    @property
    def workflows(self) -> Workflows:
        return self.host.library.workflows

    def _pause_before_step(self) -> Suspend | None:
        reached = self.budget.time_reached
        if reached is None:
            return None
        self.events.cap_reached(reached)
        return Suspend(str(reached), code=reached.kind, begun=False, remedy=reached.remedy)

    def bound_to(self, ctx: StepContext) -> StepRuntime:
        """Return the view of one step."""
        return StepRuntime(self, ctx)

    @property
    def cost(self) -> Cost:
        """Return the cost of the run so far."""
        spent = self.budget.spent
        return Cost(spent.known_usd, spent.input_tokens, spent.output_tokens)

    async def provider(self, name: str | None) -> AgentProvider:
        """Return the provider of that name, created once. Raises AtomicError."""
        async with self._choosing:
            if name not in self._providers:
                self._providers[name] = await self.host.choose(name)
            return self._providers[name]

    async def default_name(self) -> str:
        """Return the name of the provider that is used if none is named."""
        named = self.host.choices.agents.get("") or self.host.settings.agent
        return named or (await self.provider(None)).name

    async def adopt_old_limit(self) -> None:
        """Keep the usage limit of a run of an older version, whose session has only the
        time of the reset: it is the limit of the run's own agent.

        Raises AtomicError.
        """
        until = self.session.record.parked_until
        if until is None or self.budget.rate_limits.are_known:
            return
        agent = self.session.record.options.get("agents", {}).get("") or self.host.settings.agent
        if agent is None and not self.host.choices.agents.get(""):  # it continues with the agent that was found then
            agent = await self.default_name()
        if agent is not None:
            self.budget.rate_limits.adopt(until, agent)

    @property
    def configured(self) -> Sequence[str]:
        """Return the providers that flags and settings name."""
        settings = self.host.settings
        named = [*self.host.choices.agents.values(), settings.agent, *settings.providers]
        named += [f"acp:{name}" for name in settings.acp]
        return list(dict.fromkeys(filter(None, named)))

    def provider_of(self, role: str) -> str | None:
        """Return the provider that flags and settings name for a role.

        None: the default one.
        """
        agents = self.host.choices.agents
        return agents.get(role) or agents.get("") or self.host.settings.agent

    async def models(self, provider: AgentProvider, name: str) -> Sequence[str]:
        """Return the ids of a provider's models, read once.

        Empty if it cannot list them.
        """
        if name not in self._models:
            listed = await provider.models() if provider.capabilities.models else ()
            self._models[name] = [model.id for model in listed]
        return self._models[name]

    async def prepare(self, provider: AgentProvider, options: SessionOptions) -> SessionOptions:
        """Return the options of a session with the user's configuration."""
        if self.host.prepare is None:
            return options
        return await self.host.prepare(provider, options, self.events.warn)

    def end_call(self, line: Mapping[str, Any]) -> None:
        """Record an ended call in the logs, in the cost, and its changes of the
        project.
        """
        self.events.call_ended(line)
        self.session.save(cost=self.cost, durable=False)
        self.changes.note()

    async def begin_workspaces(self) -> None:
        """Make the run's branch and the base of its workspaces, if there are none.

        Raises IsolationError if they cannot work here, WorkspaceError.
        """
        async with self._beginning:
            if self.workspaces.branch is not None:
                return
            whole = bool(self.config.get("include_uncommitted"))
            begun = await self.workspaces.begin(require_kind(self.config), include_uncommitted=whole)
            if isinstance(begun, str):
                raise no_workspaces(begun)
            for text in announce_branch(begun, await self.workspaces.uncommitted()):
                self.events.warn(text)

    async def close(self, *, completed: bool) -> None:
        """Close the named sessions, and remove what no resume needs."""
        await self.sessions.close()
        try:
            await self.workspaces.close(completed=completed)
        except (WorkspaceError, GitError) as error:  # the folder stays, and the run has its own end
            self.events.warn(str(error))


def _setup_of(host: Runtime) -> ProjectSetup | None:
    """Return how workspaces are set up: the user's own command comes first."""
    command = host.settings.workspace.setup
    if not command and host.setup is None:
        return None
    script = None if command else host.setup
    env = child_environment(passed=host.settings.checks.env)
    return ProjectSetup(command or SETUP, host.project, script, env)


class StepRuntime:
    """The `ctx.deps` of one step."""

    def __init__(self, run: RunRuntime, ctx: StepContext) -> None:
        self._run = run
        self._ctx = ctx
        self._host = run.host
        self.broker = run.broker
        self.config = run.config
        self.facts = run.facts
        self.files = run.session
        self.tasks = run.tasks
        self.workspaces = run.workspaces
        self.clock = run.host.clock
        self.project = run.host.project
        self.folder = run.host.folder
        self.trusted = run.host.trusted  # the user has approved the project's own code
        task = ctx.item.id if isinstance(ctx.item, Task) else None
        self._calls = StepCalls(run, ctx, Caller(ctx.node_id, task))
        self.bridge = StepBridge(self, SubagentResults(ctx))

    @property
    def entities(self) -> Entities:
        return self._host.library.entities

    @property
    def workflows(self) -> Workflows:
        return self._host.library.workflows

    @property
    def tools(self) -> Tools:
        return self._host.library.tools

    @property
    def sessions(self) -> StepSessions:
        return StepSessions(self, self._run.sessions)

    @property
    def check_variables(self) -> Sequence[str]:
        """Return the environment variables that checks get although they look like
        secrets.
        """
        return self._host.settings.checks.env

    @property
    def configured(self) -> Sequence[str]:
        """Return the providers that flags and settings name."""
        return self._run.configured

    def provider_of(self, role: str) -> str | None:
        """Return the provider that flags and settings name for a role.

        None: the default one.
        """
        return self._run.provider_of(role)

    def publish(self, url: str) -> None:
        """Save the address where the work was published."""
        self._run.session.save(pr=url)

    def workspace_name(self, request: str = "") -> str:
        """Return the name of this step's own workspace, or of that of a request in it."""
        ctx = self._ctx
        own = ctx.node_id if ctx.n == 1 else f"{ctx.node_id}#{ctx.n}"
        rest = request.removeprefix(ctx.step_id)
        if rest == request and request:
            return f"{own}-{request}"
        return f"{own}{rest}"

    @asynccontextmanager
    async def workspace(
        self,
        name: str = "",
        *,
        continues: Work | None = None,
        message: str = "",
        start: str = "",
        at: str = "",
        attempt: int = 0,
        keep: bool = False,
    ) -> AsyncGenerator[OpenWorkspace]:
        """Open a workspace of the run. See `WorkflowRuntime.workspace`."""
        spaces = self.workspaces
        if continues is not None:
            name = continues.name
            start = start or continues.start
            at = at or continues.commit
        name = name or self.workspace_name()
        # A process may have been killed when the workspace was removed, and before the
        # step was recorded.
        done = self._ctx.remembered(f"work of {name}")
        if done is not None:
            start = start or done["start"]
            at = done["commit"]
        with self._pausing():
            await self._run.begin_workspaces()
            async with spaces.use(
                name,
                message=message or message_of(name, f"Work of {name}"),
                start=start,
                at=at,
                attempt=attempt,
                keep=keep,
                former=() if continues is None else (*continues.former, continues.commit),
                before_end=None if keep else lambda work: self._ctx.remember(f"work of {name}", work),
            ) as place:
                yield place

    async def merge(
        self, work: Work, *, order: int = 0, check: Callable[[str], Awaitable[ProblemT | None]] | None = None
    ) -> Landed | Conflict | ProblemT:
        """Put work on top of the run's branch. See `WorkflowRuntime.merge`."""
        with self._pausing():
            return await self.workspaces.merge(work, order=order, check=check)

    @contextmanager
    def _pausing(self) -> Generator[None]:
        """Pause the run if another program has moved its branch."""
        try:
            yield
        except BranchMovedError as error:
            pause = Suspend(str(error), code=error.code)
            self._ctx.hold(pause)
            raise pause from error

    @asynccontextmanager
    async def timed(self, what: str) -> AsyncGenerator[None]:
        """Interrupt the body, which is not a turn, after `--max-time` and its grace.

        The run pauses then.
        """
        try:
            async with self._run.budget.timed(what):
                yield
        except CapReached as reached:
            raise self._calls.suspend(reached, is_cut=True) from reached

    async def provider(self, name: str | None = None) -> MeteredProvider:
        """Return a provider whose calls are charged to the budget, logged and
        published.
        """
        chosen = name or await self._run.default_name()
        return self._calls.meter(await self._run.provider(chosen), chosen)

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
        workspace: OpenWorkspace | View | None = None,
    ) -> str:
        """Run one turn in a new session, or in the named one, and return the answer.

        The agent's program runs in the workspace, if one is given. `custom_tools` are
        offered if the provider supports them. The model is, in this
        order: `model`, the run's model, the model of the agent's file unless the agent
        is built in. With `strict=False` a system prompt or tools that the provider does
        not support are moved into the prompt or left out. Raises TurnFailedError,
        ProviderError.
        """
        if session is not None and workspace is not None:
            raise AtomicError(f'The session "{session}" outlives the workspace: give a turn in it no session=')
        entity = None if agent is None else self.entities.require("agent", agent)
        source = getattr(entity, "source", None)
        is_builtin = source is not None and source.location == "builtin"
        file = None if source is None or is_builtin else str(source.path)
        caller = msgspec.structs.replace(self.caller(prompt, agent), file=file)
        wanted = model or self._ctx.model
        if not wanted and entity is not None and not is_builtin:  # a built-in agent must not choose the user's costs
            wanted = entity.model

        async def work(chosen: AgentProvider, name: str) -> str:
            options = await self._options(chosen, name, caller, entity, wanted, tools)
            if custom_tools and chosen.capabilities.custom_tools:
                options = msgspec.structs.replace(options, custom_tools=custom_tools)
            text = prompt
            if not strict:
                options, text = _supported(chosen.capabilities, options, prompt)
            metered = self._calls.meter(chosen, name, caller, view_of(workspace))
            if session is None:
                return await _answer_in_new_session(metered, options, text)
            async with self._run.sessions.using(session, name, metered, options) as shared:
                shared.calls = self._calls
                shared.about = msgspec.structs.replace(shared.about, caller=caller)
                return await _answer(shared, text)

        return await self.serve(caller, provider, work)

    def caller(self, prompt: str, agent: str | None) -> Caller:
        """Return who calls: the role that the prompt names, or the agent's name."""
        caller = msgspec.structs.replace(self._calls.caller, role=agent or None).named_in(prompt)
        self._run.roles.update(word for word in (caller.role, agent, caller.node) if word)
        return caller

    async def serve(
        self, caller: Caller, wanted: str | None, work: Callable[[AgentProvider, str], Awaitable[ResultT]]
    ) -> ResultT:
        """Do the work with a provider that is not rate-limited.

        If the provider reaches its limit, wait for it or switch to another one, and do
        the work again. That does not count as a failed attempt.
        """
        preferred = _chosen(self._host.choices.agents, caller) or wanted or await self._run.default_name()
        return await self._serve(preferred, self._host.others, work)

    async def _serve(
        self, preferred: str, others: Sequence[str], work: Callable[[AgentProvider, str], Awaitable[ResultT]]
    ) -> ResultT:
        limits = self._run.budget.rate_limits
        while True:
            try:
                with self._ctx.resting():
                    name = await limits.provider_for(preferred, others)
            except Parked as parked:
                raise self._calls.suspend(parked) from parked
            try:
                return await work(await self._run.provider(name), name)
            except ProviderLimited as limit:
                self._run.events.provider_limited(limits.park(limit.reset_at, name))

    async def _options(
        self,
        provider: AgentProvider,
        name: str,
        caller: Caller,
        entity: EntityLike | None,
        model: str | None,
        tools: Sequence[str] | None,
    ) -> SessionOptions:
        if tools is None and entity is not None:
            tools = entity.tools
        return SessionOptions(
            cwd=self._host.folder,
            system_prompt=None if entity is None else entity.prompt,
            model=await self.model_for(provider, name, caller, model, entity),
            tools=tools,
            denied_tools=() if entity is None else entity.denied_tools,
            record=self._host.record,
            trusted=self._host.trusted,
        )

    def bridge_to(self, provider: AgentProvider, name: str, caller: Caller, view: View | None) -> Bridge:
        """Return a bridge that spawns sub-agents over that provider, charged to the
        budget. Their programs run in the view, if one is given.
        """
        host = self._host
        metered = self._calls.meter(provider, name, caller, view)
        return Bridge(
            metered, entities=host.library.entities, cwd=host.folder, record=host.record, trusted=host.trusted
        )

    async def model_for(
        self, provider: AgentProvider, name: str, caller: Caller, wanted: str | None, entity: EntityLike | None = None
    ) -> str | None:
        """Return the model of the flag, else the wanted one as this provider calls it.

        If it has neither, return the model of the settings.
        """
        flag = _chosen(self._host.choices.models, caller)
        if flag is not None:
            return flag
        original = None
        if entity is not None and wanted == entity.model:
            original = original_model(entity, provider.name)
        if wanted == "inherit":
            wanted = None
        if (wanted or original) is None or provider.name in _FAMILIES_KNOWN:
            return wanted or self._host.settings.model
        if named_model(wanted) is not None and not provider.capabilities.models:
            return wanted
        known = await self._run.models(provider, name)
        fitting = wanted if wanted in known else fitting_model(known, original, wanted)
        return fitting or named_model(wanted) or self._host.settings.model

    async def with_named(self, name: str, work: Callable[[MeteredSession], Awaitable[ResultT]]) -> ResultT | None:
        """Do something with a named session, over the provider that has it.

        None if there is no such session.
        """
        sessions = self._run.sessions
        caller = self._calls.caller
        provider = sessions.provider_of(name)
        if provider is None:
            return None

        async def use(chosen: AgentProvider, called: str) -> ResultT | None:
            options = await self._options(chosen, called, caller, None, self._ctx.model, None)
            metered = self._calls.meter(chosen, called, caller)
            async with sessions.between_turns(name, metered, options) as session:
                if session is None:
                    return None
                session.calls = self._calls
                session.about = msgspec.structs.replace(session.about, caller=caller)
                return await work(session)

        return await self._serve(provider, (), use)


class StepSessions:
    """The named sessions of the run, as one step uses them."""

    def __init__(self, step: StepRuntime, shared: NamedSessions) -> None:
        self._step = step
        self._shared = shared

    async def clear(self, name: str) -> None:
        """End a session, so that the next turn under its name starts a new one."""
        await self._shared.clear(name)

    async def context(self, name: str) -> ContextUsage | None:
        """Return the context meter of a session; None if there is no such session."""
        return await self._step.with_named(name, lambda session: session.context())

    async def compact(self, name: str) -> None:
        """Summarise the context of a session. Raises Suspend if a cap is reached."""
        await self._step.with_named(name, lambda session: session.compact())


def view_of(workspace: OpenWorkspace | View | None) -> View | None:
    """Return the view in which programs of a workspace start."""
    return workspace.view if isinstance(workspace, OpenWorkspace) else workspace


def _supported(can: Capabilities, options: SessionOptions, prompt: str) -> tuple[SessionOptions, str]:
    """Return the options that a provider supports.

    An unsupported system prompt is added to the prompt.
    """
    if options.system_prompt is not None and not can.system_prompt:
        prompt = f"{prompt}\n---\n\n{options.system_prompt}"
        options = msgspec.structs.replace(options, system_prompt=None)
    if not can.tool_selection:
        options = msgspec.structs.replace(options, tools=None, denied_tools=())
    return options, prompt


async def _answer_in_new_session(provider: MeteredProvider, options: SessionOptions, prompt: str) -> str:
    """Run one turn in a new session.

    Without custom tools if the agent refuses them when it starts.
    """
    try:
        async with provider.open(options) as session:
            return await _answer(session, prompt)
    except UnsupportedError:
        if not options.custom_tools:
            raise
    return await _answer_in_new_session(provider, msgspec.structs.replace(options, custom_tools=()), prompt)


async def _answer(session: MeteredSession, prompt: str) -> str:
    """Run one turn and return its text. Raises TurnFailedError."""
    ended: TurnEnded | None = None
    async for event in session.send(prompt):
        if isinstance(event, TurnEnded):
            ended = event
    if ended is None:
        raise TurnFailedError("error", "the agent's output stopped before the end of the turn")
    if ended.reason is not EndReason.DONE:
        why = ended.error or f"the turn ended with '{ended.reason}'"
        raise TurnFailedError(str(ended.reason), why, said=ended.text)
    return ended.text


def _chosen(choices: Mapping[str, str], caller: Caller) -> str | None:
    """Return the flag for a caller: by role, by step, by node, by the node around it,
    else the one for all.
    """
    for word in (caller.role, caller.node, without_items(caller.node), split_first(caller.node)[0]):
        if word and word in choices:
            return choices[word]
    return choices.get("")
