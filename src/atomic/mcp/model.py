"""An MCP server, in one form for the configurations of all tools."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atomic.base.errors import AtomicError

if TYPE_CHECKING:
    from atomic.base.redaction import Redactor

_BRACES = re.compile(r"\$\{(?:(?P<kind>env|input):)?(?P<name>[A-Za-z_][\w.-]*?)(?::-(?P<default>[^}]*))?\}", re.ASCII)
_OPENCODE = re.compile(r"\{env:(?P<name>[^}]+)\}")


class McpVariableError(AtomicError):
    """A server's configuration names a variable that has no value here."""

    def __init__(self, server: str, variable: str, reason: str) -> None:
        self.server = server
        self.variable = variable
        self.reason = reason
        super().__init__(f'MCP server "{server}" needs the variable "{variable}", {reason}')


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
    """One server in one file.

    Its variables are unresolved until `resolved` replaces them.

    command: the program and its arguments
    chosen: the user's choice in Atomic, which overrides the file
    on_in_file: whether the tool itself would use it
    hidden_by: the file whose server of this name wins
    """

    name: str
    transport: Transport
    command: tuple[str, ...] = ()
    url: str | None = None
    env: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}
    origin: Origin
    location: Location
    path: Path
    enabled: bool = True
    chosen: bool | None = None
    on_in_file: bool = True
    hidden_by: Path | None = None

    @property
    def needs_trust(self) -> bool:
        """Return whether a session may use it only in a trusted project."""
        return self.location is Location.PROJECT

    @property
    def shown_command(self) -> tuple[str, ...]:
        """Return the command for a screen or a log, without values of flags like
        `--api-key`.
        """
        from atomic.base.redaction import MARK, is_secret

        redactor = self.redactor()
        shown: list[str] = []
        secret_next = False
        for word in self.command:
            name, equals, _ = word.partition("=")
            if secret_next and not word.startswith("-"):
                shown.append(MARK)
            elif equals and is_secret(name):
                shown.append(f"{name}={MARK}")
            else:
                shown.append(redactor.text(word))
            secret_next = word.startswith("-") and not equals and is_secret(word)
        return tuple(shown)

    @property
    def shown_url(self) -> str | None:
        """Return the address for a screen or a log, without its query, which may hold
        tokens.
        """
        from urllib.parse import urlsplit, urlunsplit

        from atomic.base.redaction import MARK

        if self.url is None:
            return None
        try:
            parts = urlsplit(self.url)
        except ValueError:
            # Not an address: it may be a secret.
            return MARK
        host = parts.netloc.rpartition("@")[2]
        return self.redactor().text(urlunsplit((parts.scheme, host, parts.path, MARK if parts.query else "", "")))

    def redactor(self) -> Redactor:
        """Return a redactor for the values of its variables and headers."""
        from atomic.base.redaction import Redactor

        return Redactor.of_environment(self.env, headers=[self.headers])

    def resolved(self, environ: Mapping[str, str]) -> McpEntry:
        """Return the entry with its variables replaced by the rules of its tool.

        Raises McpVariableError for a variable without a value.
        """

        def fill(text: str) -> str:
            if self.origin is Origin.OPENCODE:
                # An unset variable is empty there.
                return _OPENCODE.sub(lambda found: environ.get(found["name"].strip(), ""), text)
            return _BRACES.sub(lambda found: self._variable(found, environ), text)

        return msgspec.structs.replace(
            self,
            command=tuple(map(fill, self.command)),
            url=None if self.url is None else fill(self.url),
            env={name: fill(value) for name, value in self.env.items()},
            headers={name: fill(value) for name, value in self.headers.items()},
        )

    def _variable(self, found: re.Match[str], environ: Mapping[str, str]) -> str:
        name = found["name"]
        if found["kind"] == "input":
            raise McpVariableError(self.name, f"input:{name}", "which only VS Code can ask for")
        if found["kind"] is None and self.origin is Origin.VSCODE and name in _VSCODE:
            return _VSCODE[name](self.path)
        if name in environ:
            return environ[name]
        if found["default"] is None:
            raise McpVariableError(self.name, name, "which is not set")
        return found["default"]

    def __repr__(self) -> str:
        """Show only names: commands, addresses, variables and headers may hold secrets."""
        env = ", ".join(self.env)
        headers = ", ".join(self.headers)
        return (
            f"McpEntry({self.name!r}, {self.transport}, {self.origin}, {self.location}, {str(self.path)!r}, "
            f"enabled={self.enabled}, env=[{env}], headers=[{headers}])"
        )


# VS Code's own variables; the file is `.vscode/mcp.json` in the folder.
_VSCODE: Mapping[str, Callable[[Path], str]] = {
    "workspaceFolder": lambda path: str(path.parent.parent),
    "workspaceFolderBasename": lambda path: path.parent.parent.name,
    "userHome": lambda path: str(Path.home()),
}


class McpAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The tools of a server, or the reason why they could not be listed.

    `resolved` has the variables replaced and the transport that the server uses.
    """

    entry: McpEntry
    resolved: McpEntry
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
    """All servers that were found, in order of precedence for each name, and the
    problems.
    """

    entries: Sequence[McpEntry]
    diagnostics: Sequence[McpDiagnostic] = ()

    @property
    def winners(self) -> list[McpEntry]:
        """Return one entry for each name."""
        return [entry for entry in self.entries if entry.hidden_by is None]

    def usable(self, *, trusted: bool) -> list[McpEntry]:
        """Return the enabled servers; those of a project only if it is trusted.

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
