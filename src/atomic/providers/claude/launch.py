"""How the program starts: command line, environment, MCP servers, first control
request.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from atomic.config import Settings
from atomic.providers.base import AgentLike, McpServer, SessionOptions
from atomic.providers.claude.command import Command, Origin
from atomic.providers.claude.control import Json
from atomic.providers.claude.environment import PROVIDER, environment
from atomic.providers.programs import start_seconds
from atomic.providers.tool_names import spelled
from atomic.providers.tool_server import ToolProtocol
from atomic.providers.tools import SERVER as ATOMIC_SERVER
from atomic.providers.tools import as_tools

QUESTION = "AskUserQuestion"

_PLAN_MODE = ("EnterPlanMode", "ExitPlanMode")  # a plan would wait for approval that never comes


class Launch:
    """Everything that a session's program needs for each start."""

    def __init__(self, program: Path, settings: Settings, options: SessionOptions) -> None:
        self.program = program
        self.settings = settings
        self.options = options
        self.servers = Servers(options)
        self.cwd = os.fspath(options.cwd) if options.cwd is not None else None
        self.env = environment(settings, options)

    def command_line(
        self, origin: Origin, folder: Path, *, model: str | None, schema: Mapping[str, Any] | None
    ) -> list[str]:
        """Return the command line.

        Long or secret values are written to files in `folder`.
        """
        options = self.options
        return Command(
            program=str(self.program),
            origin=origin,
            tools=self._tools(),
            denied_tools=self._denied(),
            setting_sources=None if options.trusted else ["user"],
            settings=self._settings(),
            servers=self.servers.write(folder),
            only_these_servers=options.tools is not None,  # a list of tools excludes the user's own servers
            system_prompt=self._system_prompt(folder),
            model=model,
            max_turns=options.max_turns,
            schema=schema,
            more=self.settings.provider(PROVIDER).args,
        ).words()

    def greeting(self) -> Json:
        """Return the `initialize` request, sent before the first prompt."""
        agents = {agent.name: _definition(agent) for agent in self.options.agents}
        request: Json = {"subtype": "initialize", "forwardSubagentText": True}
        if agents:
            request["agents"] = agents
        if self.options.resume is not None:
            # Otherwise a resumed session keeps the system prompt that it started with.
            request["systemPromptSnapshot"] = False
        return request

    @property
    def patience(self) -> float:
        """Return the seconds for the first answer; MCP servers start before it.

        The environment variable is the program's own.
        """
        milliseconds = self.env.get("CLAUDE_CODE_STREAM_CLOSE_TIMEOUT", "")
        seconds = start_seconds()
        return max(seconds, int(milliseconds) / 1000) if milliseconds.isdecimal() else seconds

    def _tools(self) -> list[str] | None:
        if self.options.tools is None:
            return None
        tools = list(self.options.tools)
        if self.options.agents:
            tools.append("task")  # the only way to call a sub-agent
        if self.options.ask is not None:
            tools.append("question")
        return spelled(tools, PROVIDER)

    def _denied(self) -> list[str]:
        denied = spelled(self.options.denied_tools, PROVIDER)
        if self.options.ask is None:
            denied.append(QUESTION)
        # Settings in the user's own arguments replace ours. The server would run then,
        # so deny its tools as well.
        servers = [f"mcp__{clean_name(server)}" for server in self.options.disabled_mcp_servers]
        return [*denied, *_PLAN_MODE, *servers]

    def _settings(self) -> str | None:
        if not self.options.disabled_mcp_servers:
            return None
        return json.dumps({"deniedMcpServers": [{"serverName": name} for name in self.options.disabled_mcp_servers]})

    def _system_prompt(self, folder: Path) -> str | None:
        if not self.options.system_prompt:
            return None
        path = folder / "system-prompt.md"
        path.write_text(self.options.system_prompt, "utf-8", errors="replace")
        return str(path)


def _definition(agent: AgentLike) -> Json:
    given = {
        "description": agent.description,
        "prompt": agent.prompt,
        "tools": None if agent.tools is None else spelled(agent.tools, PROVIDER),
        "model": agent.model,
    }
    return {name: value for name, value in given.items() if value is not None}


class Servers:
    """The MCP configuration for the program; `tools` answers calls of custom tools."""

    def __init__(self, options: SessionOptions) -> None:
        # With a list of tools the program loads only these servers, so none has to
        # replace the user's own.
        self._configs = {
            server.name: _config(server)
            for server in options.mcp_servers
            if options.tools is None or not server.takes_place
        }
        tools = as_tools(options.custom_tools)
        self.tools = ToolProtocol(tools)
        if tools:
            # A call in the background would let the agent continue without the answer.
            self._configs[ATOMIC_SERVER] = {
                "type": "sdk",
                "name": ATOMIC_SERVER,
                "alwaysLoad": True,
                "disableAutoBackground": True,
            }

    def write(self, folder: Path) -> str | None:
        """Write the configuration file.

        Other users could read secrets in a command line.
        """
        if not self._configs:
            return None
        path = folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": self._configs}), "utf-8")
        return str(path)


def clean_name(server: str) -> str:
    """Return a server's name as the program spells it in the names of its tools."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", server)


def _config(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "sse" if server.sse else "http", "url": server.url, "headers": dict(server.headers)}
    program, *arguments = server.command
    return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.env)}
