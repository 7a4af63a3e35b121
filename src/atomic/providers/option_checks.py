"""Check session options before the session opens, and apply the list of tools.

The list of tools also selects the MCP servers of the user's configuration.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from atomic.providers.base import Capabilities, McpServer, SessionOptions
from atomic.providers.errors import ProviderError, UnsupportedError
from atomic.providers.tools import SERVER


def refuse(provider: str, can: Capabilities, options: SessionOptions) -> None:
    """Raise UnsupportedError for unsupported options, ProviderError for invalid ones."""
    _refuse_unsupported(provider, can, options)
    names = [server.name for server in options.mcp_servers]
    if contradictory := set(names) & set(options.disabled_mcp_servers):
        raise ProviderError(
            f'MCP server "{min(contradictory)}" is in both mcp_servers and disabled_mcp_servers',
            provider=provider,
            remedy="remove it from one of them",
        )
    if len(set(names)) < len(names) or SERVER in names:
        raise ProviderError(
            f'Two MCP servers have the same name, or one is called "{SERVER}"',
            provider=provider,
            remedy="rename one of them",
        )
    for server in options.mcp_servers:
        if server.url is None and not server.command:
            raise ProviderError(
                f'MCP server "{server.name}" has neither a command nor a url',
                provider=provider,
                remedy="add one of them to its configuration",
            )
    if options.fork and not options.resume:
        raise ProviderError("fork=True needs resume= with a session id", provider=provider)
    if options.max_turns is not None and options.max_turns < 1:
        raise ProviderError(f"max_turns must be at least 1, not {options.max_turns}", provider=provider)
    if options.cwd is not None and not os.path.isdir(options.cwd):
        raise ProviderError(f'Folder not found: "{options.cwd}" (the working folder of {provider})', provider=provider)


def _refuse_unsupported(provider: str, can: Capabilities, options: SessionOptions) -> None:
    missing = {
        "resume a session": bool(options.resume) and not can.resume,
        "fork a session": options.fork and not can.fork,
        "take sub-agents": bool(options.agents) and not can.subagents,
        "take custom tools": bool(options.custom_tools) and not can.custom_tools,
        "take MCP servers": bool(options.mcp_servers) and not can.mcp_servers,
        "leave out MCP servers": bool(options.disabled_mcp_servers) and not can.mcp_switching,
        "take a system prompt": options.system_prompt is not None and not can.system_prompt,
        "be restricted to some tools": bool(options.tools is not None or options.denied_tools)
        and not can.tool_selection,
        "be bounded by max_turns": options.max_turns is not None and not can.max_turns,
    }
    for feature, is_missing in missing.items():
        if is_missing:
            raise UnsupportedError(f"{provider} cannot {feature}", provider=provider, remedy="choose another agent")


def only_named(options: SessionOptions) -> SessionOptions:
    """Leave out optional servers, and tools of them, that the list of tools does not
    name.
    """
    if options.tools is None:
        return options
    kept = [server for server in options.mcp_servers if not server.optional or _named(server, options.tools)]
    unnamed = [tool for server in kept if server.optional for tool in _unnamed(server, options.tools)]
    # The agent must not start its own server of that name either.
    disabled = [server.name for server in options.mcp_servers if server.takes_place and server not in kept]
    return replace(
        options,
        mcp_servers=kept,
        denied_tools=[*options.denied_tools, *unnamed],
        disabled_mcp_servers=[*options.disabled_mcp_servers, *disabled],
    )


def _named(server: McpServer, tools: Sequence[str]) -> bool:
    whole = f"mcp__{server.name}"
    return any(name == whole or name.startswith(f"{whole}__") for name in tools)


def _unnamed(server: McpServer, tools: Sequence[str]) -> list[str]:
    whole = f"mcp__{server.name}"
    if whole in tools or f"{whole}__*" in tools:
        return []
    return [name for tool in server.tools if (name := f"{whole}__{tool}") not in tools]
