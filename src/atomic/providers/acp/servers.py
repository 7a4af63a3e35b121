"""Convert the MCP servers of a session to the protocol."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from atomic.providers.acp.messages import McpKinds
from atomic.providers.base import McpServer
from atomic.providers.errors import UnsupportedError

Server: TypeAlias = dict[str, Any]  # as the protocol defines it


def protocol_servers(
    servers: Sequence[McpServer], takes: McpKinds, provider: str, left_out: Callable[[str], None]
) -> list[Server]:
    """Convert the servers; `left_out` receives why an optional one is left out.

    Raise UnsupportedError for a kind that the agent does not support.
    """
    converted: list[Server] = []
    for server in servers:
        try:
            converted.append(_converted(server, takes, provider))
        except UnsupportedError as error:
            if not server.optional:
                raise
            left_out(str(error))
    return converted


def _converted(server: McpServer, takes: McpKinds, provider: str) -> Server:
    if server.url is None:
        program, *args = server.command
        return {"name": server.name, "command": program, "args": args, "env": _pairs(server.env)}
    if takes.http and not server.sse:
        kind = "http"
    elif takes.sse:
        kind = "sse"
    else:
        raise UnsupportedError(
            f'{provider} does not support MCP servers with a url ("{server.name}")',
            provider=provider,
            remedy="configure it as a program",
        )
    return {"type": kind, "name": server.name, "url": server.url, "headers": _pairs(server.headers)}


def _pairs(words: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in words.items()]
