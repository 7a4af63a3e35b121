"""Plan the server of a session. Sessions with equal plans share one.

Model, system prompt, tools and questions are sent with each prompt. Environment, trust,
sub-agents and MCP servers (and with them custom tools) belong to the server.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import Settings
from atomic.providers.base import CustomTool, SessionOptions
from atomic.providers.environment import base_environment
from atomic.providers.opencode.configuration import (
    CONTENT,
    UserConfiguration,
    agents_as_configuration,
    encoded,
    literally,
    merge,
    read_user_configuration,
    servers_as_configuration,
    tool_server_as_configuration,
    with_prompts_in_files,
    without_asking,
)
from atomic.providers.opencode.environment import environment
from atomic.providers.opencode.tool_permissions import TOOL_SERVER
from atomic.providers.tool_server import ToolServer
from atomic.providers.tools import as_tools

_USUAL = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}  # no update during a session
_FIXED = {
    "OPENCODE_ENABLE_QUESTION_TOOL": "1",  # each session enables or denies it
    "OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS": "0",  # they would outlive their turn
}
_MAX_VARIABLE = 100_000  # bytes, of the 128 KB that Linux allows
_UNTRUSTED_ENVIRONMENT = {"OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
# Both run programs of the project, such as node_modules/.bin/prettier.
_UNTRUSTED_CONTENT = {"formatter": False, "lsp": False}
# OpenCode copies the files of a folder to its own data, before each call of the model.
# Workspaces of a run have one path, so that their servers would write to the same copy.
_WORKSPACE_CONTENT = {"snapshot": False}


@dataclass(frozen=True, eq=False)
class ServerPlan:
    """How to start a server."""

    launcher: tuple[str, ...]  # words before the command
    program: str
    args: tuple[str, ...]
    env: Mapping[str, str]  # without the configuration
    content: Mapping[str, Any]  # the configuration
    given: tuple[object, ...]  # custom tools as given by the caller
    tools: tuple[CustomTool, ...]
    liveness: float

    @property
    def key(self) -> Hashable:
        """Return the identity of the plan; equal tools are the same objects."""
        content = msgspec.json.encode(self.content)
        own = tuple(id(tool) for tool in self.given)
        return self.launcher, self.program, self.args, frozenset(self.env.items()), content, own, self.liveness

    def environment(self, tools: ToolServer | None, folder: Path) -> dict[str, str]:
        """Return the program's environment.

        `tools` is the server of custom tools, `folder` holds prompts that are too long.
        """
        content = self.content
        if tools is not None:
            content = merge(content, {"mcp": {TOOL_SERVER: tool_server_as_configuration(tools.url, tools.token)}})
        text = encoded(content)
        if len(text.encode()) > _MAX_VARIABLE:
            text = encoded(with_prompts_in_files(content, folder))
        return {**self.env, CONTENT: text}


def plan_server(program: str, settings: Settings, options: SessionOptions, *, liveness: float) -> ServerPlan:
    """Plan a server for these options. Raise ProviderError for contradictions."""
    own = settings.provider("opencode")
    user = read_user_configuration({**base_environment(settings), **own.env, **(options.env or {})})
    env = {**_USUAL, **environment(settings, user, options), **_FIXED}
    if not options.trusted:
        env |= _UNTRUSTED_ENVIRONMENT
    env.pop(CONTENT, None)
    return ServerPlan(
        launcher=tuple(options.launcher),
        program=program,
        args=tuple(own.args),
        env=env,
        content=_content(user, options),
        given=tuple(options.custom_tools),
        tools=tuple(as_tools(options.custom_tools)),
        liveness=liveness,
    )


def _content(user: UserConfiguration, options: SessionOptions) -> dict[str, Any]:
    """Return the user's configuration with the additions of this session."""
    added: dict[str, Any] = {}
    if options.agents:
        servers = [*user.servers(), *(server.name for server in options.mcp_servers)]
        if options.custom_tools:
            servers.append(TOOL_SERVER)
        added["agent"] = agents_as_configuration(options.agents, dict.fromkeys(servers))
    if options.mcp_servers or options.disabled_mcp_servers:
        added["mcp"] = servers_as_configuration(options.mcp_servers, options.disabled_mcp_servers)
    if options.launcher:
        added |= _WORKSPACE_CONTENT
    if not options.trusted:
        added |= _UNTRUSTED_CONTENT
    return merge(without_asking(user.content), literally(added))
