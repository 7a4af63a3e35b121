"""MCP servers of a session: the user's own choice, and our tools as one that runs in this process."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from atomic.providers.base import McpServer, SessionOptions
from atomic.providers.tool_protocol import ToolProtocol
from atomic.providers.tools import SERVER as OURS
from atomic.providers.tools import as_tools

_PREFIX = f"mcp__{OURS}__"


class Servers:
    """All servers of a session, as the program wants to be told of them; `ours` answers for our tools."""

    def __init__(self, options: SessionOptions) -> None:
        # With a list of tools the program has only the servers that it is told of here: none of the user's own.
        told = [server for server in options.mcp_servers if options.tools is None or not server.takes_place]
        self._told = {server.name: _config(server) for server in told}
        tools = as_tools(options.custom_tools)
        self.ours = ToolProtocol(tools)
        if tools:
            # Always in sight, and never moved to the background, where an agent would go on without the answer.
            self._told[OURS] = {"type": "sdk", "name": OURS, "alwaysLoad": True, "disableAutoBackground": True}

    def write(self, folder: Path) -> str | None:
        """A file for the program: addresses and headers may be secret, and a command line can be read by all."""
        if not self._told:
            return None
        path = folder / "mcp.json"
        path.write_text(json.dumps({"mcpServers": self._told}), "utf-8")
        return str(path)


def clean_name(server: str) -> str:
    """A server's name as the program makes it part of the names of its tools."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", server)


def name_of(tool: str) -> str:
    """The name that a tool was given: the program calls ours after their server."""
    return tool.removeprefix(_PREFIX)


def _config(server: McpServer) -> dict[str, Any]:
    if server.url is not None:
        return {"type": "sse" if server.sse else "http", "url": server.url, "headers": dict(server.headers)}
    program, *arguments = server.command
    return {"type": "stdio", "command": program, "args": arguments, "env": dict(server.env)}
