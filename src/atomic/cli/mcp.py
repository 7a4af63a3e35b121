"""`atomic mcp`: list the MCP servers of every tool's configuration.

It starts none, and prints no secret.
"""

from __future__ import annotations

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.cli.streams import json_line, put, put_table, tell
from atomic.mcp import McpEntry
from atomic.wiring import Project

NO_SERVERS = "No MCP servers are configured. Add one to ~/.atomic/mcp.json, or to .mcp.json of the project.\n"


def list_servers(arguments: Arguments) -> int:
    """Print all servers, where they are configured, and whether they are on."""
    found = Project().mcp
    if arguments.has("--json"):
        put(json_line([_as_json(entry) for entry in found.entries]))
    else:
        rows: list[tuple[str, ...]] = []
        for entry in found.entries:
            state = "on" if entry.enabled else "off"
            if entry.hidden_by is not None:
                state = "hidden"
            target = entry.shown_url or " ".join(entry.shown_command)
            rows.append((entry.name, state, entry.transport, entry.origin, str(entry.path), target))
        put_table(rows, empty=NO_SERVERS)
    for diagnostic in found.diagnostics:
        tell(str(diagnostic))
    return ExitCode.DONE


def _as_json(entry: McpEntry) -> dict[str, object]:
    return {
        "name": entry.name,
        "transport": entry.transport,
        "command": entry.shown_command or None,
        "url": entry.shown_url,
        "origin": entry.origin,
        "path": str(entry.path),
        "enabled": entry.enabled,
        "location": entry.location,
        "hidden_by": None if entry.hidden_by is None else str(entry.hidden_by),  # the file that wins this name
    }
