"""Find files of the project by some letters.

No program of the repository is run for it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from atomic.git import GitError, find_repository

_FRESH = 5.0  # seconds that a list is used
_MOST = 200_000  # files of a folder without git
_SKIPPED_FOLDERS = {"node_modules", "__pycache__", "target", "dist", "build"}
_CUTOFF = 60


class ProjectFiles:
    """The relative paths of the files below a folder.

    The list is renewed after five seconds.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: Sequence[str] = ()
        self._listed_at = float("-inf")
        self._listing = asyncio.Lock()

    async def find(self, text: str, limit: int) -> tuple[str, ...]:
        """Return the matching paths, best first."""
        async with self._listing:
            if time.monotonic() - self._listed_at > _FRESH:
                self._paths = await self._list()
                self._listed_at = time.monotonic()
        return await asyncio.to_thread(best, text, self._paths, limit)

    async def _list(self) -> Sequence[str]:
        repository = find_repository(self._folder)
        if repository is not None:
            try:
                listed = await repository.git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
            except GitError:  # git cannot read the repository: treat it as a folder
                pass
            else:
                return _below(self._folder, repository.root, listed.split("\0"))
        return await asyncio.to_thread(lambda: list(_walk(str(self._folder))))


def best(text: str, paths: Sequence[str], limit: int) -> tuple[str, ...]:
    """Return matching paths: by the start of the name, by substring, then by
    similarity.
    """
    wanted = text.casefold()
    if not wanted:
        return tuple(sorted(paths, key=lambda path: (path.count("/"), path))[:limit])
    ranked = [(rank, len(path), path) for path in paths if (rank := _rank(wanted, path.casefold())) is not None]
    found = [path for _, _, path in sorted(ranked)[:limit]]
    if len(found) < limit and len(wanted) > 2:
        found += [path for path in _near(wanted, paths, limit) if path not in set(found)]
    return tuple(found[:limit])


def _rank(wanted: str, path: str) -> int | None:
    name = path.rpartition("/")[2]
    if name.startswith(wanted):
        return 0
    if wanted in name:
        return 1
    if path.startswith(wanted):
        return 2
    return 3 if wanted in path else None


def _near(wanted: str, paths: Sequence[str], limit: int) -> list[str]:
    from rapidfuzz import fuzz, process, utils

    found = process.extract(
        wanted, paths, scorer=fuzz.partial_ratio, processor=utils.default_process, limit=limit, score_cutoff=_CUTOFF
    )
    return [path for path, _, _ in found]


def _below(folder: Path, root: Path, paths: Sequence[str]) -> list[str]:
    """Return the paths below a folder, relative to it.

    Unprintable names cannot be typed.
    """
    prefix = os.path.relpath(folder.resolve(), root) + "/"
    if prefix == "./":
        prefix = ""
    found = dict.fromkeys(path[len(prefix) :] for path in paths if path.startswith(prefix))
    return [path for path in found if path and path.isprintable()]


def _walk(folder: str) -> Iterator[str]:
    count = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _SKIPPED_FOLDERS)
        for name in sorted(files):
            path = os.path.relpath(os.path.join(here, name), folder)
            if path.isprintable():
                count += 1
                yield path
            if count >= _MOST:
                return
