"""How an agent starts for a session: command line, folder and environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from atomic.config import Settings
from atomic.providers.acp.agents import Agent, command_line
from atomic.providers.acp.environment import environment
from atomic.providers.acp.messages import McpKinds
from atomic.providers.acp.project_files import find_project_code
from atomic.providers.base import McpServer, SessionOptions
from atomic.providers.errors import UnsupportedError, UntrustedProjectError
from atomic.providers.tool_names import spelled
from atomic.providers.tool_server import ToolServer
from atomic.providers.tools import SERVER

_NO_TOOL = "none"  # an empty list would mean all tools
Server: TypeAlias = dict[str, Any]  # as the protocol defines it


class Launch:
    """Everything that a session's program needs to start."""

    def __init__(
        self, agent: Agent, settings: Settings, options: SessionOptions, tools: ToolServer | None = None
    ) -> None:
        """Take the server of custom tools as `tools`. Raise ProviderError."""
        self.agent = agent
        self.options = options
        self.own_servers: list[McpServer] = []
        if tools is not None:
            headers = {"Authorization": f"Bearer {tools.token}"}
            self.own_servers.append(McpServer(name=SERVER, url=tools.url, headers=headers))
        self._command = command_line(agent, settings)
        self.cwd = Path(options.cwd if options.cwd is not None else os.getcwd()).absolute()
        if not options.trusted and (found := find_project_code(agent.name, self.cwd)):
            raise UntrustedProjectError(agent.provider, found)
        self.env = environment(agent, settings, options, self.cwd, tools)

    @property
    def protocol_servers(self) -> Sequence[McpServer]:
        """Return the servers that are sent over the protocol.

        The others come at the start.
        """
        own = [] if self.agent.is_opencode else self.own_servers
        return [*own, *(server for server in self.options.mcp_servers if server not in self._file_servers)]

    @property
    def _file_servers(self) -> Sequence[McpServer]:
        return [one for one in self.options.mcp_servers if self.agent.quirks.mcp_file_flag and one.url is None]

    def argv(self, folder: Path) -> list[str]:
        """Return the command line; `folder` holds the file of MCP servers."""
        quirks = self.agent.quirks
        options = self.options
        words = list(self._command)
        if quirks.model_flag and options.model:
            words += [quirks.model_flag, options.model]
        if options.tools is not None:
            brought = (*self.own_servers, *(server for server in options.mcp_servers if not server.optional))
            servers = [server.name for server in brought]
            words.append(f"{quirks.only_tools_flag}={','.join([*self._spelled(options.tools), *servers]) or _NO_TOOL}")
        if options.denied_tools:
            words.append(f"{quirks.denied_tools_flag}={','.join(self._spelled(options.denied_tools))}")
        words += [f"{quirks.mcp_off_flag}={name}" for name in options.disabled_mcp_servers if quirks.mcp_off_flag]
        if self._file_servers:
            file = folder / "servers.json"
            file.touch(mode=0o600)
            file.write_bytes(servers_file(self._file_servers))
            words += [quirks.mcp_file_flag, f"@{file}"]
        return words

    def _spelled(self, names: Sequence[str]) -> list[str]:
        spelling = self.agent.known.spelling
        return spelled(names, spelling) if spelling else list(names)


def servers_file(servers: Sequence[McpServer]) -> bytes:
    """Return the content of a file with MCP servers that are programs."""
    entries = {
        server.name: {
            "type": "local",
            "command": server.command[0],
            "args": list(server.command[1:]),
            "env": dict(server.env),
            "tools": ["*"],
        }
        for server in servers
    }
    return msgspec.json.encode({"mcpServers": entries})


def protocol_servers(
    servers: Sequence[McpServer], takes: McpKinds, provider: str, left_out: Callable[[str], None]
) -> list[Server]:
    """Convert the servers; `left_out` receives why an optional one is left out.

    Raise UnsupportedError for a kind that the agent does not support.
    """
    converted: list[Server] = []
    for server in servers:
        try:
            converted.append(_converted(server, takes, provider))
        except UnsupportedError as error:
            if not server.optional:
                raise
            left_out(str(error))
    return converted


def _converted(server: McpServer, takes: McpKinds, provider: str) -> Server:
    if server.url is None:
        program, *args = server.command
        return {"name": server.name, "command": program, "args": args, "env": _pairs(server.env)}
    if takes.http and not server.sse:
        kind = "http"
    elif takes.sse:
        kind = "sse"
    else:
        raise UnsupportedError(
            f'{provider} does not support MCP servers with a url ("{server.name}")',
            provider=provider,
            remedy="configure it as a program",
        )
    return {"type": kind, "name": server.name, "url": server.url, "headers": _pairs(server.headers)}


def _pairs(words: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in words.items()]
