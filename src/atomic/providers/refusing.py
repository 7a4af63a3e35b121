"""What a session is refused for when it opens, in the same words whichever provider it is."""

from __future__ import annotations

import os

from atomic.providers.base import Capabilities, McpServer, SessionOptions
from atomic.providers.errors import ProviderError, UnsupportedError
from atomic.providers.tools import SERVER


def refuse(provider: str, can: Capabilities, options: SessionOptions) -> None:
    """Raises UnsupportedError for what the provider cannot do, ProviderError for what nobody could."""
    _refuse_unsupported(provider, can, options)
    if twice := {server.name for server in options.mcp_servers} & set(options.disabled_mcp_servers):
        raise ProviderError(f'MCP server "{min(twice)}" is both wanted and left out', provider=provider)
    _refuse_servers(provider, [server.name for server in options.mcp_servers])
    for server in options.mcp_servers:
        _refuse_nothing(provider, server)
    if options.fork and not options.resume:
        raise ProviderError("fork=True needs resume= with the id of a session", provider=provider)
    if options.max_turns is not None and options.max_turns < 1:
        raise ProviderError(f"max_turns is at least 1, not {options.max_turns}", provider=provider)
    if options.cwd is not None and not os.path.isdir(options.cwd):
        raise ProviderError(f'Folder not found: "{options.cwd}" ({provider} was to work there)', provider=provider)


def _refuse_unsupported(provider: str, can: Capabilities, options: SessionOptions) -> None:
    asked = {
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
    for what, missing in asked.items():
        if missing:
            raise UnsupportedError(f"{provider} cannot {what}", provider=provider, remedy="choose another agent")


def _refuse_servers(provider: str, names: list[str]) -> None:
    if len(set(names)) < len(names) or SERVER in names:
        raise ProviderError(f'Two MCP servers have one name, or one is called "{SERVER}"', provider=provider)


def _refuse_nothing(provider: str, server: McpServer) -> None:
    if server.url is None and not server.command:
        raise ProviderError(f'MCP server "{server.name}" has neither a command nor a url', provider=provider)
