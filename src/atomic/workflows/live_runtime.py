"""The real runtime of one run: its governor, its sessions, its broker, over real agents.

A host brings a `Runtime`; a run makes a `LiveRuntime` of it; each step gets its own view, a `StepRuntime`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from atomic.providers.base import SessionOptions
from atomic.providers.events import AgentEvent
from atomic.sessions.facts import Facts
from atomic.tasks import TaskList
from atomic.workflows.broker import LiveBroker
from atomic.workflows.door import Caller
from atomic.workflows.governor import CapReached, Governor
from atomic.workflows.host_runtime import Reporter, Runtime
from atomic.workflows.kept_tasks import KeptTasks
from atomic.workflows.named_sessions import NamedSessions
from atomic.workflows.runtime import Workflows
from atomic.workflows.step_runtime import StepRuntime

if TYPE_CHECKING:
    from atomic.graph.context import StepContext
    from atomic.providers.base import AgentProvider
    from atomic.sessions.store import Session


class LiveRuntime:
    """The runtime of one run: its governor, its sessions, its broker."""

    def __init__(
        self,
        host: Runtime,
        reporter: Reporter,
        governor: Governor,
        session: Session,
        *,
        config: Mapping[str, Any],
        facts: Facts,
        tasks: KeptTasks,
    ) -> None:
        self.host, self.reporter, self.governor, self.session = host, reporter, governor, session
        self.sessions = NamedSessions(session.record.named, reporter.named, reporter.warn)
        self.tasks = RunTasks(tasks, reporter)
        self.facts = facts  # the run opens it with its journal
        self.config = MappingProxyType(config)  # one for all nodes: none may change it for the others
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

    @property
    def configured(self) -> Sequence[str]:
        """The providers that flags and settings name."""
        settings = self.host.settings
        named = [*self.host.choices.agents.values(), settings.agent, *settings.providers]
        return list(dict.fromkeys(filter(None, [*named, *(f"acp:{name}" for name in settings.acp)])))

    def provider_of(self, role: str) -> str | None:
        agents = self.host.choices.agents
        return agents.get(role) or agents.get("") or self.host.settings.agent

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

    def began_call(self, line: Mapping[str, Any]) -> None:
        self.reporter.began_call(line)

    def ended_call(self, line: Mapping[str, Any]) -> None:
        self.reporter.call(line)


class RunTasks:
    """The run's list of tasks, in its journal; `tasks.json` of the session is a copy."""

    def __init__(self, kept: KeptTasks, reporter: Reporter) -> None:
        self._kept, self._reporter = kept, reporter

    @property
    def path(self) -> Path:
        return self._kept.path

    def read(self) -> TaskList:
        """The list as it is. Raises TaskFileError."""
        return self._kept.read()

    def write(self, tasks: TaskList) -> None:
        """Replace the list, and tell the host."""
        self._reporter.tasks(tuple(tasks.tasks))

    def load(self, path: str) -> TaskList:
        """Read the list that a loop works on. Raises TaskFileError, NoTaskListError."""
        return self._kept.read() if self._kept.is_at(path) else TaskList.read(path)

    def keep(self, path: str, tasks: TaskList) -> None:
        """Replace a list that somebody works on; in the folder of the session it is without secrets."""
        self._reporter.write_tasks(path, tasks)
