"""Choose the MCP servers that the sessions of an agent get."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atomic.providers.base import AgentProvider, McpServer, SessionOptions

if TYPE_CHECKING:  # most sessions have no servers, and start without this room
    from atomic.mcp import ForSession, McpAnswer, McpEntry, McpList, McpVariableError

_RESERVED = "atomic"  # the name of Atomic's own tools in a session
_REPLAY = "replay"  # starts no program


class SessionMcp(msgspec.Struct, frozen=True):
    """The MCP servers for sessions of one agent; `notices` are messages to the user."""

    servers: Sequence[McpServer] = ()
    disabled: Sequence[str] = ()
    notices: Sequence[str] = ()

    def added_to(self, options: SessionOptions) -> SessionOptions:
        """Return the options with these servers, unless the options name them already."""
        named = {server.name for server in options.mcp_servers}
        servers = [server for server in self.servers if server.name not in named]
        disabled = [name for name in self.disabled if name not in named]
        return msgspec.structs.replace(
            options,
            mcp_servers=[*options.mcp_servers, *servers],
            disabled_mcp_servers=[*options.disabled_mcp_servers, *disabled],
        )


class ConfiguredServers:
    """The MCP servers that a project and its user configure.

    In a project that is not trusted only the user's servers are used, and they start in
    the home folder. This includes servers of the agent's own configuration, which it
    would start in the project: Atomic passes them under the same name.
    """

    def __init__(
        self,
        listed: McpList,
        *,
        project: Path | None,
        home: Path,
        atomic_home: Path,
        passed_variables: Sequence[str],
        trusted: bool,
    ) -> None:
        self._listed = listed
        self._project = project
        self._home = home
        self._atomic_home = atomic_home
        self._passed_variables = passed_variables
        self._trusted = trusted

    async def tools(self) -> list[McpAnswer]:
        """Start all servers that may be used, and ask for their tools."""
        return await self._query(self._listed.usable(trusted=self._trusted))

    async def for_provider(self, provider: AgentProvider) -> SessionMcp:
        """Return what sessions of an agent get. Start the servers once, to try them."""
        if provider.name == _REPLAY:
            return SessionMcp()
        from atomic.mcp import for_session

        chosen = for_session(self._listed, provider.name, trusted=self._trusted)
        can = provider.capabilities
        passed: list[McpEntry] = []
        moved: list[McpEntry] = []
        if can.mcp_servers:
            passed = [entry for entry in chosen.passed if entry.name != _RESERVED]
            if not self._trusted:
                moved = [entry for entry in chosen.own if entry.name != _RESERVED]
        answers = await self._query(passed)
        servers = [self._as_server(answer) for answer in answers if not answer.error]
        moved_servers, missing = self._moved(moved)
        notices = [str(diagnostic) for diagnostic in self._listed.diagnostics if self._is_ours(diagnostic.path)]
        notices += _unsupported(chosen, provider)
        notices += [f'MCP server "{one.entry.name}" is left out: {one.error}' for one in answers if one.error]
        notices += [_lacks_variable(error, provider) for error in missing]
        if not self._trusted:
            notices += self._started_elsewhere([*passed, *moved])
        disabled = [*chosen.off, *(error.server for error in missing)]
        return SessionMcp([*servers, *moved_servers], disabled if can.mcp_switching else (), notices)

    def _as_server(self, answer: McpAnswer) -> McpServer:
        from atomic.mcp import started_in

        entry = answer.resolved if self._trusted else started_in(answer.resolved, self._home)
        return _server(entry, tools=answer.tools)

    def _moved(self, entries: Sequence[McpEntry]) -> tuple[list[McpServer], list[McpVariableError]]:
        """Return an agent's own servers, started in the home folder, and the errors of
        the others.
        """
        from atomic.mcp import McpVariableError, started_in

        servers: list[McpServer] = []
        missing: list[McpVariableError] = []
        for entry in entries:
            try:
                resolved = entry.resolved(os.environ)
            except McpVariableError as error:
                missing.append(error)
            else:
                servers.append(_server(started_in(resolved, self._home), takes_place=True))
        return servers, missing

    def _started_elsewhere(self, entries: Sequence[McpEntry]) -> Iterator[str]:
        """Yield messages about servers that refer to the current folder and start in
        another one.
        """
        from atomic.mcp import names_current_folder

        for entry in entries:
            if names_current_folder(entry):
                yield f'MCP server "{entry.name}" starts in {self._home}: this project is not trusted (atomic trust)'

    def _is_ours(self, file: Path) -> bool:
        """Return whether a file is Atomic's own.

        Problems of other files are shown by `/mcp` only.
        """
        folders = [self._atomic_home]
        if self._trusted and self._project is not None:
            folders.append(self._project / ".atomic")
        return file.parent in folders

    async def _query(self, entries: Sequence[McpEntry]) -> list[McpAnswer]:
        """Start the servers and ask for their tools: in the project if it is trusted,
        else in the home folder.
        """
        if not entries:
            return []
        from atomic.mcp import with_variables
        from atomic.mcp.tool_queries import ask_for_tools
        from atomic.providers.environment import child_environment

        env = child_environment((), passed=self._passed_variables)
        if self._trusted:
            return await ask_for_tools(entries, variables=os.environ, env=env, cwd=self._project)
        moved = [with_variables(entry, self._home) for entry in entries]
        answers = await ask_for_tools(moved, variables=os.environ, env=env, cwd=self._home)
        return [msgspec.structs.replace(one, entry=entry) for one, entry in zip(answers, entries, strict=True)]


def _unsupported(chosen: ForSession, provider: AgentProvider) -> Iterator[str]:
    """Yield messages about settings that the agent does not support."""
    can = provider.capabilities
    names = [entry.name for entry in chosen.passed]
    if not can.mcp_switching and chosen.own_off:
        yield f"{provider.name} uses MCP servers that are switched off: {', '.join(chosen.own_off)}"
    if not can.mcp_servers and names:
        yield f"{provider.name} takes no MCP servers: {', '.join(names)} left out"
    elif _RESERVED in names:
        yield f'MCP server "{_RESERVED}" is left out: the name is taken (give it another)'


def _lacks_variable(error: McpVariableError, provider: AgentProvider) -> str:
    """Return a message about an agent's own server that Atomic cannot start in the home
    folder.
    """
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
