"""How an agent starts for a session: command line, folder, environment and MCP servers."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from atomic.config import Settings
from atomic.providers.acp.agents import Agent, command_line
from atomic.providers.acp.environment import environment
from atomic.providers.acp.messages import McpKinds
from atomic.providers.acp.project_files import find_project_code
from atomic.providers.base import McpServer, SessionOptions
from atomic.providers.errors import UnsupportedError, UntrustedProjectError
from atomic.providers.tool_server import ToolServer
from atomic.providers.tools import SERVER

Server: TypeAlias = dict[str, Any]  # as the protocol defines it


class Launch:
    """Everything that a session's program needs to start."""

    def __init__(
        self, agent: Agent, settings: Settings, options: SessionOptions, tools: ToolServer | None = None
    ) -> None:
        """Take the server of custom tools as `tools`. Raise ProviderError."""
        self.agent = agent
        self.options = options
        self.argv = [*options.launcher, *command_line(agent, settings)]
        if agent.features.model_flag and options.model:
            self.argv += [agent.features.model_flag, options.model]
        self.cwd = Path(options.cwd if options.cwd is not None else os.getcwd()).absolute()
        if not options.trusted and (found := find_project_code(agent.name, self.cwd)):
            raise UntrustedProjectError(agent.provider, found)
        self.env = environment(agent, settings, options, self.cwd)
        self._tools = tools

    def servers(self, takes: McpKinds, left_out: Callable[[str], None]) -> list[Server]:
        """Return the MCP servers of the session; `left_out` receives why an optional
        one is missing.

        Raise UnsupportedError for a kind that the agent does not support.
        """
        provider = self.agent.provider
        servers: list[Server] = []
        if self._tools is not None:
            if not takes.http:
                raise UnsupportedError(
                    f"{provider} cannot take custom tools: it does not support MCP servers over HTTP", provider=provider
                )
            headers = {"Authorization": f"Bearer {self._tools.token}"}
            servers.append(_converted(McpServer(name=SERVER, url=self._tools.url, headers=headers), takes, provider))
        for server in self.options.mcp_servers:
            try:
                servers.append(_converted(server, takes, provider))
            except UnsupportedError as error:
                if not server.optional:
                    raise
                left_out(str(error))
        return servers


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
