"""The user's uncommitted files: list them, or add them to a run as a commit.

The user's index is not touched: git gets one of its own.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from atomic.git import Repository
from atomic.git.calls import split
from atomic.processes.temporary_folders import temporary_prefix
from atomic.workspaces.author import find_author
from atomic.workspaces.errors import WorkspaceError

_LINK_TO_COMMIT = "160000"  # the mode of a submodule


async def list_uncommitted(repository: Repository) -> list[str]:
    """Return the files that differ from the last commit. Raises GitError."""
    words = ("status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=dirty")
    return [entry[3:] for entry in split(await repository.git(*words))]


async def commit_uncommitted(repository: Repository, start: str, *, run: str, home: Path) -> str:
    """Return a commit of the user's files as they are, with `start` as its parent.

    Without uncommitted files, return `start`. Atomic's own files in `home` are left
    out. Raises GitError, WorkspaceError.
    """
    author = await find_author(repository)
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("index")) as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index"), **author.variables}
        await repository.git("read-tree", start, env=env)
        await _keep_sparse_files(repository, env)
        await repository.git("add", "--all", "--", ".", env=env)
        await _remove_own_files(repository, home, env)
        await _refuse_inner_repositories(repository, start, env)
        tree = (await repository.git("write-tree", env=env)).strip()
        if tree == (await repository.git("rev-parse", f"{start}^{{tree}}")).strip():
            return start
        message = f"Add uncommitted files\n\nAtomic-Run: {run}"
        return (await repository.git("commit-tree", tree, "-p", start, "-m", message, env=env)).strip()


async def _keep_sparse_files(repository: Repository, env: Mapping[str, str]) -> None:
    """Mark the files of an index that a sparse checkout leaves out: they are not deleted."""
    listed = split(await repository.git("ls-files", "-t", "-z"))
    named = [entry.removeprefix("S ") for entry in listed if entry.startswith("S ")]
    if not named:
        return
    known = {*split(await repository.git("ls-files", "-z", env=env))}
    absent = await asyncio.to_thread(_absent, repository.root, [path for path in named if path in known])
    paths = "".join(f"{path}\0" for path in absent)
    await repository.git("update-index", "-z", "--skip-worktree", "--stdin", env=env, input=paths)


def _absent(root: Path, paths: Sequence[str]) -> list[str]:
    return [path for path in paths if not os.path.lexists(root / path)]


async def _remove_own_files(repository: Repository, home: Path, env: Mapping[str, str]) -> None:
    """Take the files of Atomic out of an index, if its folder is in the checkout."""
    home = await asyncio.to_thread(home.resolve)
    if home.is_relative_to(repository.root):
        own = str(home.relative_to(repository.root))
        await repository.git("rm", "-r", "--cached", "--quiet", "--ignore-unmatch", "--", own, env=env)


async def _refuse_inner_repositories(repository: Repository, start: str, env: Mapping[str, str]) -> None:
    """Raise WorkspaceError if an index has a repository inside of the user's.

    Git adds only the name of its commit.
    """
    words = ("diff-index", "--cached", "-z", "--no-renames", "--raw", "--diff-filter=AT", start)
    entries = split(await repository.git(*words, env=env))
    for facts, path in zip(entries[::2], entries[1::2], strict=True):
        if facts.split(" ")[1] == _LINK_TO_COMMIT:
            raise WorkspaceError(
                f"{path} is a repository of its own, whose files cannot be part of the run's branch: let git "
                "ignore it, move it away, or run without --include-uncommitted"
            )
