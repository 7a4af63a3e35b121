"""The runtime of a run: the parts that all its steps share.

A host gives a `Runtime` (`runs/host.py`). The run builds one `RunRuntime` from it,
which owns the budget, event log, named sessions, task list and facts. Each step gets a
`StepRuntime` (`runs/step_runtime.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.git import GitError
from atomic.graph import Suspend
from atomic.loading.run_changes import RunChanges
from atomic.loading.trusted_files import SETUP
from atomic.providers.base import SessionOptions
from atomic.providers.environment import child_environment
from atomic.runs.budget import Budget
from atomic.runs.events import TasksChanged
from atomic.runs.host import HostBroker, Runtime
from atomic.runs.isolation import announce_branch, no_workspaces, require_kind
from atomic.runs.kept_tasks import KeptTasks, RunTasks
from atomic.runs.named_sessions import NamedSessions
from atomic.runs.step_runtime import StepRuntime
from atomic.sessions.facts import Facts
from atomic.sessions.model import Cost
from atomic.workflows.runtime import Workflows
from atomic.workspaces import ProjectSetup, RunWorkspaces, WorkspaceError

if TYPE_CHECKING:
    from atomic.providers.base import AgentProvider
    from atomic.runs.calling_step import CallingStep
    from atomic.runs.run_events import RunEvents
    from atomic.sessions.store import Session


class RunRuntime:
    """The parts of a run that all its steps share."""

    def __init__(
        self,
        host: Runtime,
        session: Session,
        events: RunEvents,
        config: Mapping[str, Any],
        *,
        waits_for_signals: bool = False,
    ) -> None:
        self.host = host
        # For the engine: whether a wait keeps the process, and its clocks.
        self.waits_for_signals = waits_for_signals
        self.park = host.park
        self.clock = host.clock
        self.session = session
        self.events = events
        self.config = MappingProxyType(config)  # no node may change it for the others
        self.facts = Facts(session.dir, session.redactor)  # the run opens it with its journal
        self.workspaces = RunWorkspaces(
            session.id,
            host.home or session.dir.parent.parent,
            self.facts,
            self.facts.set,
            host.folder,
            host.settings.workspace,
            setup=_setup_of(host),
            hidden=[session.dir.parent],  # a program in a workspace could remove the journal of a run
        )
        kept_tasks = KeptTasks(session.dir, self.facts, session.redactor)
        self.tasks = RunTasks(kept_tasks, lambda tasks: events.emit(TasksChanged, tasks=tasks))
        self.changes = RunChanges(session, approved=host.approved)
        self.budget = Budget(
            host.caps, on_limit=host.on_limit, run=session.id, caller=host.caller, warn=events.warn, clock=host.clock
        )
        self.resting = self.budget.resting
        self.sessions = NamedSessions(session.record.named, events.save_named_sessions, events.warn)
        self.broker = None if host.person is None else HostBroker(host.person, self.budget, events)
        self.cancels_for_good = False  # a cancelled stream of a function ends the run: compensations run
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

    def bound_to(self, ctx: CallingStep) -> StepRuntime:
        """Return the view of one step."""
        return StepRuntime(self, ctx)

    @property
    def cost(self) -> Cost:
        """Return the cost of the run so far."""
        return msgspec.structs.replace(self.budget.spent, is_incomplete=self.budget.is_incomplete).cost

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
        try:
            await self.sessions.close()
        finally:
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
