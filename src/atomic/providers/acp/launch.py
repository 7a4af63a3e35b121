"""How an agent is started for a session: its command line, its folder, its environment."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from atomic.config import Settings
from atomic.providers.acp.agent import Agent, command_line
from atomic.providers.acp.environ import environment
from atomic.providers.acp.serverfile import servers_file
from atomic.providers.acp.strangers import strangers_code
from atomic.providers.base import McpServer, SessionOptions
from atomic.providers.errors import UntrustedProjectError
from atomic.providers.tool_server import ToolServer
from atomic.providers.toolnames import spelled
from atomic.providers.tools import SERVER

_NO_TOOL = "none"  # an empty list would mean all of them


class Launch:
    """All that a session's program is started with."""

    def __init__(
        self, agent: Agent, settings: Settings, options: SessionOptions, tools: ToolServer | None = None
    ) -> None:
        """`tools` is where our own can be called. Raises ProviderError, before anything has begun."""
        self.agent, self.options = agent, options
        self.own_servers = [] if tools is None else [_own_server(tools)]
        self._command = command_line(agent, settings)
        self.cwd = Path(options.cwd if options.cwd is not None else os.getcwd()).absolute()
        if not options.trusted and (found := strangers_code(agent.name, self.cwd)):
            raise UntrustedProjectError(agent.provider, found)
        self.env = environment(agent, settings, options, self.cwd, tools)

    @property
    def spoken_servers(self) -> Sequence[McpServer]:
        """Those that the agent is told of by the protocol; the others it finds when it starts."""
        own = [] if self.agent.is_opencode else self.own_servers
        return [*own, *(server for server in self.options.mcp_servers if server not in self._file_servers)]

    @property
    def _file_servers(self) -> Sequence[McpServer]:
        return [one for one in self.options.mcp_servers if self.agent.ways.mcp_file_flag and one.url is None]

    def argv(self, folder: Path) -> list[str]:
        """The command line; `folder` is for a file that goes with it."""
        ways, options = self.agent.ways, self.options
        words = list(self._command)
        if ways.model_flag and options.model:
            words += [ways.model_flag, options.model]
        if options.tools is not None:
            brought = (*self.own_servers, *(server for server in options.mcp_servers if not server.optional))
            servers = [server.name for server in brought]
            words.append(f"{ways.only_tools_flag}={','.join([*self._spelled(options.tools), *servers]) or _NO_TOOL}")
        if options.denied_tools:
            words.append(f"{ways.denied_tools_flag}={','.join(self._spelled(options.denied_tools))}")
        words += [f"{ways.mcp_off_flag}={name}" for name in options.disabled_mcp_servers if ways.mcp_off_flag]
        if self._file_servers:
            file = folder / "servers.json"
            file.touch(mode=0o600)
            file.write_bytes(servers_file(self._file_servers))
            words += [ways.mcp_file_flag, f"@{file}"]
        return words

    def _spelled(self, names: Sequence[str]) -> list[str]:
        spelling = self.agent.known.spelling
        return spelled(names, spelling) if spelling else list(names)


def _own_server(tools: ToolServer) -> McpServer:
    return McpServer(name=SERVER, url=tools.url, headers={"Authorization": f"Bearer {tools.token}"})
