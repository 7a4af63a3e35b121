"""The row "workspaces" of `atomic doctor`: how workers are kept apart here, and what all
runs have left on the disk.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from atomic.base.terminal import one_line
from atomic.cli.parked import WORKSPACES
from atomic.git import GitError, Repository, find_repository
from atomic.sessions.store import SessionStore
from atomic.workspaces import IsolationKind, choose_isolation, find_obstacle
from atomic.workspaces.run_branch import PARKED

_MOST_FILES = 200_000  # that are measured: `atomic doctor` must be quick
_GIT_SECONDS = 10.0
_REMEDY = "atomic sessions prune --older-than 30d deletes what old runs have left"


class Left(msgspec.Struct, frozen=True):
    """What runs have left: folders of workspaces, parked refs, and their bytes."""

    folders: int = 0
    parked: int = 0
    size: int = 0
    is_complete: bool = True  # everything was measured


async def describe_workspaces(home: Path, here: Path | None) -> tuple[str, str]:
    """Return how workers are kept apart in a folder and what all runs have left, and
    how to remove that.
    """
    left = await _measure(home)  # first: the test of a kind makes a folder there
    kind = await _describe_kind(home / WORKSPACES, here)
    if not left.folders and not left.parked:
        return f"{kind}; no run has left any", ""
    least = "" if left.is_complete else "at least "
    size = f"{least}{left.size / 1_000_000:,.1f} MB"
    parked = _count(left.parked, "parked attempt")
    return f"{kind}; left by runs: {_count(left.folders, 'folder')} and {parked}, {size}", _REMEDY


async def _describe_kind(folder: Path, here: Path | None) -> str:
    """Return what `--isolate auto` chooses, and why not a better kind."""
    repository = None if here is None else find_repository(here)
    if repository is None:
        return f"none: {here or 'this folder'} is in no git repository, so runs work in the folder itself"
    try:
        commit, _ = await repository.head()
        if commit is None:
            return f"none: {repository.root} has no commit, so runs work in the folder itself"
    except GitError as error:
        return f"not known: {one_line(error.reason)}"
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        obstacle = await find_obstacle(repository, commit, folder)
        if obstacle:
            return f"none: {obstacle}, so runs work in the folder itself"
        chosen = await choose_isolation("auto", folder, repository.root)
    except OSError as error:
        return f"not known: {folder}: {error.strerror or error}"
    except GitError as error:
        return f"not known: {one_line(error.reason)}"
    finally:
        for one in missing:
            with suppress(OSError):  # another run may use it now
                one.rmdir()
    if chosen.kind is IsolationKind.OVERLAY:
        return "overlay: each worker has a view of its own at the project's path"
    return f"{chosen.kind}: each worker has a copy, because {'; '.join(map(one_line, chosen.reasons))}"


async def _measure(home: Path) -> Left:
    """Measure the workspaces and the parked work of all runs."""
    folders, size, is_complete = await asyncio.to_thread(_measure_folders, home / WORKSPACES)
    parked = 0
    for repository in await asyncio.to_thread(_repositories, SessionStore(home)):
        try:
            refs = (await repository.git("for-each-ref", "--format=%(refname)", f"{PARKED}/")).splitlines()
            if not refs:
                continue
            parked += len(refs)
            words = ("rev-list", "--disk-usage", "--objects", f"--glob={PARKED}/*")
            others = ("--not", "--branches", "--remotes", "--tags")
            async with asyncio.timeout(_GIT_SECONDS):
                size += int(await repository.git(*words, *others))
        except (GitError, TimeoutError):  # it is damaged, or too large
            is_complete = False
    return Left(folders, parked, size, is_complete)


def _measure_folders(folder: Path) -> tuple[int, int, bool]:
    """Return the number of folders, their bytes, and whether all were measured.

    Files with several names are those of the user's repository: removing one name frees
    nothing.
    """
    try:
        names = os.listdir(folder)
    except OSError:
        return 0, 0, True
    size = 0
    for number, path in enumerate(_files(folder)):
        if number >= _MOST_FILES:
            return len(names), size, False
        with suppress(OSError):  # a run has just removed it
            found = os.lstat(path)
            size += found.st_size if found.st_nlink == 1 else 0
    return len(names), size, True


def _files(folder: Path) -> Iterable[str]:
    for parent, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(parent, name)


def _repositories(store: SessionStore) -> list[Repository]:
    """Return the repositories of all runs."""
    found: dict[Path, Repository] = {}
    for project in {record.cwd or record.project for record in store.list()}:
        repository = find_repository(project) if project and os.path.isdir(project) else None
        if repository is not None:
            found.setdefault(repository.common_dir, repository)
    return list(found.values())


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
