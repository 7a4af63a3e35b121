"""The view of a run that each step gets as `ctx.deps`: it knows the node and the task
that it works for.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, TypeVar

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.step_names import split_first, without_items
from atomic.graph import Suspend
from atomic.providers.base import SessionOptions
from atomic.providers.model_names import FAMILIES_KNOWN, fitting_model, named_model, original_model
from atomic.runs.agent_calls import Caller, MeteredProvider, MeteredSession, ProviderLimited, StepCalls
from atomic.runs.limits import CapReached
from atomic.runs.named_sessions import NamedSessions
from atomic.runs.rate_limits import Parked
from atomic.runs.single_turns import answer_in_new_session, answer_of, supported_options
from atomic.runs.subagents import Bridge, StepBridge, SubagentResults
from atomic.tasks import Task
from atomic.workflows.runtime import Entities, EntityLike, Tools, Workflows, message_of
from atomic.workspaces import BranchMovedError, Conflict, Landed, OpenWorkspace, View, Work

if TYPE_CHECKING:
    from atomic.providers.base import AgentProvider, ContextUsage, CustomTool
    from atomic.runs.calling_step import CallingStep
    from atomic.runs.runtime import RunRuntime

ResultT = TypeVar("ResultT")
ProblemT = TypeVar("ProblemT")


class StepRuntime:
    """The `ctx.deps` of one step."""

    def __init__(self, run: RunRuntime, ctx: CallingStep) -> None:
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
                options, text = supported_options(chosen.capabilities, options, prompt)
            metered = self._calls.meter(chosen, name, caller, view_of(workspace))
            if session is None:
                return await answer_in_new_session(metered, options, text)
            async with self._run.sessions.using(session, name, metered, options) as shared:
                shared.calls = self._calls
                shared.about = msgspec.structs.replace(shared.about, caller=caller)
                return await answer_of(shared, text)

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
        if (wanted or original) is None or provider.name in FAMILIES_KNOWN:
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


def _chosen(choices: Mapping[str, str], caller: Caller) -> str | None:
    """Return the flag for a caller: by role, by step, by node, by the node around it,
    else the one for all.
    """
    for word in (caller.role, caller.node, without_items(caller.node), split_first(caller.node)[0]):
        if word and word in choices:
            return choices[word]
    return choices.get("")
