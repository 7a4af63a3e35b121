"""Helpers that write files to a project and a home folder and load them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from atomic.entities import Entity, EntityRegistry, Location


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder."""
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def load(
    tmp_path: Path, project: Mapping[str, str | bytes] = {}, home: Mapping[str, str | bytes] = {}
) -> EntityRegistry:
    """Load the registry of a project and a home folder with these files."""
    folders = [tmp_path / "project", tmp_path / "home"]
    for folder, files in zip(folders, (project, home), strict=True):
        folder.mkdir(exist_ok=True)
        write(folder, files)
    return EntityRegistry.load(project=folders[0], user=folders[1])


def own(registry: EntityRegistry) -> list[Entity]:
    """Return the winners that are not built in."""
    return [entity for entity in registry.all() if entity.source.location is not Location.BUILTIN]


def one(tmp_path: Path, name: str, text: str | bytes) -> Entity:
    """Return the only entity of a project with one file."""
    registry = load(tmp_path, {name: text})
    assert registry.diagnostics == []
    [entity] = own(registry)
    return entity


def reasons(registry: EntityRegistry) -> list[tuple[str, int, str]]:
    """Return file name, line and reason of each diagnostic."""
    return [(found.path.name, found.line, found.reason) for found in registry.diagnostics]
