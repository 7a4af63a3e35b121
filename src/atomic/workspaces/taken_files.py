"""Uncommitted files of the user that a run has begun with, when its work is merged.

The run's first commit has them. Where a file is still the same, nothing is lost if the
checkout gets the run's version of it: the merge treats it as committed.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from atomic.git import GitError, Repository
from atomic.git.calls import split
from atomic.processes.temporary_folders import temporary_prefix
from atomic.workspaces.branch_merges import BranchError, git_as_user

_REMOVED = f"0 {'0' * 40}"
# The user's settings may not enter submodules or leave out files.
_UPDATE = ("-c", "submodule.recurse=false", "-c", "core.sparseCheckout=false", "read-tree", "-m", "-u")


async def find_taken(
    repository: Repository, paths: Collection[str], *, head: str, commits: Iterable[str]
) -> dict[str, str]:
    """Return the files that are in the checkout as one of the commits has them, by path.

    The values are lines for `git update-index --index-info`. A file whose staged version
    is in no commit is left out, because it would be lost.
    """
    base = await _entries(repository, head)
    staged = await _staged(repository)
    found: dict[str, str] = {}
    for commit in commits:
        known = await _entries(repository, commit)
        left = [path for path in paths if path not in found]
        kept = [path for path in left if staged.get(path, "") in (base.get(path, ""), known.get(path, ""))]
        same = await _same_files(repository, {path: known.get(path, "") for path in kept})
        found.update({path: _index_line(path, known.get(path, "")) for path in same})
    return found


async def move_forward(
    repository: Repository, taken: Mapping[str, str], *, head: str, new: str, ref: str, reason: str
) -> None:
    """Move the checkout and its branch to a commit, as if the taken files were committed.

    Git refuses if a file changes at the same time. Raises GitError, BranchError; then the
    index and the files are as before.
    """
    with TemporaryDirectory(prefix=temporary_prefix("index")) as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        await repository.git("read-tree", head, env=env)
        await repository.git("update-index", "-z", "--index-info", env=env, input="".join(taken.values()))
        as_committed = (await repository.git("write-tree", env=env)).strip()
    staged = await _staged(repository)
    former = "".join(_index_line(path, staged.get(path, "")) for path in taken)
    await repository.git("update-index", "-z", "--index-info", input="".join(taken.values()))
    try:
        await git_as_user(repository, "update-index", "-q", "--refresh")
        await git_as_user(repository, *_UPDATE, as_committed, new)
    except GitError:
        await _restore_index(repository, former)
        raise
    try:
        await repository.git("update-ref", "-m", reason, ref, new, head)
    except GitError as error:
        with suppress(GitError):
            await git_as_user(repository, *_UPDATE, new, as_committed)
            await _restore_index(repository, former)
        raise BranchError(f"{ref.removeprefix('refs/heads/')} has moved meanwhile, and nothing was merged") from error


async def _restore_index(repository: Repository, former: str) -> None:
    await repository.git("update-index", "-z", "--index-info", input=former)
    await git_as_user(repository, "update-index", "-q", "--refresh")


async def _same_files(repository: Repository, entries: Mapping[str, str]) -> list[str]:
    """Return the paths that the checkout has as these entries; an empty one: no file."""
    missing = [path for path, entry in entries.items() if not entry]
    absent = await asyncio.to_thread(_absent, repository.root, missing)
    present = {path: entry for path, entry in entries.items() if entry}
    if not present:
        return absent
    with TemporaryDirectory(prefix=temporary_prefix("index")) as folder:
        index = str(Path(folder) / "index")
        lines = "".join(_index_line(path, entry) for path, entry in present.items())
        await repository.git("update-index", "-z", "--add", "--index-info", env={"GIT_INDEX_FILE": index}, input=lines)
        await git_as_user(repository, "update-index", "-q", "--refresh", GIT_INDEX_FILE=index)
        differing = {*split(await repository.git("diff-files", "-z", "--name-only", env={"GIT_INDEX_FILE": index}))}
    return [*absent, *(path for path in present if path not in differing)]


def _absent(root: Path, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if not os.path.lexists(root / path)]


async def _entries(repository: Repository, commit: str) -> dict[str, str]:
    """Return mode and object of each file of a commit, by path."""
    found: dict[str, str] = {}
    for entry in split(await repository.git("ls-tree", "-r", "-z", "--full-tree", commit)):
        facts, path = entry.split("\t", 1)
        mode, _, object = facts.split(" ")
        found[path] = f"{mode} {object}"
    return found


async def _staged(repository: Repository) -> dict[str, str]:
    """Return mode and object of each file in the index, by path."""
    found: dict[str, str] = {}
    for entry in split(await repository.git("ls-files", "--stage", "-z")):
        facts, path = entry.split("\t", 1)
        mode, object, stage = facts.split(" ")
        found[path] = f"{mode} {object}" if stage == "0" else "a conflict"
    return found


def _index_line(path: str, entry: str) -> str:
    """Return an entry for `git update-index -z --index-info`; an empty one removes the path."""
    return f"{entry or _REMOVED}\t{path}\0"
