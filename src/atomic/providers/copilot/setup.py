"""What a session is to be like, in the words of the program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import Settings
from atomic.providers.base import AgentLike, CustomTool, McpServer, SessionOptions
from atomic.providers.copilot.byok import own_endpoint, own_model
from atomic.providers.copilot.denials import Rule, without_denials
from atomic.providers.copilot.environ import environment
from atomic.providers.copilot.login import copilot_home, has_login
from atomic.providers.copilot.server import CommandLine
from atomic.providers.errors import ProviderError
from atomic.providers.modelnames import named_model
from atomic.providers.toolnames import spelled
from atomic.providers.tools import as_tools

_ASKING, _DELEGATING = "ask_user", "task"
# A project says in .github/lsp.json which programs are its language servers; this tool starts them.
_RUNS_PROJECT_CODE = ("lsp",)
_DENIALS_WIN = {"toolFilterPrecedence": "excluded"}


class Setup(msgspec.Struct, frozen=True):
    """All that is needed to open the session, and to open it again."""

    line: CommandLine
    arguments: Mapping[str, Any]  # of `session.create` and `session.resume`
    model: str | None
    tools: Mapping[str, CustomTool]
    denied: Sequence[Rule]
    has_login: bool

    def opening(self, model: str | None, *, resume: bool) -> tuple[str, dict[str, Any]]:
        """The method that opens the session, and what it is told."""
        told = {**self.arguments, **({"model": model} if model else {})}
        if not resume:
            return "session.create", told
        told.pop("trustWorkingDirectory", None)  # it knows that from its beginning
        return "session.resume", {**told, "allowTranscriptRecovery": True}


def set_up(program: Path, options: SessionOptions, settings: Settings) -> Setup:
    """Raises ProviderError for what does not fit together."""
    env = environment(settings, options.env)
    args, denied = without_denials(settings.provider("copilot").args)
    tools = {one.name: one for one in as_tools(options.custom_tools)}
    endpoint, model = own_endpoint(env), options.model or own_model(env)
    if endpoint is not None and model is None:
        raise ProviderError(
            "Copilot has an endpoint of yours (COPILOT_PROVIDER_BASE_URL) but no model",
            provider="copilot",
            remedy="set COPILOT_MODEL, or name a model",
        )
    arguments = {
        "clientName": "atomic",
        "provider": endpoint,
        "streaming": True,
        "includeSubAgentStreamingEvents": True,
        "workingDirectory": _folder(options),
        "envValueMode": "direct",  # of servers: what is given is the value, not the name of a variable
        "tools": [_tool(one) for one in tools.values()] or None,
        "mcpServers": {server.name: _mcp_server(server) for server in options.mcp_servers} or None,
        "disabledMcpServers": list(options.disabled_mcp_servers) or None,
        "customAgents": [_agent(agent) for agent in options.agents] or None,
        "systemMessage": {"mode": "append", "content": options.system_prompt} if options.system_prompt else None,
        **_asking(options),
        **_tool_filter(options, tools),
        **_discovery(options, copilot_home(env)),
    }
    arguments = {name: value for name, value in arguments.items() if value is not None}
    if options.trusted:
        env["COPILOT_ALLOW_ALL"] = "true"
    line = CommandLine(str(program), tuple(args), tuple(sorted(env.items())))
    return Setup(line, arguments, model, tools, denied, has_login(env))


def _folder(options: SessionOptions) -> str:
    return os.path.abspath(options.cwd or os.getcwd())


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


def _asking(options: SessionOptions) -> dict[str, Any]:
    """What it may put to us, as events. The form: unlike the plain question it has several fields, and lists."""
    forms = {} if options.ask is None else {"askUserVariant": "elicitation"}
    return {
        "requestPermission": True,
        "requestElicitation": options.ask is not None,
        "requestExitPlanMode": False,
        "requestAutoModeSwitch": False,
        **forms,
    }


def _tool_filter(options: SessionOptions, tools: Mapping[str, CustomTool]) -> dict[str, Any]:
    """What the caller brings along is available in addition to what the caller names."""
    excluded = spelled(options.denied_tools, "copilot") + ([] if options.trusted else list(_RUNS_PROJECT_CODE))
    if options.tools is None:
        return {"excludedTools": excluded, **_DENIALS_WIN}
    brought = [*tools, *([_ASKING] if options.ask else []), *([_DELEGATING] if options.agents else [])]
    available = spelled(options.tools, "copilot") + brought
    return {"availableTools": available, "excludedTools": excluded, **_DENIALS_WIN}


def _discovery(options: SessionOptions, home: Path) -> dict[str, Any]:
    """Hooks, MCP servers, plugins and agents of the project only if it is trusted; the user's own always."""
    if options.trusted:
        return {"enableConfigDiscovery": True, "enableFileHooks": True, "trustWorkingDirectory": "session"}
    folders = {"skillDirectories": home / "skills", "agentDirectories": home / "agents"}
    found = {name: [str(folder)] for name, folder in folders.items() if folder.is_dir()}
    return {"enableConfigDiscovery": False, "enableFileHooks": False, **found}
