"""Map the tools of a session or sub-agent to OpenCode's permissions.

Only denials are sent: they also apply to sub-agents, and keep the user's own rules for
everything else. An allowance would override a user's `deny`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from atomic.providers.base import SessionOptions
from atomic.providers.tool_names import spelled
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
QUESTION = "question"
TASK = "task"
_EDITING = frozenset({"edit", "write", "apply_patch"})  # OpenCode has one permission for all three
_ALWAYS = frozenset({"invalid"})  # OpenCode redirects invalid calls to it
# A message without a map keeps the previous one, so a map always has this unused entry.
_UNUSED = "atomic-session"


def session_map(options: SessionOptions, *, known: Iterable[str], servers: Iterable[str]) -> dict[str, bool]:
    """Return False for each tool that the session must not use.

    `known` are all tools except the tools of MCP servers, whose names are in `servers`.
    A list of tools does not exclude additions of the caller: custom tools, MCP servers,
    sub-agents, `ask`.
    """
    denied = set(_plain(options.denied_tools))
    named: set[str] = set()
    if options.ask is None:
        denied.add(QUESTION)
    if options.tools is not None:
        allowed = {*_plain(options.tools), *_ALWAYS}
        if options.ask is not None:
            allowed.add(QUESTION)
        if options.agents:
            allowed.add(TASK)
        brought = {server.name for server in options.mcp_servers}
        if options.custom_tools:
            brought.add(TOOL_SERVER)
        patterns = _patterns(name for name in servers if name not in brought)
        denied |= {name for name in (*known, *BUILT_IN, *patterns) if name not in allowed}
        named = {name for name in allowed - denied if _is_among(name, patterns)}
    # The later entry wins: the list may name one tool of a denied server.
    return {_UNUSED: True, **dict.fromkeys(sorted(denied), False), **dict.fromkeys(sorted(named), True)}


def agent_permission(tools: Sequence[str], servers: Iterable[str]) -> dict[str, str]:
    """Return the denials for a sub-agent with that list of tools.

    `servers` are the MCP servers of the session.
    """
    allowed = set(_plain(tools))
    patterns = _patterns(servers)
    denied = {name for name in (*BUILT_IN, *patterns) if name not in allowed and name not in _EDITING}
    if not allowed & _EDITING:
        denied.add("edit")
    named = sorted(name for name in allowed if _is_among(name, patterns))
    return {**dict.fromkeys(sorted(denied), "deny"), **dict.fromkeys(named, "allow")}


def _plain(names: Iterable[str]) -> list[str]:
    """Convert names to OpenCode's spelling: `mcp__server__tool` is `server_tool`.

    `mcp__server` is `server_*`, all tools of a server.
    """
    plain: list[str] = []
    for name in spelled(names, "opencode"):
        server, _, tool = name.removeprefix("mcp__").partition("__")
        if name.startswith("mcp__"):
            name = _clean(server) + "_" + (_clean(tool) if tool and tool != "*" else "*")
        plain.append(name)
    return plain


def _patterns(servers: Iterable[str]) -> list[str]:
    return [_clean(name) + "_*" for name in servers]


def _is_among(name: str, patterns: Iterable[str]) -> bool:
    return any(name.startswith(pattern[:-1]) and name != pattern for pattern in patterns)


def _clean(name: str) -> str:
    """Return a server's name as OpenCode spells it in names of tools."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", name)
