"""The files in which each tool keeps its MCP servers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atomic.config import atomic_home
from atomic.mcp.dialects import Source
from atomic.mcp.model import Location, Origin

MAX_BYTES = 1024 * 1024
# Claude Code keeps its whole state in this file, not only settings. With daily use it grows large.
MAX_CLAUDE_BYTES = 32 * 1024 * 1024

_OPENCODE = ("opencode.json", "opencode.jsonc")


class Place(msgspec.Struct, frozen=True):
    """A file that may exist, and the folders that a link must not lead out of."""

    source: Source
    roots: tuple[Path, ...]
    max_bytes: int = MAX_BYTES


def places(project: Path | None, user: Path | None) -> list[Place]:
    """Return all files, in order of precedence. A file that is both the project's and the user's is the user's."""
    yours = list(_of_user(user))
    known = {_where(place) for place in yours}
    theirs = () if project is None else _of_project(project)
    return [*(place for place in theirs if _where(place) not in known), *yours]


def _where(place: Place) -> str:
    """Return the path of the file itself, not of its target: a project does not own a user's file by a link."""
    path = place.source.path
    return os.path.join(os.path.realpath(path.parent), path.name)


def _of_project(project: Path) -> Iterator[Place]:
    for origin, path in (
        (Origin.ATOMIC, ".atomic/mcp.json"),
        (Origin.CLAUDE, ".mcp.json"),
        *((Origin.OPENCODE, f".opencode/{name}") for name in _OPENCODE),
        *((Origin.OPENCODE, name) for name in _OPENCODE),
        (Origin.VSCODE, ".vscode/mcp.json"),
    ):
        yield Place(Source(origin, Location.PROJECT, project / path), (project,))


def _of_user(user: Path | None) -> Iterator[Place]:
    """Return the user's files: the usual paths below a given home folder, else those that the environment names."""
    home = user or Path.home()

    def place(origin: Origin, folder: Path, name: str, max_bytes: int = MAX_BYTES) -> Place:
        chosen = () if folder.is_relative_to(home) else (folder,)  # the environment names it: that is the user's choice
        return Place(Source(origin, Location.USER, folder / name), (home, *chosen), max_bytes)

    def folder(variable: str, usual: str) -> Path:
        chosen = os.environ.get(variable) if user is None else None
        return Path(chosen).expanduser().absolute() if chosen else home / usual

    yield place(Origin.ATOMIC, home / ".atomic" if user is not None else atomic_home(), "mcp.json")
    yield place(Origin.CLAUDE, folder("CLAUDE_CONFIG_DIR", ""), ".claude.json", MAX_CLAUDE_BYTES)
    for below in (home / ".opencode", folder("XDG_CONFIG_HOME", ".config") / "opencode"):
        for name in _OPENCODE:
            yield place(Origin.OPENCODE, below, name)
    yield place(Origin.COPILOT, folder("COPILOT_HOME", ".copilot"), "mcp-config.json")
