"""An MCP server, in one form for the configurations of all tools."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec


class Origin(StrEnum):
    """The tool whose configuration it is, in order of precedence."""

    ATOMIC = "atomic"
    CLAUDE = "claude"
    OPENCODE = "opencode"
    COPILOT = "copilot"
    VSCODE = "vscode"


class Location(StrEnum):
    """The level of the configuration; the project's wins."""

    PROJECT = "project"
    USER = "user"


class Transport(StrEnum):
    """The protocol of the server."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


class McpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One server in one file. Its variables are unresolved until `resolved` fills them in."""

    name: str
    transport: Transport
    command: tuple[str, ...] = ()  # the program and its arguments
    url: str | None = None
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    origin: Origin
    location: Location
    path: Path
    enabled: bool = True
    chosen: bool | None = None  # the user's choice in Atomic, which overrides the file
    on_in_file: bool = True  # whether the tool itself would use it
    hidden_by: Path | None = None  # the file whose server of this name wins

    @property
    def needs_trust(self) -> bool:
        """Return whether a session may use it only in a trusted project."""
        return self.location is Location.PROJECT

    @property
    def shown_command(self) -> tuple[str, ...]:
        """Return the command for a screen or a log, without secrets."""
        from atomic.mcp.display import shown_command

        return shown_command(self)

    @property
    def shown_url(self) -> str | None:
        """Return the address for a screen or a log, without secrets."""
        from atomic.mcp.display import shown_url

        return shown_url(self)

    def resolved(self, environ: Mapping[str, str]) -> McpEntry:
        """Return the entry with its variables filled in, for a session. Raise McpVariableError."""
        from atomic.mcp.variables import resolve

        return resolve(self, environ)

    def __repr__(self) -> str:
        """Show only names: commands, addresses, variables and headers may hold secrets."""
        env, headers = ", ".join(self.env), ", ".join(self.headers)
        return (
            f"McpEntry({self.name!r}, {self.transport}, {self.origin}, {self.location}, {str(self.path)!r}, "
            f"enabled={self.enabled}, env=[{env}], headers=[{headers}])"
        )


class McpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a server, or the reason why they could not be listed."""

    entry: McpEntry  # as it is configured
    resolved: McpEntry  # with its variables resolved, and the transport that it speaks
    tools: Sequence[str] = ()
    error: str = ""


class McpDiagnostic(msgspec.Struct, frozen=True):
    """A problem in a file; all other files are still used."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class McpList(msgspec.Struct, frozen=True):
    """All servers that were found, in order of precedence for each name, and the problems."""

    entries: Sequence[McpEntry]
    diagnostics: Sequence[McpDiagnostic] = ()

    @property
    def winners(self) -> list[McpEntry]:
        """Return one entry for each name."""
        return [entry for entry in self.entries if entry.hidden_by is None]

    def usable(self, *, trusted: bool) -> list[McpEntry]:
        """Return the servers that a session may use: enabled ones, and a project's only if it is trusted.

        Servers of an untrusted project do not hide the user's own.
        """
        first: dict[str, McpEntry] = {}
        for entry in self.entries:
            if trusted or not entry.needs_trust:
                first.setdefault(entry.name, entry)
        return [entry for entry in first.values() if entry.enabled]

    def find(self, name: str) -> McpEntry | None:
        """Return the entry that wins for a name, or None."""
        return next((entry for entry in self.winners if entry.name == name), None)
