"""Find the files of all tools and read them into one list, with precedence and choices."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from json import JSONDecodeError
from pathlib import Path

import msgspec

from atomic.base.formats import parse_jsonc
from atomic.base.untrusted_files import read_inside, reason_of
from atomic.config import config_home, find_project
from atomic.config.known_agents import OPENCODE_CONFIGS
from atomic.mcp.dialects import Finding, Off, Source, read_servers
from atomic.mcp.model import Location, McpDiagnostic, McpEntry, McpList, Origin
from atomic.mcp.state import McpStateError, chosen, state_file

MAX_BYTES = 1024 * 1024
# Claude Code keeps its whole state in this file, not only settings. It grows with use.
MAX_CLAUDE_BYTES = 32 * 1024 * 1024


class Place(msgspec.Struct, frozen=True):
    """A file that may exist, and the folders that a link must not lead out of."""

    source: Source
    roots: tuple[Path, ...]
    max_bytes: int = MAX_BYTES


def places(project: Path | None, user: Path | None) -> list[Place]:
    """Return all files in order of precedence.

    A file that is both the project's and the user's counts as the user's.
    """
    of_user = list(_of_user(user))
    known = {_path_of(place) for place in of_user}
    of_project = () if project is None else _of_project(project)
    return [*(place for place in of_project if _path_of(place) not in known), *of_user]


def _path_of(place: Place) -> str:
    """Return the path of a file, not of its target: a link does not make a file the
    project's.
    """
    path = place.source.path
    return os.path.join(os.path.realpath(path.parent), path.name)


def _of_project(project: Path) -> Iterator[Place]:
    for origin, path in (
        (Origin.ATOMIC, ".atomic/mcp.json"),
        (Origin.CLAUDE, ".mcp.json"),
        *((Origin.OPENCODE, f".opencode/{name}") for name in OPENCODE_CONFIGS),
        *((Origin.OPENCODE, name) for name in OPENCODE_CONFIGS),
        (Origin.VSCODE, ".vscode/mcp.json"),
    ):
        yield Place(Source(origin, Location.PROJECT, project / path), (project,))


def _of_user(user: Path | None) -> Iterator[Place]:
    """Yield the user's files: below `user` if given, else where the environment says."""
    home = user or Path.home()

    def place(origin: Origin, folder: Path, name: str, max_bytes: int = MAX_BYTES) -> Place:
        # The user may choose a folder outside of home by the environment.
        chosen = () if folder.is_relative_to(home) else (folder,)
        return Place(Source(origin, Location.USER, folder / name), (home, *chosen), max_bytes)

    def folder(variable: str, usual: str) -> Path:
        chosen = os.environ.get(variable) if user is None else None
        return Path(chosen).expanduser().absolute() if chosen else home / usual

    yield place(Origin.ATOMIC, home / ".atomic" if user is not None else config_home(), "mcp.json")
    yield place(Origin.CLAUDE, folder("CLAUDE_CONFIG_DIR", ""), ".claude.json", MAX_CLAUDE_BYTES)
    for below in (home / ".opencode", folder("XDG_CONFIG_HOME", ".config") / "opencode"):
        for name in OPENCODE_CONFIGS:
            yield place(Origin.OPENCODE, below, name)
    yield place(Origin.COPILOT, folder("COPILOT_HOME", ".copilot"), "mcp-config.json")


def load_mcp_entries(project: Path | None = None, user: Path | None = None) -> McpList:
    """Return all MCP servers of a project and of the user.

    A broken file becomes a diagnostic.

    `project` is the current one by default; `user` is a home folder other than the
    user's own.
    """
    project = project or find_project()
    reading = _Reading(None if project is None else project.resolve())
    for place in places(project, user):
        reading.read(place)
    try:
        choices = chosen(project, state_file(user))
    except McpStateError as error:
        reading.diagnostics.append(McpDiagnostic(error.path, 1, error.reason))
        choices = dict[str, bool]()
    entries: list[McpEntry] = []
    for entry in reading.entries:
        by_file = entry.enabled and (entry.origin, entry.name) not in reading.off
        choice = choices.get(entry.name)
        enabled = by_file if choice is None else choice
        entries.append(msgspec.structs.replace(entry, enabled=enabled, chosen=choice, on_in_file=by_file))
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
        if content is None:
            return
        try:
            text = content.decode("utf-8-sig")
            data = parse_jsonc(text) if text.strip() else {}
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            self.diagnostics.append(McpDiagnostic(path, line, "this is not UTF-8 text"))
            return
        except JSONDecodeError as error:
            self.diagnostics.append(McpDiagnostic(path, error.lineno, f"this is not JSON: {error.msg}"))
            return
        except ValueError as error:
            self.diagnostics.append(McpDiagnostic(path, 1, f"this cannot be used: {error}"))
            return
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
    """Return the line of a key by searching for it, since the parser does not report
    lines.
    """
    found = re.search(re.escape(msgspec.json.encode(key).decode()) + r"\s*:", text)
    return 1 if found is None else text.count("\n", 0, found.start()) + 1


_LOCATIONS = list(Location)
_ORIGINS = list(Origin)


def _with_hidden(entries: Iterable[McpEntry]) -> list[McpEntry]:
    """Sort by precedence.

    All but the first entry of a name get the file that hides them.
    """
    winners: dict[str, Path] = {}
    result: list[McpEntry] = []
    # Sorting is stable: files, and project servers within Claude's file, keep their
    # order.
    for entry in sorted(entries, key=lambda entry: (_LOCATIONS.index(entry.location), _ORIGINS.index(entry.origin))):
        winner = winners.get(entry.name)
        winners.setdefault(entry.name, entry.path)
        result.append(entry if winner is None else msgspec.structs.replace(entry, hidden_by=winner))
    return result
