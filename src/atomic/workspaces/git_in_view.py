"""Run git in a workspace, and bring commits out of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from atomic.git import GitError, Repository
from atomic.git.calls import split
from atomic.processes import ExecError, ExecTimeoutError
from atomic.workspaces.kept_refs import fetch_commit
from atomic.workspaces.views import View

OUT = "refs/atomic/out"  # the commit that leaves a workspace
TIMEOUT = 600.0
TREE_TIMEOUT = 120.0  # to find out which files a check has left
NO_SETTINGS = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_EDITOR": ":",
    "LC_ALL": "C",
}
# No setting of the worker's repository can start a program.
SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "commit.gpgSign=false")

_LITERALLY = "--literal-pathspecs"  # `*` in a path means only itself


class GitTimeoutError(GitError):
    """A call of git took too long and was ended."""


async def git_in_view(
    view: View,
    *arguments: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = TIMEOUT,
) -> str:
    """Run git in a view. Raises GitError, GitTimeoutError."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = await view.run(
            "git", *arguments, env={**inherited, **(env or {})}, timeout=timeout, cwd=cwd, is_short=True
        )
    except ExecTimeoutError as error:
        raise GitTimeoutError(arguments, str(error)) from error
    except ExecError as error:
        raise GitError(arguments, str(error)) from error
    if done.exit_code != 0:
        raise GitError(arguments, done.stderr.strip() or f"exit code {done.exit_code}")
    return done.stdout


def remove_locks(git: Path) -> None:
    """Remove the locks in a git folder, whose owners were killed."""
    if git.is_symlink():  # by a worker, to another repository
        return
    for folder, folders, names in os.walk(git):
        if folder == str(git) and "objects" in folders:
            folders.remove("objects")
        for name in names:
            if name.endswith(".lock"):
                os.unlink(os.path.join(folder, name))


async def tracked_files_in(view: View, commit: str) -> tuple[str, list[str]]:
    """Return the tree of the tracked files in a view, and the files that differ from
    a commit.

    All programs in the view are ended first: they could stop git. The index of the view
    is changed. Raises GitError, ExecError, also if programs in the view have damaged its
    repository.
    """
    await view.end_programs()
    # A git that was ended may have left it.
    lock = str(view.root / ".git" / "index.lock")
    await view.run("rm", "-f", "--", lock, timeout=TREE_TIMEOUT, is_short=True)
    await git_in_view(view, *SAFE, "add", "--update", "--", ":/", timeout=TREE_TIMEOUT)
    tree = (await git_in_view(view, *SAFE, "write-tree", timeout=TREE_TIMEOUT)).strip()
    words = ("diff-index", "--cached", "--name-only", "--no-renames", "-z")
    return tree, split(await git_in_view(view, *SAFE, *words, commit, timeout=TREE_TIMEOUT))


async def restore_files_in(view: View, commit: str, paths: Sequence[str]) -> None:
    """Give files in a view the content that a commit has; remove those that it does not
    have. Raises GitError, ExecError.
    """
    words = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", commit, "--", *paths)
    known = split(await git_in_view(view, *SAFE, _LITERALLY, *words, env=NO_SETTINGS))
    places = [str(view.root / path) for path in paths]
    await view.run("rm", "-rf", "--", *places, timeout=TIMEOUT, is_short=True)
    if known:
        words = ("checkout", "--quiet", commit, "--", *known)
        await git_in_view(view, *SAFE, _LITERALLY, *words, env=NO_SETTINGS)


async def fetch_bundle(repository: Repository, bundle: Path, ref: str, base: str) -> None:
    """Bring the commit of a bundle, made without `base`, into the user's repository."""
    await fetch_commit(repository, bundle, OUT, ref, base)
    await asyncio.to_thread(bundle.unlink)
