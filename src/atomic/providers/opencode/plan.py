"""What a session needs of its server. Sessions with the same needs share one.

A model, a system prompt, tools, a question are said with each prompt. The environment, trust, sub-agents and MCP
servers (and with them our own tools) belong to the whole server.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.config import Settings
from atomic.providers.base import CustomTool, SessionOptions
from atomic.providers.environment import child_environment
from atomic.providers.opencode.configuration import (
    CONTENT,
    UserConfiguration,
    agents_as_configuration,
    disabled_as_configuration,
    encoded,
    literally,
    merge,
    read_user_configuration,
    servers_as_configuration,
    split_model,
    tool_server_as_configuration,
    with_prompts_in_files,
    without_asking,
)
from atomic.providers.opencode.keys import USUAL, variables_of
from atomic.providers.opencode.toolmap import TOOL_SERVER
from atomic.providers.tool_server import ToolServer
from atomic.providers.tools import as_tools

_USUAL = {"OPENCODE_DISABLE_AUTOUPDATE": "1"}  # not while it works for us
_FIXED = {
    "OPENCODE_ENABLE_QUESTION_TOOL": "1",  # each session says whether it wants it
    "OPENCODE_EXPERIMENTAL_BACKGROUND_SUBAGENTS": "0",  # they would outlive the turn that began them
}
_ROOM = 100_000  # bytes in a variable of the environment, of the 128 KB that Linux allows
_STRANGERS_OUT = {"OPENCODE_DISABLE_PROJECT_CONFIG": "1"}
# Both run programs that they find in the project, such as node_modules/.bin/prettier.
_STRANGERS_PROGRAMS_OUT = {"formatter": False, "lsp": False}


@dataclass(frozen=True, eq=False)
class ServerPlan:
    """How to start the server."""

    program: str
    args: tuple[str, ...]
    env: Mapping[str, str]  # all but the configuration
    content: Mapping[str, Any]  # of the configuration
    given: tuple[object, ...]  # our own tools as the caller gave them
    tools: tuple[CustomTool, ...]
    liveness: float

    @property
    def key(self) -> Hashable:
        """What makes two plans the same one; a tool is the same only if it is the very same object."""
        content = msgspec.json.encode(self.content)
        own = tuple(id(tool) for tool in self.given)
        return self.program, self.args, frozenset(self.env.items()), content, own, self.liveness

    def environment(self, tools: ToolServer | None, folder: Path) -> dict[str, str]:
        """The whole environment of the program. `tools`: where our own can be called; `folder`: for what is too big."""
        content = self.content
        if tools is not None:
            added = {"mcp": {TOOL_SERVER: tool_server_as_configuration(tools.url, tools.token)}}
            content = merge(content, added)
        text = encoded(content)
        if len(text.encode()) > _ROOM:
            text = encoded(with_prompts_in_files(content, folder))
        return {**self.env, CONTENT: text}


def plan_server(program: str, settings: Settings, options: SessionOptions, *, liveness: float) -> ServerPlan:
    """Raises ProviderError for what does not fit together."""
    own = settings.provider("opencode")
    extra = {**own.env, **(options.env or {})}
    user = read_user_configuration({**os.environ, **extra})
    env = {**_USUAL, **environment(settings, user, options), **_FIXED}
    if not options.trusted:
        env |= _STRANGERS_OUT
    env.pop(CONTENT, None)
    return ServerPlan(
        program=program,
        args=tuple(own.args),
        env=env,
        content=_content(user, options),
        given=tuple(options.custom_tools),
        tools=tuple(as_tools(options.custom_tools)),
        liveness=liveness,
    )


def environment(settings: Settings, user: UserConfiguration, options: SessionOptions) -> dict[str, str]:
    """The user's variables with the keys of the model providers that are to be used, and of no others."""
    providers = user.providers() or set(USUAL)
    if options.model is not None:
        providers.add(split_model(options.model)[0])
    variables = variables_of(providers) | user.variables
    return child_environment(
        ("OPENCODE_", *sorted(variables)),
        passed=settings.env.pass_,
        extra={**settings.provider("opencode").env, **(options.env or {})},
    )


def _content(user: UserConfiguration, options: SessionOptions) -> dict[str, Any]:
    """The user's own, nothing of it replaced, with what this session adds."""
    servers = {
        **dict.fromkeys(_names(user.merged.get("mcp"))),
        **dict.fromkeys(server.name for server in options.mcp_servers),
        **(dict.fromkeys([TOOL_SERVER]) if options.custom_tools else {}),
    }
    added: dict[str, Any] = {}
    if options.agents:
        added["agent"] = agents_as_configuration(options.agents, servers)
    if options.mcp_servers or options.disabled_mcp_servers:
        off = disabled_as_configuration(options.disabled_mcp_servers)
        added["mcp"] = {**off, **servers_as_configuration(options.mcp_servers)}
    if not options.trusted:
        added |= _STRANGERS_PROGRAMS_OUT
    return merge(without_asking(user.content), literally(added))


def _names(value: Any) -> list[str]:
    return list(cast("dict[str, Any]", value)) if isinstance(value, dict) else []
