"""The MCP servers of a session, in the agent's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from atomic.providers.acp.messages import McpKinds
from atomic.providers.base import McpServer
from atomic.providers.errors import UnsupportedError

Server: TypeAlias = dict[str, Any]  # in the words of the protocol


def spoken_servers(
    servers: Sequence[McpServer], takes: McpKinds, provider: str, left_out: Callable[[str], None]
) -> list[Server]:
    """The servers as the protocol names them; `left_out` hears why an optional one is none of them.

    Raises UnsupportedError for a kind that the agent does not take.
    """
    spoken: list[Server] = []
    for server in servers:
        try:
            spoken.append(_spoken(server, takes, provider))
        except UnsupportedError as error:
            if not server.optional:
                raise
            left_out(str(error))
    return spoken


def _spoken(server: McpServer, takes: McpKinds, provider: str) -> Server:
    if server.url is None:
        program, *args = server.command
        return {"name": server.name, "command": program, "args": args, "env": _pairs(server.env)}
    kind = "http" if takes.http and not server.sse else "sse" if takes.sse else None
    if kind is not None:
        return {"type": kind, "name": server.name, "url": server.url, "headers": _pairs(server.headers)}
    raise UnsupportedError(
        f'{provider} takes no MCP server at an address ("{server.name}")',
        provider=provider,
        remedy="give it as a program",
    )


def _pairs(words: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in words.items()]
