"""Apply a session's list of tools to the MCP servers of the user's configuration."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from atomic.providers.base import McpServer, SessionOptions


def only_named(options: SessionOptions) -> SessionOptions:
    """Leave out optional servers, and tools of them, that the list of tools does not name."""
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
