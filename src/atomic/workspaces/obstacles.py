"""Find what would make a copy of a repository differ from the user's checkout.

Work in such a copy could be lost, or a check could prove another thing than the user's
files. The run then works in the checkout itself, or is refused.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path

from atomic.git import Repository
from atomic.git.calls import split
from atomic.workspaces.filters import find_filters

_LINK_TO_COMMIT = "160000 "
_TEST = "self-test-"  # and the number of its process


async def find_obstacle(repository: Repository, commit: str, folder: Path) -> str:
    """Return why workspaces in `folder` would not be right, or an empty text.

    Raises GitError, OSError.
    """
    listed = [entry.partition("\t") for entry in split(await repository.git("ls-tree", "-r", "-z", commit))]
    submodules = [path for facts, _, path in listed if facts.startswith(_LINK_TO_COMMIT)]
    filled = await asyncio.to_thread(_filled, repository.root, submodules)
    if filled:
        return f"work in the submodule {filled[0]} could not be kept"
    foreign = (await find_filters(repository, commit)).foreign
    if foreign:
        name, path = next(iter(foreign.items()))
        return (
            f"the repository's own configuration defines the filter {name}, which changes {path} and is not run;"
            " a filter in your global git configuration is"
        )
    if await asyncio.to_thread(_folds_names, folder):
        twins = find_twins(path for _, _, path in listed)
        if twins:
            return f"{twins[0]} and {twins[1]} are the same file in {folder}"
    return ""


def _filled(root: Path, submodules: Sequence[str]) -> list[str]:
    """Return the submodules that are checked out."""
    return [path for path in submodules if os.path.lexists(root / path / ".git")]


def _folds_names(folder: Path) -> bool:
    """Return whether the file system takes two names for the same."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in folder.glob(f"{_TEST}*"):
        _remove_if_left(left)
    with tempfile.TemporaryDirectory(prefix=f"{_TEST}{os.getpid()}-", dir=folder) as test:
        Path(test, "name").touch()
        return Path(test, "NAME").exists()


def _remove_if_left(test: Path) -> None:
    """Remove the folder of a test whose process was killed."""
    try:
        os.kill(int(test.name.removeprefix(_TEST).partition("-")[0]), 0)
    except (ProcessLookupError, ValueError):
        shutil.rmtree(test, ignore_errors=True)
    except PermissionError:  # a process of another user has that number now
        return


def find_twins(paths: Iterable[str]) -> tuple[str, str] | None:
    """Return two paths that differ only in case or in the form of their letters.

    Folders count too: files of `Docs` and `docs` would get into one folder.
    """
    known: dict[str, str] = {}
    for path in paths:
        for part in _parts(path):
            folded = unicodedata.normalize("NFC", part).casefold()
            other = known.setdefault(folded, part)
            if other != part:
                return other, part
    return None


def _parts(path: str) -> Iterable[str]:
    """Return a path and its folders."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)
    yield path
