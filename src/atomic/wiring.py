"""Build everything that a host needs of a project: the only composition root.

`Project` reads each part once, when it is first used, and hands it down. There is no
global.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.config import ConfigError, Settings, atomic_home, config_home, current_folder, find_project, load_settings

if TYPE_CHECKING:  # a list of servers needs no workflows, and a turn no commands
    from atomic.base.redaction import Redactor
    from atomic.commands import CommandRegistry
    from atomic.entities import EntityRegistry
    from atomic.loading.catalog import WorkflowCatalog
    from atomic.loading.project_tools import ToolCatalog
    from atomic.loading.trust import Snapshot
    from atomic.mcp import McpAnswer, McpList
    from atomic.providers import AgentProvider, SessionOptions
    from atomic.providers.mcp_servers import ConfiguredServers, SessionMcp
    from atomic.runs.host import Person, Runtime
    from atomic.sessions.store import SessionStore
    from atomic.workflows.definition import LoadedWorkflow, Untrusted, WorkflowDefinition


class RunFlags(msgspec.Struct, frozen=True):
    """The flags of every run; None for a flag that was not given."""

    agents: Mapping[str, str] = {}
    models: Mapping[str, str] = {}
    caps: Mapping[str, float] = {}
    on_limit: Any = None
    record: str | None = None
    park: bool = False
    trust: str | None = None
    config: Mapping[str, Any] = {}  # from the workflow's own flags

    def over(self, old: Mapping[str, Any]) -> RunFlags:
        """Return these flags, with the flags of the run's start as defaults."""
        old_caps = {name: cap for name, cap in old.get("caps", {}).items() if cap is not None}
        return msgspec.structs.replace(
            self,
            agents={**old.get("agents", {}), **self.agents},
            models={**old.get("models", {}), **self.models},
            caps={**old_caps, **self.caps},
            on_limit=self.on_limit or old.get("on_limit"),
            record=self.record or old.get("record"),
            park=self.park or bool(old.get("park")),
        )


class Project:
    """One project, its user, and everything that they configure.

    `folder` defaults to the project of `cwd`, `cwd` to the current folder. `user`
    replaces the home folder. `trust` is the hash of `--trust`. `settings` replace the
    files.
    """

    def __init__(
        self,
        folder: Path | None = None,
        user: Path | None = None,
        *,
        cwd: Path | None = None,
        trust: str | None = None,
        settings: Settings | None = None,
    ) -> None:
        self._folder = folder or find_project(cwd)  # None if the current folder was deleted
        self._cwd = cwd
        self._user = user
        self._trust = trust
        self._given_settings = settings
        self._workflows: WorkflowCatalog | None = None
        self._tools: ToolCatalog | None = None
        self._entities: EntityRegistry | None = None
        self._commands: CommandRegistry | None = None
        self._mcp: McpList | None = None
        self._session_mcp: dict[str, SessionMcp] = {}
        self._trying_servers = asyncio.Lock()
        self._default_provider: AgentProvider | None = None

    @property
    def folder(self) -> Path:
        """The root folder of the project. Raises NoCurrentFolderError."""
        return self._folder or current_folder()

    @cached_property
    def cwd(self) -> Path:
        """The folder that agents work in. Raises NoCurrentFolderError."""
        return self._cwd or current_folder()

    @cached_property
    def settings(self) -> Settings:
        """The settings of the user and the project. Raises ConfigError."""
        if self._given_settings is not None:
            return self._given_settings
        return load_settings(self._folder, None if self._user is None else self._user / ".atomic")

    @property
    def workflows(self) -> WorkflowCatalog:
        """The workflows. Finding them runs no code of the project."""
        from atomic.loading.catalog import WorkflowCatalog

        if self._workflows is None:
            self._workflows = WorkflowCatalog(self._folder, self._user, trusted=self._trust)
        return self._workflows

    @property
    def snapshot(self) -> Snapshot:
        """The code of the project as it was when it was first read, and whether it is
        approved.
        """
        return self.workflows.snapshot

    @property
    def tools(self) -> ToolCatalog:
        """The custom tools, from the same snapshot as the workflows."""
        from atomic.loading.project_tools import ToolCatalog

        if self._tools is None:
            self._tools = ToolCatalog(self.workflows)
        return self._tools

    @property
    def entities(self) -> EntityRegistry:
        """The commands, skills and agents."""
        from atomic.entities import EntityRegistry

        if self._entities is None:
            self._entities = EntityRegistry.load(self._folder, self._user, is_trusted=lambda: self.snapshot.approved)
        return self._entities

    @property
    def entity_notices(self) -> list[str]:
        """A message about the project's files that have the names of built-in agents
        and skills.
        """
        covering = self.entities.covering
        if not covering:
            return []
        start = self._folder or os.curdir
        named = ", ".join(f"{one.name} ({os.path.relpath(one.source.path, start)})" for one in covering)
        if self.entities.ignored:
            return [f"Built-in ones are used instead of the project's {named}: it is not trusted (atomic trust)"]
        return [f"Used from the project instead of the built-in: {named}"]

    @property
    def commands(self) -> CommandRegistry:
        """All slash commands."""
        if self._commands is None:
            self._commands = self._build_commands()
        return self._commands

    def _build_commands(self) -> CommandRegistry:
        from atomic.commands import CommandRegistry, builtin_commands, entity_commands, workflow_commands

        workflows = workflow_commands(self.workflows.all())
        return CommandRegistry.of([*builtin_commands(), *workflows, *entity_commands(self.entities)])

    def refresh(self) -> bool:
        """Read what changed on the disk, and return whether the commands changed."""
        if self._commands is None:
            self._commands = self._build_commands()
            return True
        before = [_facts(definition) for definition in self.workflows.all()]
        self._workflows = None
        self._tools = None
        changed = self.entities.refresh()
        if [_facts(definition) for definition in self.workflows.all()] != before:
            changed = True
        if changed:
            self._commands = self._build_commands()
        return changed

    def is_trusted(self) -> bool:
        """Return whether agents may run the project's hooks, plugins and servers.

        Reads the disk again.
        """
        home = atomic_home() if self._user is None else self._user / ".atomic"
        if not os.path.exists(home / "trust.json"):
            return False
        from atomic.loading import trust

        return trust.look(self.folder, home=home).allows(self.cwd)

    @cached_property
    def redactor(self) -> Redactor:
        """Knows the secrets of the environment, the settings and the MCP servers."""
        from atomic.base.redaction import Redactor

        try:
            environments = [known.env for known in self.settings.providers.values()]
        except ConfigError:  # it is reported when the settings are used
            environments = []
        servers = self.mcp.entries
        environments += [server.env for server in servers]
        headers = [server.headers for server in servers]
        return Redactor.of_environment(*environments, headers=headers)

    @cached_property
    def store(self) -> SessionStore:
        """The sessions of the user, without secrets."""
        from atomic.sessions.store import SessionStore

        return SessionStore(atomic_home(), self.redactor)

    @property
    def mcp(self) -> McpList:
        """The configured MCP servers."""
        from atomic.mcp import load_mcp_entries

        if self._mcp is None:
            self._mcp = load_mcp_entries(self._folder, self._user)
        return self._mcp

    def switch_mcp_server(self, name: str, enabled: bool) -> None:
        """Switch a server on or off. Raises McpStateError."""
        from atomic.mcp import set_enabled

        set_enabled(name, enabled, project=self._folder, user=self._user)
        self._mcp = None
        self._session_mcp.clear()

    def configured_servers(self, *, trusted: bool) -> ConfiguredServers:
        """Return the MCP servers, to list tools or to choose servers of a session.

        Raises ConfigError.
        """
        from atomic.providers.mcp_servers import ConfiguredServers

        return ConfiguredServers(
            self.mcp,
            project=self._folder,
            home=self._user or Path.home(),
            atomic_home=config_home() if self._user is None else self._user / ".atomic",
            passed_variables=self.settings.env.pass_,
            trusted=trusted,
        )

    async def mcp_tools(self, *, trusted: bool = False) -> list[McpAnswer]:
        """Start all servers that may be used, and ask for their tools."""
        return await self.configured_servers(trusted=trusted).tools()

    async def session_mcp(self, provider: AgentProvider, *, trusted: bool, tell: Callable[[str], object]) -> SessionMcp:
        """Return the MCP servers for sessions of an agent.

        Try them and report notices only once.
        """
        async with self._trying_servers:
            found = self._session_mcp.get(provider.name)
            if found is None:
                found = await self.configured_servers(trusted=trusted).for_provider(provider)
                self._session_mcp[provider.name] = found
                for notice in (*found.notices, *self.entity_notices):
                    tell(notice)
        return found

    async def runtime(self, flags: RunFlags, loaded: LoadedWorkflow, person: Person | None = None) -> Runtime:
        """Build the runtime of a run.

        Raises WrongAgentError or NoAgentError before there is a session.
        """
        from atomic.providers.selection import named_provider, usable_agents
        from atomic.workflows.capabilities import tools_of

        for name in flags.agents.values():
            named_provider(name, self.settings)
        for _, tool in tools_of(loaded.graph) if loaded.graph else ():
            self.tools.allow(tool)
        runtime = msgspec.structs.replace(
            self.host_parts(flags),
            others=await usable_agents(self.settings) if flags.on_limit == "switch" else (),
            person=person,
        )
        if loaded.graph is None or loaded.capabilities.subagents:
            await self._require_agents(flags.agents)
        return runtime

    def host_parts(self, flags: RunFlags) -> Runtime:
        """Return what a host provides for each run, whatever its workflow is."""
        from atomic.runs.host import Choices, Runtime
        from atomic.runs.limits import Caps

        return Runtime(
            store=self.store,
            project=self.folder,
            cwd=self.cwd,
            choose=self.choose,
            library=self,
            settings=self.settings,
            choices=Choices(flags.agents, flags.models),
            caps=msgspec.convert({**msgspec.to_builtins(self.settings.caps), **flags.caps}, Caps),
            on_limit=flags.on_limit or "wait",
            record=flags.record,
            park=flags.park,
            untrusted=self._untrusted_commands(),
            trusted=self.snapshot.allows(self.cwd),
            prepare=self._with_mcp_servers,
            approved=self.snapshot.approved,
            setup=self._approved_setup(),
        )

    async def _require_agents(self, named: Mapping[str, str]) -> None:
        """Find the agents before there is a session, so that a missing one does not
        stop work halfway.
        """
        from atomic.providers.selection import require_usable

        wanted = list(named.values())
        if not named.get("") and self.settings.agent is not None:
            wanted.append(self.settings.agent)
        await require_usable(wanted, self.settings)
        if not named.get(""):
            await self.choose(None)

    async def choose(self, name: str | None) -> AgentProvider:
        """Return the agent of that name; None: the user's own, or the first one that can
        be used. Raises AtomicError.
        """
        from atomic.providers.selection import choose_provider

        if name is not None:
            return await choose_provider(name, self.settings)
        if self._default_provider is None:
            self._default_provider = await choose_provider(None, self.settings)
        return self._default_provider

    async def _with_mcp_servers(
        self, provider: AgentProvider, options: SessionOptions, tell: Callable[[str], object]
    ) -> SessionOptions:
        found = await self.session_mcp(provider, trusted=options.trusted, tell=tell)
        return found.added_to(options)

    def _approved_setup(self) -> bytes | None:
        """Return the project's script that sets a workspace up, as it was approved."""
        from atomic.loading.trusted_files import SETUP

        return self.snapshot.files.get(SETUP) if self.snapshot.approved else None

    def _untrusted_commands(self) -> Untrusted | None:
        """Return the checks and the set-up of workspaces that the project has, if its
        current state is not approved.
        """
        from atomic.loading.trusted_files import SETUP, Kind
        from atomic.workflows.definition import Untrusted

        snapshot = self.snapshot
        checks = [(item.path, item.text) for item in snapshot.items if item.kind is Kind.GATE]
        has_setup = any(item.kind is Kind.SETUP for item in snapshot.items)
        setup = SETUP if has_setup and not self.settings.workspace.setup else ""
        if snapshot.approved or not (checks or setup):
            return None
        return Untrusted(snapshot.project, snapshot.hash, checks, setup)


def _facts(definition: WorkflowDefinition) -> tuple[object, ...]:
    """Return the facts of a workflow that its command shows."""
    return (
        *definition.aliases,
        definition.name,
        definition.description,
        definition.argument_hint,
        definition.path,
        definition.default_config,
        definition.config_descriptions,
        definition.parameters,
    )
