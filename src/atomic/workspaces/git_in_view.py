"""Run git in a workspace, and bring commits out of it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

from atomic.git import GitError, Repository
from atomic.git.calls import split
from atomic.processes import ExecError
from atomic.workspaces.views import View

OUT = "refs/atomic/out"  # the commit that leaves a workspace
TIMEOUT = 600.0
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


async def git_in_view(
    view: View, *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Run git in a view. Raises GitError."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = await view.run(
            "git", *arguments, env={**inherited, **(env or {})}, timeout=TIMEOUT, cwd=cwd, is_short=True
        )
    except ExecError as error:
        raise GitError(arguments, str(error)) from error
    if done.exit_code != 0:
        raise GitError(arguments, done.stderr.strip() or f"exit code {done.exit_code}")
    return done.stdout


async def tracked_files_in(view: View, commit: str) -> tuple[str, list[str]]:
    """Return the tree of the tracked files in a view, and those that differ from a
    commit.

    The index of the view is changed. The tree is empty if programs in the view have
    damaged its repository.
    """
    try:
        await git_in_view(view, *SAFE, "add", "--update", "--", ":/")
        tree = (await git_in_view(view, *SAFE, "write-tree")).strip()
        words = ("diff-index", "--cached", "--name-only", "--no-renames", "-z")
        return tree, split(await git_in_view(view, *SAFE, *words, commit))
    except GitError:
        return "", []


async def fetch_bundle(repository: Repository, bundle: Path, ref: str) -> None:
    """Bring the commit of a bundle into the user's repository."""
    words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", str(bundle), f"+{OUT}:{ref}")
    # Git would collect garbage in the user's repository after a fetch.
    settings = ("-c", "fetch.fsckObjects=true", "-c", "maintenance.auto=false", "-c", "gc.auto=0")
    await repository.git(*settings, *words, env={"GIT_ALLOW_PROTOCOL": "file"})
    await asyncio.to_thread(bundle.unlink)
