"""Decide where the workers of a run work: in workspaces of a kind, or in the checkout."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from atomic.git import Repository, find_repository
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.isolation import Isolation, IsolationError, IsolationKind, choose_isolation
from atomic.workspaces.obstacles import find_obstacle


async def choose_place(wanted: str, project: Path, folder: Path) -> tuple[Repository, Isolation] | str:
    """Return the repository and the kind of workspaces, or why there can be none.

    `folder` will hold the workspaces. Raises IsolationError if the user wants a kind
    that does not work here, WorkspaceError if agents cannot work here at all.
    """
    if wanted == IsolationKind.NONE:
        return "--isolate none"
    repository = find_repository(project)
    reason = await _find_reason(repository, project, folder)
    if repository is None or reason:
        if wanted == "auto":
            return reason
        raise IsolationError(f"--isolate {wanted} does not work here: {reason}. Give --isolate none")
    return repository, await choose_isolation(wanted, folder, repository.root)


async def _find_reason(repository: Repository | None, project: Path, folder: Path) -> str:
    """Return why workspaces would not be right, or an empty text."""
    if repository is None:
        if await asyncio.to_thread(_is_git_folder, project):
            raise WorkspaceError(
                f"{project} is inside of a git folder (a bare repository), which has no files to work on: "
                "clone it, and run there"
            )
        return f"{project} is in no git repository"
    commit, _ = await repository.head()
    if commit is None:
        return "the repository has no commit"
    _require_writable(repository)
    return await find_obstacle(repository, commit, folder)


def _require_writable(repository: Repository) -> None:
    """Raise WorkspaceError if the user may not add a branch and commits."""
    common = repository.common_dir
    for folder in (common, common / "objects", common / "refs", common / "refs" / "heads"):
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise WorkspaceError(
                f"You may not write to {folder}, where the run keeps its branch and its commits: change the owner or "
                f"the permissions of {common}, or give --isolate none to work in the checkout itself"
            )


def _is_git_folder(folder: Path) -> bool:
    """Return whether a folder is in a git folder: agents would work on git's own files."""
    folder = folder.resolve()
    return any(
        (one / "HEAD").is_file() and (one / "objects").is_dir() and (one / "refs").is_dir()
        for one in (folder, *folder.parents)
    )
