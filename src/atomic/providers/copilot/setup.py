"""What a session is to be like, in the words of the SDK."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from copilot import Tool

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


class Setup(msgspec.Struct, frozen=True):
    """All that is needed to open the session, and to open it again."""

    line: CommandLine
    arguments: Mapping[str, Any]  # of `create_session` and `resume_session`
    model: str | None
    tools: Mapping[str, CustomTool]
    denied: Sequence[Rule]
    has_login: bool


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
        "client_name": "atomic",
        "provider": endpoint,
        "streaming": True,
        "include_sub_agent_streaming_events": True,
        "working_directory": _folder(options),
        "on_permission_request": _answered_as_an_event,
        "tools": [_tool(one) for one in tools.values()] or None,
        "mcp_servers": {server.name: _mcp_server(server) for server in options.mcp_servers} or None,
        "disabled_mcp_servers": list(options.disabled_mcp_servers) or None,
        "custom_agents": [_agent(agent) for agent in options.agents] or None,
        **_asking(options),
        **_tool_filter(options, tools),
        **_discovery(options, copilot_home(env)),
    }
    if options.system_prompt:
        arguments["system_message"] = {"mode": "append", "content": options.system_prompt}
    if options.trusted:
        env["COPILOT_ALLOW_ALL"] = "true"
    line = CommandLine(str(program), tuple(args), tuple(sorted(env.items())))
    return Setup(line, arguments, model, tools, denied, has_login(env))


def _answered_as_an_event(*_: object) -> Any:
    """The SDK asks only whether there is somebody: the requests themselves are heard and answered as events."""
    raise NotImplementedError


def _folder(options: SessionOptions) -> str:
    folder = os.path.abspath(options.cwd or os.getcwd())
    if not os.path.isdir(folder):
        raise ProviderError(f'Folder not found: "{folder}" (Copilot was to work there)', provider="copilot")
    return folder


def _tool(tool: CustomTool) -> Tool:
    return Tool(
        name=tool.name,
        description=tool.description,
        parameters=dict(tool.schema),
        overrides_built_in_tool=True,
        skip_permission=True,
        defer="never",
    )


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
    """The form: unlike the plain question it has several fields, and lists to choose several from."""
    if options.ask is None:
        return {}
    return {"on_elicitation_request": _answered_as_an_event, "ask_user_variant": "elicitation"}


def _tool_filter(options: SessionOptions, tools: Mapping[str, CustomTool]) -> dict[str, Any]:
    """What the caller brings along is available in addition to what the caller names."""
    excluded = spelled(options.denied_tools, "copilot") + ([] if options.trusted else list(_RUNS_PROJECT_CODE))
    if options.tools is None:
        return {"excluded_tools": excluded}
    brought = [*tools, *([_ASKING] if options.ask else []), *([_DELEGATING] if options.agents else [])]
    return {"available_tools": spelled(options.tools, "copilot") + brought, "excluded_tools": excluded}


def _discovery(options: SessionOptions, home: Path) -> dict[str, Any]:
    """Hooks, MCP servers, plugins and agents of the project only if it is trusted; the user's own always."""
    if options.trusted:
        return {"enable_config_discovery": True, "enable_file_hooks": True, "trust_working_directory": "session"}
    folders = {"skill_directories": home / "skills", "agent_directories": home / "agents"}
    found = {name: [str(folder)] for name, folder in folders.items() if folder.is_dir()}
    return {"enable_config_discovery": False, "enable_file_hooks": False, **found}
