"""Convert session options to the arguments of Copilot's requests."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import Settings
from atomic.providers.base import AgentLike, CustomTool, McpServer, SessionOptions
from atomic.providers.copilot.denials import Rule, without_denials
from atomic.providers.copilot.environment import copilot_home, environment, has_login, own_endpoint, own_model
from atomic.providers.copilot.server import CommandLine
from atomic.providers.errors import ProviderError
from atomic.providers.model_names import named_model
from atomic.providers.tool_names import spelled
from atomic.providers.tools import as_tools

_QUESTION_TOOL = "ask_user"
_SUBAGENT_TOOL = "task"
# This tool starts the language servers that a project names in .github/lsp.json.
_RUNS_PROJECT_CODE = ("lsp",)
_DENIALS_WIN = {"toolFilterPrecedence": "excluded"}


class Setup(msgspec.Struct, frozen=True):
    """Everything needed to open the session, and to open it again."""

    line: CommandLine
    arguments: Mapping[str, Any]  # of `session.create` and `session.resume`
    model: str | None
    tools: Mapping[str, CustomTool]
    denied: Sequence[Rule]
    has_login: bool

    def opening(self, model: str | None, *, resume: bool) -> tuple[str, dict[str, Any]]:
        """Return the method and arguments that open the session."""
        arguments = dict(self.arguments)
        if model:
            arguments["model"] = model
        if not resume:
            return "session.create", arguments
        arguments.pop("trustWorkingDirectory", None)  # set when the session was created
        return "session.resume", {**arguments, "allowTranscriptRecovery": True}


def set_up(program: Path, options: SessionOptions, settings: Settings) -> Setup:
    """Prepare a session. Raise ProviderError for contradictory options."""
    env = environment(settings, options.env)
    args, denied = without_denials(settings.provider("copilot").args)
    tools = {one.name: one for one in as_tools(options.custom_tools)}
    endpoint = own_endpoint(env)
    model = options.model or own_model(env)
    if endpoint is not None and model is None:
        raise ProviderError(
            "COPILOT_PROVIDER_BASE_URL is set, but no model",
            provider="copilot",
            remedy="set COPILOT_MODEL, or name a model",
        )
    arguments = {
        "clientName": "atomic",
        "provider": endpoint,
        "streaming": True,
        "includeSubAgentStreamingEvents": True,
        "workingDirectory": os.path.abspath(options.cwd or os.getcwd()),
        "envValueMode": "direct",  # `env` of MCP servers holds values, not names of variables
        "tools": [_tool(one) for one in tools.values()] or None,
        "mcpServers": {server.name: _mcp_server(server) for server in options.mcp_servers} or None,
        "disabledMcpServers": list(options.disabled_mcp_servers) or None,
        "customAgents": [_agent(agent) for agent in options.agents] or None,
        "systemMessage": {"mode": "append", "content": options.system_prompt} if options.system_prompt else None,
        "requestPermission": True,
        # A form is better than a plain question: it has several fields and multiple
        # choice.
        "requestElicitation": options.ask is not None,
        "askUserVariant": None if options.ask is None else "elicitation",
        "requestExitPlanMode": False,
        "requestAutoModeSwitch": False,
        **_tool_filter(options, tools),
        **_discovery(options, copilot_home(env)),
    }
    arguments = {name: value for name, value in arguments.items() if value is not None}
    if options.trusted:
        env["COPILOT_ALLOW_ALL"] = "true"
    line = CommandLine(str(program), tuple(args), tuple(sorted(env.items())), tuple(options.launcher))
    return Setup(line, arguments, model, tools, denied, has_login(env))


def _tool(tool: CustomTool) -> dict[str, Any]:
    return {
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.schema),
        "overridesBuiltInTool": True,
        "skipPermission": True,
        "defer": "never",
    }


def _mcp_server(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        kind = "sse" if server.sse else "http"
        return {"type": kind, "url": server.url, "headers": dict(server.headers), "tools": ["*"]}
    command, *args = server.command
    return {"type": "local", "command": command, "args": args, "env": dict(server.env), "tools": ["*"]}


def _agent(agent: AgentLike) -> dict[str, Any]:
    config: dict[str, Any] = {"name": agent.name, "description": agent.description, "prompt": agent.prompt}
    if agent.tools is not None:
        config["tools"] = spelled(agent.tools, "copilot")
    if model := named_model(agent.model):
        config["model"] = model
    return config


def _tool_filter(options: SessionOptions, tools: Mapping[str, CustomTool]) -> dict[str, Any]:
    """Return the allowed and denied tools.

    Tools that the caller brings are allowed too.
    """
    excluded = spelled(options.denied_tools, "copilot")
    if not options.trusted:
        excluded += _RUNS_PROJECT_CODE
    if options.tools is None:
        return {"excludedTools": excluded, **_DENIALS_WIN}
    available = [*spelled(options.tools, "copilot"), *tools]
    if options.ask:
        available.append(_QUESTION_TOOL)
    if options.agents:
        available.append(_SUBAGENT_TOOL)
    return {"availableTools": available, "excludedTools": excluded, **_DENIALS_WIN}


def _discovery(options: SessionOptions, home: Path) -> dict[str, Any]:
    """Return the discovery options: the user's own always, the project's only if
    trusted.
    """
    if options.trusted:
        return {"enableConfigDiscovery": True, "enableFileHooks": True, "trustWorkingDirectory": "session"}
    folders = {"skillDirectories": home / "skills", "agentDirectories": home / "agents"}
    found = {name: [str(folder)] for name, folder in folders.items() if folder.is_dir()}
    return {"enableConfigDiscovery": False, "enableFileHooks": False, **found}
