"""MCP servers as the file that some agents read when they start."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atomic.providers.base import McpServer


def servers_file(servers: Sequence[McpServer]) -> bytes:
    """What the file holds: servers that are programs."""
    entries = {
        server.name: {
            "type": "local",
            "command": server.command[0],
            "args": list(server.command[1:]),
            "env": dict(server.env),
            "tools": ["*"],
        }
        for server in servers
    }
    return msgspec.json.encode({"mcpServers": entries})
