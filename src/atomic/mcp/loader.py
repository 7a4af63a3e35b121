"""Read all files into one list, with precedence and the enabled state of each server."""

from __future__ import annotations

import re
from collections.abc import Iterable
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import msgspec

from atomic.base import jsonc
from atomic.base.untrusted_files import read_inside, reason_of
from atomic.config import find_project
from atomic.mcp.config_files import Place, places
from atomic.mcp.dialects import Finding, Off, read_servers
from atomic.mcp.errors import McpStateError
from atomic.mcp.model import Location, McpDiagnostic, McpEntry, McpList, Origin
from atomic.mcp.state import chosen, state_file


def load_mcp_entries(project: Path | None = None, user: Path | None = None) -> McpList:
    """Return all MCP servers of a project and of the user; a broken file becomes one diagnostic.

    `project` is the current one by default; `user` is a home folder other than the user's own.
    """
    project = project or find_project()
    reading = _Reading(None if project is None else project.resolve())
    for place in places(project, user):
        reading.read(place)
    entries = _as_chosen(reading, project, user)
    return McpList(_with_hidden(entries), reading.diagnostics)


class _Reading:
    """The entries and diagnostics found so far."""

    def __init__(self, project: Path | None) -> None:
        self.entries: list[McpEntry] = []
        self.diagnostics: list[McpDiagnostic] = []
        self.off: set[tuple[Origin, str]] = set()
        self._project = project

    def read(self, place: Place) -> None:
        path = place.source.path
        try:
            content = read_inside(path, roots=place.roots, limit=place.max_bytes)
        except OSError as error:
            self.diagnostics.append(McpDiagnostic(path, 1, reason_of(error)))
            return
        if content is not None and (text := self._text(path, content)):
            self._take(place, text, self._data(path, text))

    def _text(self, path: Path, content: bytes) -> str:
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.diagnostics.append(McpDiagnostic(path, line, "this is not UTF-8 text"))
            return ""

    def _data(self, path: Path, text: str) -> dict[str, Any]:
        try:
            return jsonc.parse(text) if text.strip() else {}
        except JSONDecodeError as error:
            self.diagnostics.append(McpDiagnostic(path, error.lineno, f"this is not JSON: {error.msg}"))
        except ValueError as error:
            self.diagnostics.append(McpDiagnostic(path, 1, f"this cannot be used: {error}"))
        return {}

    def _take(self, place: Place, text: str, data: dict[str, Any]) -> None:
        for item in read_servers(data, place.source, self._project):
            match item:
                case McpEntry():
                    self.entries.append(item)
                case Off():
                    self.off.add((place.source.origin, item.name))
                case Finding():
                    line = _line_of(text, item.name)
                    self.diagnostics.append(McpDiagnostic(place.source.path, line, item.reason))


def _line_of(text: str, key: str) -> int:
    """Return the line of a key by searching for it, since the parser does not report lines."""
    found = re.search(re.escape(msgspec.json.encode(key).decode()) + r"\s*:", text)
    return 1 if found is None else text.count("\n", 0, found.start()) + 1


def _as_chosen(reading: _Reading, project: Path | None, user: Path | None) -> list[McpEntry]:
    """Apply the user's choices in Atomic, which override the files."""
    try:
        said = chosen(project, state_file(user))
    except McpStateError as error:
        reading.diagnostics.append(McpDiagnostic(error.path, 1, error.reason))
        said = dict[str, bool]()
    return [_switched(entry, said.get(entry.name), reading.off) for entry in reading.entries]


def _switched(entry: McpEntry, said: bool | None, off: set[tuple[Origin, str]]) -> McpEntry:
    by_file = entry.enabled and (entry.origin, entry.name) not in off
    enabled = by_file if said is None else said
    return msgspec.structs.replace(entry, enabled=enabled, chosen=said, on_in_file=by_file)


_LOCATIONS, _ORIGINS = list(Location), list(Origin)


def _with_hidden(entries: Iterable[McpEntry]) -> list[McpEntry]:
    """Sort by precedence; all but the first entry of a name get the file that hides them."""
    winners: dict[str, Path] = {}
    result: list[McpEntry] = []
    for entry in sorted(entries, key=_rank):
        winner = winners.get(entry.name)
        winners.setdefault(entry.name, entry.path)
        result.append(entry if winner is None else msgspec.structs.replace(entry, hidden_by=winner))
    return result


def _rank(entry: McpEntry) -> tuple[int, int]:
    """Return the sort key. Sorting is stable, so files, and project servers within Claude's file, keep their order."""
    return _LOCATIONS.index(entry.location), _ORIGINS.index(entry.origin)
