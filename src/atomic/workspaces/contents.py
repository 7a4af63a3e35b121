"""Choose the ignored files that a workspace needs: dependencies and settings.

`.worktreeinclude` names them, in the syntax of `.gitignore`. Without that file they are
well-known folders of dependencies, and `.env` files. Only files that git ignores come
into question: all others are in the commit, or are the user's unfinished work.
"""

from __future__ import annotations

import asyncio
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
    """Ignored files and folders to copy, their size, and the ones that are too big."""

    paths: tuple[str, ...] = ()
    size: int = 0
    too_big: tuple[str, ...] = ()


async def find_contents(
    repository: Repository, *, copy: Sequence[str] | None = None, max_size: int = MAX_SIZE
) -> Contents:
    """Return the ignored files that a workspace gets. Raises GitError.

    `copy` are paths or names of files and folders; it replaces the rules above. Folders
    that would exceed `max_size` bytes together with those before them are left out.
    """
    ignored = [path.rstrip("/") for path in split(await repository.git(*_IGNORED, "--exclude-standard"))]
    rules = repository.root / INCLUDE_FILE
    if copy is not None:
        chosen = [path for path in ignored if _is_named(path, copy)]
    elif rules.is_file():
        listed = split(await repository.git(*_IGNORED, f"--exclude-from={rules}"))
        known = set(ignored)
        chosen = [path.rstrip("/") for path in listed if _is_within(path.rstrip("/"), known)]
    else:
        chosen = [path for path in ignored if _is_well_known(repository.root, path)]
    return await asyncio.to_thread(_measure, repository.root, chosen, max_size)


def _is_named(path: str, names: Sequence[str]) -> bool:
    return any(path == name.strip("/") or PurePosixPath(path).name == name.strip("/") for name in names)


def _is_within(path: str, ignored: Collection[str]) -> bool:
    return any(str(one) in ignored for one in (PurePosixPath(path), *PurePosixPath(path).parents))


def _is_well_known(root: Path, path: str) -> bool:
    name = PurePosixPath(path).name
    if (root / path).is_dir():
        # An editable install of setuptools has its metadata beside the code.
        return name in DEPENDENCIES or name.endswith(".egg-info")
    return name == ".env" or name.startswith(".env.")


def _measure(root: Path, chosen: Sequence[str], max_size: int) -> Contents:
    paths: list[str] = []
    too_big: list[str] = []
    total = 0
    for path in chosen:
        size = size_of(root / path)
        if total + size > max_size:
            too_big.append(path)
            continue
        total += size
        paths.append(path)
    return Contents(tuple(paths), total, tuple(too_big))


async def copy_contents(contents: Contents, source: Path, target: Path) -> None:
    """Copy the chosen files, sharing their blocks where the file system can.

    Raises ExecError, OSError.
    """
    for path in contents.paths:
        copy = target / path
        copy.parent.mkdir(parents=True, exist_ok=True)
        await copy_tree(source / path, copy)
