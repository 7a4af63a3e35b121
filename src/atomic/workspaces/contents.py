"""Choose the ignored files that a workspace needs: dependencies and settings.

`.worktreeinclude` names them, in the syntax of `.gitignore`. Without that file they are
well-known folders of dependencies, and `.env` files. Only files that git ignores come
into question: all others are in the commit, or are the user's unfinished work.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from atomic.git import Repository
from atomic.git.calls import split
from atomic.workspaces.folders import copy_tree, size_of

INCLUDE_FILE = ".worktreeinclude"
MAX_SIZE = 10_000_000_000  # bytes
DEPENDENCIES = frozenset(
    {
        ".bundle",
        ".gradle",
        ".nox",
        ".tox",
        ".venv",
        "Pods",
        "_build",
        "deps",
        "elm-stuff",
        "node_modules",
        "target",
        "vendor",
        "venv",
    }
)
_IGNORED = ("ls-files", "--others", "--ignored", "--directory", "-z")


class Contents(msgspec.Struct, frozen=True):
    """Ignored files and folders to copy, their bytes, and the too big ones, each with
    its bytes.
    """

    paths: tuple[str, ...] = ()
    size: int = 0
    too_big: tuple[tuple[str, int], ...] = ()

    def left_out(self, max_size: int) -> str:
        """Return a sentence about what is too big, or an empty text."""
        if not self.too_big:
            return ""
        named = ", ".join(f"{path} ({_readable(size)})" for path, size in self.too_big)
        needed = self.size + sum(size for _, size in self.too_big)
        return (
            f"left out of the workspaces, because ignored files may have {_readable(max_size)} in all: {named}. "
            f"To have them there, set max_size = {needed} (bytes) under [workspace] in .atomic/config.toml, "
            "or let its `setup` make them"
        )


async def find_contents(
    repository: Repository, *, copy: Sequence[str] | None = None, max_size: int = MAX_SIZE, project: Path | None = None
) -> Contents:
    """Return the ignored files that a workspace gets. Raises GitError.

    `copy` are paths or names of files and folders; it replaces the rules above. The
    smallest come first; what would exceed `max_size` bytes in all is left out.
    `project` is the user's folder in the repository, which may have an include file of
    its own.
    """
    ignored = [path.rstrip("/") for path in split(await repository.git(*_IGNORED, "--exclude-standard"))]
    known = set(ignored)
    if copy is not None:
        chosen = _named(repository.root, ignored, copy)
    elif any((folder / INCLUDE_FILE).is_file() for folder in (repository.root, project or repository.root)):
        listed = split(await repository.git(*_IGNORED, f"--exclude-per-directory={INCLUDE_FILE}"))
        chosen = [path.rstrip("/") for path in listed if _is_within(path.rstrip("/"), known)]
    else:
        chosen = [path for path in ignored if _is_well_known(repository.root, path)]
    return await asyncio.to_thread(_measure, repository.root, chosen, max_size)


def _named(root: Path, ignored: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return ignored paths by their names, and paths inside of ignored folders."""
    wanted = {name.strip("/") for name in names}
    found = [path for path in ignored if path in wanted or PurePosixPath(path).name in wanted]
    covered = set(found)
    known = set(ignored)
    inner = [name for name in sorted(wanted) if _is_within(name, known) and not _is_within(name, covered)]
    return [*found, *(name for name in inner if os.path.lexists(root / name))]


def _is_within(path: str, ignored: Collection[str]) -> bool:
    if ".." in PurePosixPath(path).parts:
        return False
    return any(str(one) in ignored for one in (PurePosixPath(path), *PurePosixPath(path).parents))


def _is_well_known(root: Path, path: str) -> bool:
    name = PurePosixPath(path).name
    if (root / path).is_dir():
        # An editable install of setuptools has its metadata next to the code.
        return name in DEPENDENCIES or name.endswith(".egg-info")
    return name == ".env" or name.startswith(".env.")


def _measure(root: Path, chosen: Sequence[str], max_size: int) -> Contents:
    sizes = {path: size_of(root / path) for path in chosen}
    taken: set[str] = set()
    total = 0
    for path in sorted(chosen, key=lambda path: sizes[path]):
        if total + sizes[path] > max_size:
            break
        total += sizes[path]
        taken.add(path)
    too_big = tuple((path, sizes[path]) for path in chosen if path not in taken)
    return Contents(tuple(path for path in chosen if path in taken), total, too_big)


def _readable(size: int) -> str:
    for unit, factor in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size} bytes"


async def copy_contents(contents: Contents, source: Path, target: Path) -> None:
    """Copy the chosen files, sharing their blocks where the file system can.

    Raises ExecError, OSError.
    """
    for path in contents.paths:
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        await copy_tree(source / path, copy)
