"""The MCP servers of a session, in the agent's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from acp.schema import (
    AcpMcpServer,
    AgentCapabilities,
    EnvVariable,
    HttpHeader,
    HttpMcpServer,
    McpServerStdio,
    SseMcpServer,
)

from atomic.providers.base import McpServer
from atomic.providers.errors import UnsupportedError

Server = HttpMcpServer | SseMcpServer | AcpMcpServer | McpServerStdio  # what the SDK takes


def spoken_servers(
    servers: Sequence[McpServer], can: AgentCapabilities, provider: str, left_out: Callable[[str], None]
) -> list[Server]:
    """The servers as the protocol names them; `left_out` hears why an optional one is none of them.

    Raises UnsupportedError for a kind that the agent does not take.
    """
    spoken: list[Server] = []
    for server in servers:
        try:
            spoken.append(_spoken(server, can, provider))
        except UnsupportedError as error:
            if not server.optional:
                raise
            left_out(str(error))
    return spoken


def _spoken(server: McpServer, can: AgentCapabilities, provider: str) -> Server:
    if server.url is None:
        program, *args = server.command
        env = [EnvVariable(name=name, value=value) for name, value in server.env.items()]
        return McpServerStdio(name=server.name, command=program, args=args, env=env)
    headers = [HttpHeader(name=name, value=value) for name, value in server.headers.items()]
    kinds = can.mcp_capabilities
    if kinds is not None and kinds.http and not server.sse:
        return HttpMcpServer(type="http", name=server.name, url=server.url, headers=headers)
    if kinds is not None and kinds.sse:
        return SseMcpServer(type="sse", name=server.name, url=server.url, headers=headers)
    raise UnsupportedError(
        f'{provider} takes no MCP server at an address ("{server.name}")',
        provider=provider,
        remedy="give it as a program",
    )
