"""Resolve the variables of a server by the rules of the tool whose configuration it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from atomic.mcp.errors import McpVariableError
from atomic.mcp.model import McpEntry, Origin

_BRACES = re.compile(r"\$\{(?:(?P<kind>env|input):)?(?P<name>[A-Za-z_][\w.-]*?)(?::-(?P<default>[^}]*))?\}", re.ASCII)
_OPENCODE = re.compile(r"\{env:(?P<name>[^}]+)\}")

Fill = Callable[[str], str]


def resolve(entry: McpEntry, environ: Mapping[str, str]) -> McpEntry:
    """Return the entry with all variables replaced. Raise McpVariableError for one without a value."""
    fill = _filler(entry, environ)
    return msgspec.structs.replace(
        entry,
        command=tuple(map(fill, entry.command)),
        url=None if entry.url is None else fill(entry.url),
        env={name: fill(value) for name, value in entry.env.items()},
        headers={name: fill(value) for name, value in entry.headers.items()},
    )


def _filler(entry: McpEntry, environ: Mapping[str, str]) -> Fill:
    if entry.origin is Origin.OPENCODE:  # a variable that is not set is empty there
        return lambda text: _OPENCODE.sub(lambda found: environ.get(found["name"].strip(), ""), text)
    return lambda text: _BRACES.sub(lambda found: _value(entry, found, environ), text)


def _value(entry: McpEntry, found: re.Match[str], environ: Mapping[str, str]) -> str:
    kind, name, default = found["kind"], found["name"], found["default"]
    if kind == "input":
        raise McpVariableError(entry.name, f"input:{name}", "which only VS Code can ask for")
    if kind is None and entry.origin is Origin.VSCODE and name in _VSCODE:
        return _VSCODE[name](entry)
    if name in environ:
        return environ[name]
    if default is None:
        raise McpVariableError(entry.name, name, "which is not set")
    return default


_VSCODE: Mapping[str, Callable[[McpEntry], str]] = {
    "workspaceFolder": lambda entry: str(entry.path.parent.parent),  # the file is .vscode/mcp.json in it
    "workspaceFolderBasename": lambda entry: entry.path.parent.parent.name,
    "userHome": lambda entry: str(Path.home()),
}
