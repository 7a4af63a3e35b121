"""`atomic mcp`: the MCP servers of every tool's configuration. Nothing here starts one, and no secret is printed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.terminal import one_line
from atomic.base.text import table
from atomic.cli.streams import json_line, put, screen_width, tell
from atomic.mcp import McpEntry
from atomic.wiring import Project


class ServerRow(msgspec.Struct, frozen=True):
    """A server as `--json` tells it."""

    name: str
    transport: str
    command: Sequence[str] | None
    url: str | None
    origin: str
    path: str
    enabled: bool
    location: str
    hidden_by: str | None  # the file whose server of this name counts


def list_servers(arguments: Arguments) -> int:
    """Print all servers, with where they are configured and whether they are on."""
    as_json = arguments.has("--json")
    found = Project().mcp
    if as_json:
        put(json_line([_row(entry) for entry in found.entries]))
    else:
        put(
            "".join(f"{line}\n" for line in table(map(_cells, found.entries), screen_width()))
            or "No MCP servers are configured.\n"
        )
    for diagnostic in found.diagnostics:
        tell(str(diagnostic))
    return ExitCode.DONE


def _row(entry: McpEntry) -> ServerRow:
    hidden_by = None if entry.hidden_by is None else str(entry.hidden_by)
    return ServerRow(
        entry.name, entry.transport, entry.shown_command or None, entry.shown_url, entry.origin, str(entry.path),
        entry.enabled, entry.location, hidden_by,
    )  # fmt: skip


def _cells(entry: McpEntry) -> Sequence[str]:
    state = "hidden" if entry.hidden_by is not None else "on" if entry.enabled else "off"
    where = entry.shown_url or " ".join(entry.shown_command)
    return tuple(map(one_line, (entry.name, state, entry.transport, entry.origin, str(entry.path), where)))
