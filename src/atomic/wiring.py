"""Builds what a host needs, once and only when it is asked for, and hands it down: there is no global."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atomic.config import Settings, atomic_home, find_project, load_settings
from atomic.loading.catalog import WorkflowCatalog
from atomic.workflows import WorkflowDefinition

if TYPE_CHECKING:  # each is imported by who asks for it: a run may need no entities, a list of servers no agents
    from atomic.commands import CommandRegistry
    from atomic.entities import EntityRegistry
    from atomic.mcp import ForSession, McpAnswer, McpEntry, McpList, McpVariableError
    from atomic.providers import AgentProvider, McpServer, SessionOptions

_RESERVED = "atomic"  # by this name a session knows our own tools
_REPLAY = "replay"  # runs nothing


class SessionMcp(msgspec.Struct, frozen=True):
    """What the user's configuration means for sessions of one agent; `notices` are for the person."""

    servers: Sequence[McpServer] = ()
    disabled: Sequence[str] = ()
    notices: Sequence[str] = ()

    def added_to(self, options: SessionOptions) -> SessionOptions:
        """The options with these servers; one that the caller names itself is left to the caller."""
        named = {server.name for server in options.mcp_servers}
        return msgspec.structs.replace(
            options,
            mcp_servers=[*options.mcp_servers, *(one for one in self.servers if one.name not in named)],
            disabled_mcp_servers=[*options.disabled_mcp_servers, *(one for one in self.disabled if one not in named)],
        )


class Wiring:
    """The settings, entities, workflows, commands and MCP servers of one project and its user."""

    def __init__(
        self, project: Path | None = None, user: Path | None = None, *, is_approved: Callable[[], bool] | None = None
    ) -> None:
        """`is_approved`: whether the project is, for a host that knows it by other means than the list of approvals."""
        self.project, self._user = project or find_project(), user
        self._is_approved = is_approved or self._is_listed

    @cached_property
    def settings(self) -> Settings:
        """Raises ConfigError."""
        return load_settings(self.project, None if self._user is None else self._user / ".atomic")

    @cached_property
    def entities(self) -> EntityRegistry:
        from atomic.entities import EntityRegistry

        return EntityRegistry.load(self.project, self._user, is_trusted=self._is_approved)

    def _is_listed(self) -> bool:
        from atomic.loading import trust

        return trust.look(self.project, home=None if self._user is None else self._user / ".atomic").approved

    @property
    def entity_notices(self) -> list[str]:
        """What to say of files of the project that have names of built-in agents and skills: one line, or none."""
        if not (covering := self.entities.covering):
            return []
        named = ", ".join(f"{entity.name} ({self._shown(entity.source.path)})" for entity in covering)
        if self.entities.ignored:
            return [f"Built-in ones are used instead of the project's {named}: it is not trusted (atomic trust)"]
        return [f"Used from the project instead of the built-in: {named}"]

    def _shown(self, path: Path) -> str:
        return os.path.relpath(path, self.project or os.curdir)

    @cached_property
    def commands(self) -> CommandRegistry:
        """All commands of the prompt."""
        from atomic.commands import CommandRegistry, builtin_commands, entity_commands, workflow_commands

        workflows = workflow_commands(self.workflows.all())
        return CommandRegistry.of([*builtin_commands(), *workflows, *entity_commands(self.entities)])

    @cached_property
    def workflows(self) -> WorkflowCatalog:
        """Nothing of a project's code runs to find them."""
        return WorkflowCatalog(self.project, self._user)

    @cached_property
    def mcp(self) -> McpList:
        from atomic.mcp import load_mcp_entries

        return load_mcp_entries(self.project, self._user)

    def switch_mcp_server(self, name: str, enabled: bool) -> None:
        """Raises McpStateError."""
        from atomic.mcp import set_enabled

        set_enabled(name, enabled, project=self.project, user=self._user)
        self.__dict__.pop("mcp", None)

    async def mcp_tools(self, *, trusted: bool = False) -> list[McpAnswer]:
        """Ask all servers that may be used here for their tools; this starts them."""
        return await self._ask(self.mcp.usable(trusted=trusted), trusted=trusted)

    async def session_mcp(self, provider: AgentProvider, *, trusted: bool = False) -> SessionMcp:
        """What to hand to sessions of an agent (docs/commands.md says which). It starts the servers once, to try them.

        In a project that is not trusted the user's own servers start in the home folder, also those that the agent
        would start by itself: they are handed over under the same name.

        Raises ConfigError.
        """
        if provider.name == _REPLAY:
            return SessionMcp()
        from atomic.mcp import for_session

        chosen, can = for_session(self.mcp, provider.name, trusted=trusted), provider.capabilities
        asked = [entry for entry in chosen.passed if can.mcp_servers and entry.name != _RESERVED]
        answers = await self._ask(asked, trusted=trusted)
        moved = () if trusted or not can.mcp_servers else [one for one in chosen.own if one.name != _RESERVED]
        servers, missing = self._handed_over([one for one in answers if not one.error], moved, trusted=trusted)
        off = [*chosen.off, *(error.server for error in missing)]
        return SessionMcp(
            servers,
            off if can.mcp_switching else (),
            [
                *(str(diagnostic) for diagnostic in self.mcp.diagnostics if self._is_ours(diagnostic.path, trusted)),
                *_impossible(chosen, provider),
                *(f'MCP server "{one.entry.name}" is left out: {one.error}' for one in answers if one.error),
                *(_lacking(one, provider) for one in missing),
                *(() if trusted else self._elsewhere([*asked, *moved])),
            ],
        )

    def _handed_over(
        self, answers: Sequence[McpAnswer], moved: Sequence[McpEntry], *, trusted: bool
    ) -> tuple[list[McpServer], list[McpVariableError]]:
        """The servers as a session takes them, and those that lack a variable."""
        from atomic.mcp import McpVariableError
        from atomic.mcp.start_folder import started_in

        servers: list[McpServer] = []
        missing: list[McpVariableError] = []
        for answer in answers:
            entry = answer.resolved if trusted else started_in(answer.resolved, self._home)
            servers.append(_server(entry, tools=answer.tools))
        for entry in moved:
            try:
                servers.append(_server(started_in(entry.resolved(os.environ), self._home), takes_place=True))
            except McpVariableError as error:
                missing.append(error)
        return servers, missing

    def _elsewhere(self, entries: Sequence[McpEntry]) -> Iterator[str]:
        """What to say of servers that mean the current folder and do not get it."""
        from atomic.mcp.start_folder import names_current_folder

        for entry in entries:
            if names_current_folder(entry):
                yield f'MCP server "{entry.name}" starts in {self._home}: this project is not trusted (atomic trust)'

    @property
    def _home(self) -> Path:
        return self._user or Path.home()

    def _is_ours(self, file: Path, trusted: bool) -> bool:
        """Whether a file is Atomic's own; what is wrong with those of others is theirs to say, or for `/mcp`."""
        home = atomic_home() if self._user is None else self._user / ".atomic"
        theirs = [self.project / ".atomic"] if trusted and self.project is not None else []
        return file.parent in (home, *theirs)

    async def _ask(self, entries: Sequence[McpEntry], *, trusted: bool) -> list[McpAnswer]:
        """Start the servers and ask for their tools: in the project if it is trusted, else in the home folder."""
        if not entries:
            return []
        from atomic.mcp.tool_queries import ask_for_tools
        from atomic.providers.environment import child_environment

        env = child_environment((), passed=self.settings.env.pass_)
        if trusted:
            return await ask_for_tools(entries, variables=os.environ, env=env, cwd=self.project)
        from atomic.mcp.start_folder import with_variables

        apart = [with_variables(entry, self._home) for entry in entries]
        answers = await ask_for_tools(apart, variables=os.environ, env=env, cwd=self._home)
        return [msgspec.structs.replace(one, entry=entry) for one, entry in zip(answers, entries, strict=True)]

    def refresh(self) -> bool:
        """See what changed on the disk since; whether the commands are others now."""
        changed = self.entities.refresh()
        if "workflows" in self.__dict__:
            fresh = WorkflowCatalog(self.project, self._user)
            changed = [*map(_facts, fresh.all())] != [*map(_facts, self.workflows.all())] or changed
            self.__dict__["workflows"] = fresh
        if changed:
            self.__dict__.pop("commands", None)  # computed anew when somebody asks
        return changed


def _facts(definition: WorkflowDefinition) -> tuple[object, ...]:
    return (
        *definition.aliases,
        definition.name,
        definition.description,
        definition.argument_hint,
        definition.path,
        definition.default_config,
        definition.config_descriptions,
    )


def _impossible(chosen: ForSession, provider: AgentProvider) -> Iterator[str]:
    """What the user wants of an agent that it cannot do."""
    can, names = provider.capabilities, [entry.name for entry in chosen.passed]
    if not can.mcp_switching and chosen.own_off:
        yield f"{provider.name} uses MCP servers that are switched off: {', '.join(chosen.own_off)}"
    if not can.mcp_servers and names:
        yield f"{provider.name} takes no MCP servers: {', '.join(names)} left out"
    elif _RESERVED in names:
        yield f'MCP server "{_RESERVED}" is left out: the name is taken (give it another)'


def _lacking(error: McpVariableError, provider: AgentProvider) -> str:
    """Say what becomes of an agent's own server that Atomic cannot hand over from the home folder."""
    needs = f'it needs the variable "{error.variable}", {error.reason}'
    if provider.capabilities.mcp_switching:
        return f'MCP server "{error.server}" is left out: {needs}'
    return (
        f'{provider.name} starts its MCP server "{error.server}" itself, in this project, which is not trusted: '
        f"Atomic cannot start it elsewhere, because {needs} "
        "(set it, or remove the server from the settings of the agent)"
    )


def _server(entry: McpEntry, *, tools: Sequence[str] = (), takes_place: bool = False) -> McpServer:
    from atomic.mcp import Transport
    from atomic.providers import McpServer

    return McpServer(
        name=entry.name,
        command=entry.command,
        env=entry.env,
        url=entry.url,
        headers=entry.headers,
        sse=entry.transport is Transport.SSE,
        optional=True,
        tools=tools,
        takes_place=takes_place,
    )
