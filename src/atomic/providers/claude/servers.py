"""The MCP servers of a session: configured ones, and custom tools as one in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from atomic.providers.base import McpServer, SessionOptions
from atomic.providers.tool_protocol import ToolProtocol
from atomic.providers.tools import SERVER as ATOMIC_SERVER
from atomic.providers.tools import as_tools

_PREFIX = f"mcp__{ATOMIC_SERVER}__"


class Servers:
    """The MCP configuration for the program; `tools` answers calls of custom tools."""

    def __init__(self, options: SessionOptions) -> None:
        # With a list of tools the program loads only these servers, so none has to replace the
        # user's own.
        self._configs = {
            server.name: _config(server)
            for server in options.mcp_servers
            if options.tools is None or not server.takes_place
        }
        tools = as_tools(options.custom_tools)
        self.tools = ToolProtocol(tools)
        if tools:
            # A call in the background would let the agent continue without the answer.
            self._configs[ATOMIC_SERVER] = {
                "type": "sdk",
                "name": ATOMIC_SERVER,
                "alwaysLoad": True,
                "disableAutoBackground": True,
            }

    def write(self, folder: Path) -> str | None:
        """Write the configuration file; other users could read secrets in a command line."""
        if not self._configs:
            return None
        path = folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": self._configs}), "utf-8")
        return str(path)


def clean_name(server: str) -> str:
    """Return a server's name as the program spells it in the names of its tools."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", server)


def name_of(tool: str) -> str:
    """Return the name of a custom tool without the program's prefix."""
    return tool.removeprefix(_PREFIX)


def _config(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "sse" if server.sse else "http", "url": server.url, "headers": dict(server.headers)}
    program, *arguments = server.command
    return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.env)}
