"""Look at the user's checkout as it is now, without touching it.

Programs see all its files, committed or not, and may write: the writes go to a layer
that is thrown away. A git folder outside of the checkout, as a linked worktree has it,
is kept apart in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from atomic.git import GitError, find_repository
from atomic.git.calls import run_git
from atomic.processes import ExecError
from atomic.workspaces.contents import MAX_SIZE
from atomic.workspaces.copied_paths import correct_paths, find_copied_paths
from atomic.workspaces.copy_views import git_folders_outside, open_copy
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.folders import copy_tree, copy_tree_without, remove_tree, size_of
from atomic.workspaces.isolation import Isolation, IsolationKind
from atomic.workspaces.views import View, open_overlay

_COPY = "copy"


@asynccontextmanager
async def open_checkout(
    root: Path, layer: Path, isolation: Isolation, *, hidden: Sequence[Path] = (), max_size: int = MAX_SIZE
) -> AsyncGenerator[View]:
    """Open a view of a checkout; what programs write in it is lost at its end.

    `layer` is a folder that does not exist yet. In a private view, `hidden` folders are
    empty. For other kinds the checkout is copied, if it has at most `max_size` bytes.

    Raises WorkspaceError.
    """
    await asyncio.to_thread(remove_tree, layer)
    await asyncio.to_thread(layer.mkdir, 0o700, parents=True)
    git_folders = git_folders_outside(root)
    try:
        if isolation.kind is IsolationKind.OVERLAY:
            beside = {folder: layer / f"git-{number}" for number, folder in enumerate(git_folders)}
            own_user = isolation.own_user
            async with open_overlay(
                root, root, layer / "files", own_user=own_user, hidden=hidden, beside=beside, keep=False
            ) as view:
                yield view
        else:
            # Workspaces may be inside of the checkout, if Atomic's folder is.
            excluded = next((folder for folder in hidden if layer.is_relative_to(folder)), layer)
            copy = await _copy(root, layer, git_folders, max_size, await asyncio.to_thread(excluded.resolve))
            async with open_copy(copy, root, isolation, hidden=hidden, visible={layer: False}) as view:
                yield view
    finally:
        await asyncio.to_thread(remove_tree, layer)


async def _copy(root: Path, layer: Path, git_folders: Sequence[Path], max_size: int, excluded: Path) -> Path:
    sizes = [await asyncio.to_thread(size_of, folder) for folder in (root, *git_folders)]
    if sum(sizes) > max_size:
        raise WorkspaceError(
            f"{root} has {sum(sizes) / 1e9:.1f} GB, too much for a copy in which checks can run "
            f"(at most {max_size / 1e9:.1f} GB). Raise `max_size` of [workspace], or give --isolate none"
        )
    copy = layer / _COPY / root.name  # the project may be called like the copies of its git folders
    try:
        copy.parent.mkdir()
        await copy_tree_without(root, copy, excluded)
        for number, folder in enumerate(git_folders):
            await copy_tree(folder, layer / f"git-{number}")
        if git_folders:
            await _use_copied_git_folder(root, copy, layer)
        found = await find_copied_paths(copy, [root])
        await asyncio.to_thread(correct_paths, copy, found, [root])
    except (GitError, ExecError, OSError) as error:
        raise WorkspaceError(f"{root} cannot be copied to {layer}: {error}") from error
    return copy


async def _use_copied_git_folder(root: Path, copy: Path, layer: Path) -> None:
    """Let a copy use the copies of its git folders: `git-0` is the common one."""
    original = find_repository(root)
    assert original is not None
    common = layer / "git-0"
    git_dir = layer / "git-1"
    if original.git_dir.is_relative_to(original.common_dir):
        git_dir = common / original.git_dir.relative_to(original.common_dir)
    (copy / ".git").write_text(f"gitdir: {git_dir}\n", encoding="utf-8", errors="surrogateescape")
    if (git_dir / "commondir").exists():
        (git_dir / "commondir").write_text(f"{common}\n", encoding="utf-8", errors="surrogateescape")
        (git_dir / "gitdir").write_text(f"{copy}/.git\n", encoding="utf-8", errors="surrogateescape")
    else:
        # The git folder of a submodule names its files.
        await run_git("config", "--file", str(git_dir / "config"), "core.worktree", str(copy), cwd=layer, env={})
