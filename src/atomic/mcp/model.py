"""A server as some tool's configuration describes it, in the same words for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec


class Origin(StrEnum):
    """Whose configuration it is, the one that wins first."""

    ATOMIC = "atomic"
    CLAUDE = "claude"
    OPENCODE = "opencode"
    COPILOT = "copilot"
    VSCODE = "vscode"


class Location(StrEnum):
    """Where the configuration lies; the project's wins."""

    PROJECT = "project"
    USER = "user"


class Transport(StrEnum):
    """How one talks to the server."""

    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


class McpEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One server in one file. Variables in it are as they stand there until `resolved` fills them in."""

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
    chosen: bool | None = None  # what the user said to Atomic, which beats the file
    on_in_file: bool = True  # whether the tool whose file it is would use it
    hidden_by: Path | None = None  # the file whose server of this name wins

    @property
    def needs_trust(self) -> bool:
        """Whether a session may use it only in a trusted project."""
        return self.location is Location.PROJECT

    @property
    def shown_command(self) -> tuple[str, ...]:
        """The command for a screen or a log: without what looks like a secret."""
        from atomic.mcp.showing import shown_command

        return shown_command(self)

    @property
    def shown_url(self) -> str | None:
        """The address for a screen or a log: without what looks like a secret."""
        from atomic.mcp.showing import shown_url

        return shown_url(self)

    def resolved(self, environ: Mapping[str, str]) -> McpEntry:
        """The same with its variables filled in, for a session that is about to use it. Raises McpVariableError."""
        from atomic.mcp.variables import resolve

        return resolve(self, environ)

    def __repr__(self) -> str:
        """Names alone: commands, addresses, variables and headers may hold secrets."""
        env, headers = ", ".join(self.env), ", ".join(self.headers)
        return (
            f"McpEntry({self.name!r}, {self.transport}, {self.origin}, {self.location}, {str(self.path)!r}, "
            f"enabled={self.enabled}, env=[{env}], headers=[{headers}])"
        )


class McpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of asking a server: its tools, or why there are none."""

    entry: McpEntry  # as it is configured
    resolved: McpEntry  # with its variables, and with the transport that it turned out to speak
    tools: Sequence[str] = ()
    error: str = ""


class McpDiagnostic(msgspec.Struct, frozen=True):
    """Something in a file that a person should look at; the rest of the files count all the same."""

    path: Path
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.reason}"


class McpList(msgspec.Struct, frozen=True):
    """All servers that were found, the ones that win first in each name, and what was wrong."""

    entries: Sequence[McpEntry]
    diagnostics: Sequence[McpDiagnostic] = ()

    @property
    def winners(self) -> list[McpEntry]:
        """One entry for each name."""
        return [entry for entry in self.entries if entry.hidden_by is None]

    def usable(self, *, trusted: bool) -> list[McpEntry]:
        """The servers that a session may have: enabled ones, and a project's only where it is trusted.

        Where it is not, its servers do not hide the user's own either: a stranger cannot take them away.
        """
        first: dict[str, McpEntry] = {}
        for entry in self.entries:
            if trusted or not entry.needs_trust:
                first.setdefault(entry.name, entry)
        return [entry for entry in first.values() if entry.enabled]

    def find(self, name: str) -> McpEntry | None:
        """The entry that wins in that name."""
        return next((entry for entry in self.winners if entry.name == name), None)
