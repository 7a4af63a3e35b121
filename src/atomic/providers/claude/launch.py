"""How the program starts: command line, environment, MCP servers, first control
request.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.config import Settings
from atomic.providers.answers import map_inner_schemas
from atomic.providers.base import AgentLike, McpServer, SessionOptions
from atomic.providers.claude.control import Json
from atomic.providers.claude.environment import PROVIDER, environment
from atomic.providers.programs import start_seconds
from atomic.providers.tool_names import spelled
from atomic.providers.tool_server import ToolProtocol
from atomic.providers.tools import SERVER as ATOMIC_SERVER
from atomic.providers.tools import as_tools

QUESTION = "AskUserQuestion"

_PLAN_MODE = ("EnterPlanMode", "ExitPlanMode")  # a plan would wait for approval that never comes
_ALWAYS = (
    "--input-format=stream-json",
    "--output-format=stream-json",
    "--verbose",  # required for streaming
    "--include-partial-messages",
    "--permission-mode=bypassPermissions",
    "--permission-prompt-tool=stdio",  # otherwise a user's `ask` rule would be a refusal
)


class Origin(msgspec.Struct, frozen=True):
    """Where a conversation starts: new with `id`, resumed (`known`), or a copy
    (`fork_of`).
    """

    id: str
    known: bool = False  # the program has stored it
    fork_of: str | None = None

    def words(self) -> list[str]:
        if self.known:
            return [f"--resume={self.id}"]
        if self.fork_of is not None:
            return [f"--resume={self.fork_of}", "--fork-session", f"--session-id={self.id}"]
        return [f"--session-id={self.id}"]


class Launch:
    """Everything that a session's program needs for each start.

    `tools` answers calls of custom tools.
    """

    def __init__(self, program: Path, settings: Settings, options: SessionOptions) -> None:
        self.program = program
        self.settings = settings
        self.options = options
        self.cwd = os.fspath(options.cwd) if options.cwd is not None else None
        self.env = environment(settings, options)
        # With a list of tools the program loads only these servers, so none has to
        # replace the user's own.
        self._servers = {
            server.name: _config(server)
            for server in options.mcp_servers
            if options.tools is None or not server.takes_place
        }
        tools = as_tools(options.custom_tools)
        self.tools = ToolProtocol(tools)
        if tools:
            # A call in the background would let the agent continue without the answer.
            self._servers[ATOMIC_SERVER] = {
                "type": "sdk",
                "name": ATOMIC_SERVER,
                "alwaysLoad": True,
                "disableAutoBackground": True,
            }

    def command_line(
        self, origin: Origin, folder: Path, *, model: str | None, schema: Mapping[str, Any] | None
    ) -> list[str]:
        """Return the command line; `--flag=value` prevents a value from being read as a
        flag.

        Long or secret values are written to files in `folder`: other users could read
        secrets in a command line.
        """
        options = self.options
        words = [*options.launcher, str(self.program), *_ALWAYS, *origin.words()]
        if options.tools is not None:
            words.append(f"--tools={','.join(self._tools(options.tools))}")
        words.append(f"--disallowedTools={','.join(self._denied())}")
        if not options.trusted:
            words.append("--setting-sources=user")
        if options.disabled_mcp_servers:
            denied = [{"serverName": name} for name in options.disabled_mcp_servers]
            words.append(f"--settings={json.dumps({'deniedMcpServers': denied})}")
        if self._servers:
            servers = folder / "mcp.json"
            servers.write_text(json.dumps({"mcpServers": self._servers}), "utf-8")
            words.append(f"--mcp-config={servers}")
        if options.system_prompt:
            prompt = folder / "system-prompt.md"
            prompt.write_text(options.system_prompt, "utf-8", errors="replace")
            words.append(f"--append-system-prompt-file={prompt}")
        if model:
            words.append(f"--model={model}")
        if options.max_turns is not None:
            words.append(f"--max-turns={options.max_turns}")
        if schema is not None:
            words.append(f"--json-schema={msgspec.json.encode(understood(schema)).decode()}")
        if options.tools is not None:
            words.append("--strict-mcp-config")  # a list of tools excludes the user's own servers
        return [*words, *self.settings.provider(PROVIDER).args]

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

    def _tools(self, named: Sequence[str]) -> list[str]:
        tools = list(named)
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


def _definition(agent: AgentLike) -> Json:
    given = {
        "description": agent.description,
        "prompt": agent.prompt,
        "tools": None if agent.tools is None else spelled(agent.tools, PROVIDER),
        "model": agent.model,
    }
    return {name: value for name, value in given.items() if value is not None}


def clean_name(server: str) -> str:
    """Return a server's name as the program spells it in the names of its tools."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", server)


def _config(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "sse" if server.sse else "http", "url": server.url, "headers": dict(server.headers)}
    program, *arguments = server.command
    return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.env)}


def understood(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same schema, or a wider one: the program refuses unknown keywords.

    It does not know `discriminator`, which is OpenAPI's, nor `prefixItems`, and the
    service does not know the older form of that. So a tuple becomes a list whose items
    may be of any of its types. The value is checked against its own type in any case.
    """
    result = map_inner_schemas(schema, understood)
    result.pop("discriminator", None)
    if "prefixItems" in result:
        places = cast("list[Any]", result.pop("prefixItems"))
        result["items"] = {"anyOf": places} if places else {}
    return result
