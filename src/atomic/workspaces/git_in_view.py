"""Run git in a workspace, and bring commits out of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from atomic.git import GitError, Repository
from atomic.git.calls import split
from atomic.processes import ExecError, ExecTimeoutError
from atomic.processes.temporary_folders import temporary_prefix
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

ALTERNATES = "GIT_ALTERNATE_OBJECT_DIRECTORIES"
_COPIED = ("config", "shallow", "info/exclude", "info/attributes")
_SPARSE = ("info/sparse-checkout",)  # which files of a commit are not written
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


async def tracked_files_in(view: View, base: Path, commit: str) -> tuple[str, list[str]]:
    """Return the tree of the tracked files in a view, and the files that differ from
    a commit.

    All programs in the view are ended first: they could stop git. Of its repository only
    the objects are used: index and settings could hide a change. These are copied from
    the one in the folder `base`. Raises GitError, ExecError, OSError.
    """
    await view.end_programs()
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("tree")) as folder:
        git_dir = Path(folder)
        await asyncio.to_thread(copy_git_files, base / ".git", git_dir, also=_SPARSE)
        env = {
            **NO_SETTINGS,
            "GIT_DIR": str(git_dir),
            "GIT_WORK_TREE": str(view.root),
            ALTERNATES: as_list_entry(view.root / ".git" / "objects"),
        }

        async def git(*words: str) -> str:
            return await git_in_view(view, *SAFE, *words, env=env, timeout=TREE_TIMEOUT)

        await git("read-tree", "-i", "-m", commit)
        await git("add", "--update", "--", ".")
        tree = (await git("write-tree")).strip()
        words = ("diff-index", "--cached", "--name-only", "--no-renames", "-z", commit)
        return tree, split(await git(*words))


def copy_git_files(source: Path, git_dir: Path, *, also: Sequence[str] = ()) -> None:
    """Make a git folder without objects: with the settings of another one, which decide
    how files are stored (line ends, filters), and with its index.
    """
    for name in ("objects", "refs", "info"):
        (git_dir / name).mkdir(parents=True, exist_ok=True)
    (git_dir / "HEAD").write_text("ref: refs/heads/none\n", encoding="ascii")
    for name in (*_COPIED, *also):
        if (source / name).is_file():
            shutil.copyfile(source / name, git_dir / name)
    # In an overlay files have the numbers and times that the base's index names: only
    # changed ones are read.
    shutil.copy2(source / "index", git_dir / "index")


def as_list_entry(path: Path | str) -> str:
    """Return a path for a list in a variable of git, in quotes: it may have a colon."""
    text = str(path).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


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
