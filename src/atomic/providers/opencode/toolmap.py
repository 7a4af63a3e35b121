"""Which tools a session or a sub-agent may use, in OpenCode's words.

Only denials are ever said: they reach the sub-agents too, and they leave the user's own rules for what is not denied
as they are. An allowance would overrule a user's `deny`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from atomic.providers.base import SessionOptions
from atomic.providers.toolnames import spelled
from atomic.providers.tools import SERVER as TOOL_SERVER

BUILT_IN = (
    "question",
    "bash",
    "read",
    "glob",
    "grep",
    "list",
    "edit",
    "write",
    "apply_patch",
    "task",
    "webfetch",
    "websearch",
    "codesearch",
    "todowrite",
    "skill",
    "lsp",
)
QUESTION, TASK = "question", "task"
_EDITING = frozenset({"edit", "write", "apply_patch"})  # OpenCode has one permission for the three
_ALWAYS = frozenset({"invalid"})  # to which a wrong call is turned
# A message without a map leaves the one before in force: there is always something in it, and be it a name of nobody.
_NOBODY = "atomic-session"


def session_map(options: SessionOptions, *, known: Iterable[str], servers: Iterable[str]) -> dict[str, bool]:
    """For each tool that the session must not use: False.

    `known`: all that there are but those of MCP servers, whose names are `servers`. With a list of tools, what the
    caller brings along (own tools, MCP servers, sub-agents, somebody to ask) is available in addition.
    """
    denied = set(_plain(options.denied_tools))
    named: set[str] = set()
    if options.ask is None:
        denied.add(QUESTION)
    if options.tools is not None:
        allowed = {*_plain(options.tools), *_ALWAYS}
        allowed |= {QUESTION} if options.ask is not None else set()
        allowed |= {TASK} if options.agents else set()
        brought = {server.name for server in options.mcp_servers}
        brought |= {TOOL_SERVER} if options.custom_tools else set()
        patterns = _patterns(name for name in servers if name not in brought)
        denied |= {name for name in (*known, *BUILT_IN, *patterns) if name not in allowed}
        named = {name for name in allowed - denied if _is_among(name, patterns)}
    # The later entry holds: one tool may be named of a server that is denied.
    return {_NOBODY: True, **dict.fromkeys(sorted(denied), False), **dict.fromkeys(sorted(named), True)}


def agent_permission(tools: Sequence[str], servers: Iterable[str]) -> dict[str, str]:
    """What a sub-agent with that list of tools may not do. `servers`: the MCP servers that the session knows."""
    allowed, patterns = set(_plain(tools)), _patterns(servers)
    denied = {name for name in (*BUILT_IN, *patterns) if name not in allowed and name not in _EDITING}
    if not allowed & _EDITING:
        denied.add("edit")
    named = sorted(name for name in allowed if _is_among(name, patterns))
    return {**dict.fromkeys(sorted(denied), "deny"), **dict.fromkeys(named, "allow")}


def _plain(names: Iterable[str]) -> list[str]:
    """The names in OpenCode's spelling: `mcp__server__tool` is `server_tool`, `mcp__server` all tools of a server."""
    return [_plain_name(name) for name in spelled(names, "opencode")]


def _plain_name(name: str) -> str:
    if not name.startswith("mcp__"):
        return name
    server, _, tool = name.removeprefix("mcp__").partition("__")
    return _clean(server) + "_" + (_clean(tool) if tool and tool != "*" else "*")


def _patterns(servers: Iterable[str]) -> list[str]:
    return [_clean(name) + "_*" for name in servers]


def _is_among(name: str, patterns: Iterable[str]) -> bool:
    return any(name.startswith(pattern[:-1]) and name != pattern for pattern in patterns)


def _clean(name: str) -> str:
    """A name as OpenCode makes it part of a tool's."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)
