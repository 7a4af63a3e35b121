"""Errors of MCP servers and of their state."""

from __future__ import annotations

from pathlib import Path

from atomic.base.errors import AtomicError


class McpVariableError(AtomicError):
    """A server's configuration names a variable that has no value here."""

    def __init__(self, server: str, variable: str, reason: str) -> None:
        self.server, self.variable, self.reason = server, variable, reason
        super().__init__(f'MCP server "{server}" needs the variable "{variable}", {reason}')


class McpStateError(AtomicError):
    """The file with the enabled and disabled servers cannot be read or written."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path, self.reason = path, reason
        super().__init__(f"{path}: {reason}")
