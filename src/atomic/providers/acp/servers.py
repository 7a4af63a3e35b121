"""The MCP servers of a session, in the agent's words."""

from __future__ import annotations

from collections.abc import Sequence

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


def spoken_servers(servers: Sequence[McpServer], can: AgentCapabilities, provider: str) -> list[Server]:
    """The servers as the protocol names them. Raises UnsupportedError for a kind that the agent does not take."""
    return [_spoken(server, can, provider) for server in servers]


def _spoken(server: McpServer, can: AgentCapabilities, provider: str) -> Server:
    if server.url is None:
        program, *args = server.command
        env = [EnvVariable(name=name, value=value) for name, value in server.env.items()]
        return McpServerStdio(name=server.name, command=program, args=args, env=env)
    headers = [HttpHeader(name=name, value=value) for name, value in server.headers.items()]
    kinds = can.mcp_capabilities
    if kinds is not None and kinds.http:
        return HttpMcpServer(type="http", name=server.name, url=server.url, headers=headers)
    if kinds is not None and kinds.sse:
        return SseMcpServer(type="sse", name=server.name, url=server.url, headers=headers)
    raise UnsupportedError(
        f'{provider} takes no MCP server at an address ("{server.name}")',
        provider=provider,
        remedy="give it as a program",
    )
