"""Files of the project that fit some letters. Nothing that a repository brings is run to find them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from atomic.git import GitError, find_repository

_FRESH = 5.0  # seconds
_MOST = 200_000  # files of a folder without git
_PASSED_OVER = {"node_modules", "__pycache__", "target", "dist", "build"}
_CUTOFF = 60


class ProjectFiles:
    """The files below a folder, by their paths from there; looked at again when somebody asks after a while."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._paths: Sequence[str] = ()
        self._looked = float("-inf")
        self._looking = asyncio.Lock()

    async def find(self, text: str, limit: int) -> tuple[str, ...]:
        """Those that fit, the best first."""
        async with self._looking:
            if time.monotonic() - self._looked > _FRESH:
                self._paths = await self._look()
                self._looked = time.monotonic()
        return await asyncio.to_thread(best, text, self._paths, limit)

    async def _look(self) -> Sequence[str]:
        repository = find_repository(self._folder)
        if repository is not None:
            try:
                listed = await repository.git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
            except GitError:  # not a repository that git can read: it is a folder all the same
                pass
            else:
                return _below(_prefix(self._folder, repository.root), listed.split("\0"))
        return await asyncio.to_thread(lambda: list(_walk(str(self._folder))))


def best(text: str, paths: Sequence[str], limit: int) -> tuple[str, ...]:
    """The paths that fit a text: by the name's beginning, by what stands in it, at last by what is near."""
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


def _prefix(folder: Path, root: Path) -> str:
    below = os.path.relpath(folder.resolve(), root)
    return "" if below == "." else f"{below}/"


def _below(prefix: str, paths: Sequence[str]) -> list[str]:
    """Those below a folder, as they are named from there; a name that is no text cannot be typed."""
    found = dict.fromkeys(path[len(prefix) :] for path in paths if path.startswith(prefix) and path != prefix)
    return [path for path in found if path and path.isprintable()]


def _walk(folder: str) -> Iterator[str]:
    count = 0
    for here, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _PASSED_OVER)
        for name in sorted(files):
            path = os.path.relpath(os.path.join(here, name), folder)
            if path.isprintable():
                count += 1
                yield path
            if count >= _MOST:
                return
