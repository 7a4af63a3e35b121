"""Plan the server of a session. Sessions with equal plans share one.

Model, system prompt, tools and questions are sent with each prompt. Environment, trust,
sub-agents and MCP servers (and with them custom tools) belong to the server.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import Settings
from atomic.providers.base import CustomTool, SessionOptions
from atomic.providers.environment import child_environment
from atomic.providers.opencode.configuration import (
    CONTENT,
    NAMES,
    UserConfiguration,
    agents_as_configuration,
    encoded,
    find_settings,
    literally,
    merge,
    read_user_configuration,
    servers_as_configuration,
    split_model,
    tool_server_as_configuration,
    with_prompts_in_files,
    without_asking,
)
from atomic.providers.opencode.environment import USUAL, variables_of
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

_PERMISSION = "OPENCODE_PERMISSION"
_PROHIBITIONS = ('"deny"', '"tools"', "\\")  # or a backslash, which may hide one
_NO_TITLES = {"agent": {"title": {"disable": True}}}  # not shown, and each needs a model call


@dataclass(frozen=True, eq=False)
class ServerPlan:
    """How to start a server."""

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
        return self.program, self.args, frozenset(self.env.items()), content, own, self.liveness

    def environment(self, tools: ToolServer | None, folder: Path) -> dict[str, str]:
        """Return the program's environment.

        `tools` is the server of custom tools, `folder` holds prompts that are too long.
        """
        content = _with_tools(self.content, tools)
        text = encoded(content)
        if len(text.encode()) > _MAX_VARIABLE:
            text = encoded(with_prompts_in_files(content, folder))
        return {**self.env, CONTENT: text}


def plan_server(program: str, settings: Settings, options: SessionOptions, *, liveness: float) -> ServerPlan:
    """Plan a server for these options. Raise ProviderError for contradictions."""
    own = settings.provider("opencode")
    user = _user_configuration(settings, options)
    env = _variables(settings, user, options)
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


def acp_environment(settings: Settings, options: SessionOptions, cwd: Path, tools: ToolServer | None) -> dict[str, str]:
    """Return the environment of `opencode acp`, which the protocol cannot configure.

    The protocol forwards no questions, and a sub-agent's permission request would hang
    the turn. The program also opens a port on loopback. Raise ProviderError for
    unreadable or invalid settings.
    """
    user = _user_configuration(settings, options)
    # Servers are sent over the protocol, also those that replace one of the user.
    replaced = [server.name for server in options.mcp_servers if server.takes_place]
    disabled = [*options.disabled_mcp_servers, *replaced]
    content = _content(user, msgspec.structs.replace(options, mcp_servers=(), disabled_mcp_servers=disabled))
    env = _variables(settings, user, options) | {
        CONTENT: encoded(_with_tools(merge(content, _NO_TITLES), tools)),
        "OPENCODE_CLIENT": "acp",
        "OPENCODE_ENABLE_QUESTION_TOOL": "0",
        # Without it all users of this machine could use the port.
        "OPENCODE_SERVER_PASSWORD": secrets.token_urlsafe(32),
    }
    rules = env.get(_PERMISSION, "")
    texts = [msgspec.json.encode(user.merged).decode(), rules, *_other_settings(cwd, trusted=options.trusted)]
    if not any(word in text for text in texts for word in _PROHIBITIONS):
        # The last rule that matches counts. Without the condition, this one for all
        # would override a denial of the user.
        own: dict[str, Any] = msgspec.json.decode(rules, type=dict[str, Any]) if rules else {}
        env[_PERMISSION] = msgspec.json.encode({**own, "**": "allow"}).decode()
    return env


def _other_settings(cwd: Path, *, trusted: bool) -> Iterator[str]:
    """Yield the settings of the machine, and of the project if it is trusted.

    Raise ProviderError.
    """
    folders = [Path("/etc/opencode")]
    if trusted:
        folders += [place for one in (cwd, *cwd.parents) for place in (one, one / ".opencode")]
    for file in (folder / name for folder in folders for name in NAMES):
        if (text := find_settings(file)) is not None:
            yield text


def _user_configuration(settings: Settings, options: SessionOptions) -> UserConfiguration:
    return read_user_configuration({**os.environ, **settings.provider("opencode").env, **(options.env or {})})


def _variables(settings: Settings, user: UserConfiguration, options: SessionOptions) -> dict[str, str]:
    env = {**_USUAL, **environment(settings, user, options), **_FIXED}
    return env if options.trusted else {**env, **_UNTRUSTED_ENVIRONMENT}


def _with_tools(content: Mapping[str, Any], tools: ToolServer | None) -> Mapping[str, Any]:
    if tools is None:
        return content
    return merge(content, {"mcp": {TOOL_SERVER: tool_server_as_configuration(tools.url, tools.token)}})


def environment(settings: Settings, user: UserConfiguration, options: SessionOptions) -> dict[str, str]:
    """Return the user's variables, with keys of the model providers in use only."""
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
    """Return the user's configuration with the additions of this session."""
    added: dict[str, Any] = {}
    if options.agents:
        servers = [*user.servers(), *(server.name for server in options.mcp_servers)]
        if options.custom_tools:
            servers.append(TOOL_SERVER)
        added["agent"] = agents_as_configuration(options.agents, dict.fromkeys(servers))
    if options.mcp_servers or options.disabled_mcp_servers:
        added["mcp"] = servers_as_configuration(options.mcp_servers, options.disabled_mcp_servers)
    if not options.trusted:
        added |= _UNTRUSTED_CONTENT
    return merge(without_asking(user.content), literally(added))
