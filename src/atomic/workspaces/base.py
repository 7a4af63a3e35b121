"""The state that all workspaces of a run start from.

A base is a repository of its own below the folder of the run: the objects of the user's
repository as hard links, its branches and tags, the start commit checked out, and the
chosen ignored files. It is complete when it has its final name.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from atomic.git import GitError, Repository
from atomic.git.calls import run_git, settings_in, split
from atomic.processes import ExecError
from atomic.workspaces.contents import Contents, copy_contents
from atomic.workspaces.errors import WorkspaceError
from atomic.workspaces.filters import Filters, find_filters
from atomic.workspaces.folders import link_tree, remove_tree
from atomic.workspaces.setup import Setup, run_setup

NO_PUSH = "disabled-in-a-workspace"
_CHECKOUT_TIMEOUT = 1800.0
# Refs of the user's repository that a workspace sees.
_REFS = ("refs/heads", "refs/tags", "refs/remotes")
_OWN_REFS = "refs/heads/atomic/"
# Files and folders of the git folder that decide how files are checked out.
_LINKED = ("lfs", "modules")
_COPIED = ("shallow", "info/exclude", "info/sparse-checkout", "info/attributes")
# How files are stored. What the file system can do is found by `git init`.
_PLAIN = frozenset({"core.autocrlf", "core.eol", "core.excludesfile"})
# Of the repository's own file: which files are checked out, and that objects may be missing.
_OWN_FILE = ("core.sparsecheckout", "core.sparsecheckoutcone", "index.sparse", "extensions.partialclone")
_REMOTE = (".url", ".fetch", ".promisor", ".partialclonefilter")
_LINK_ATTEMPTS = 20


class Base(msgspec.Struct, frozen=True):
    """A prepared repository, and where the project is for the user.

    `root` is the user's checkout, `folder` the checkout of the base.
    """

    root: Path
    folder: Path
    commit: str


async def prepare_base(
    repository: Repository,
    folder: Path,
    commit: str,
    branch: str,
    contents: Contents,
    *,
    setup: Setup | None = None,
) -> Base:
    """Make the base of a run, or return the one that was made before.

    `branch` is checked out at `commit`, then `setup` runs. Tracked files that it
    changes are restored, and other files that it makes are ignored: they are not
    work of a task. Raises WorkspaceError.
    """
    base = Base(repository.root, folder, commit)
    if await asyncio.to_thread(folder.is_dir):
        return base
    unfinished = unfinished_name(folder)
    await asyncio.to_thread(remove_tree, unfinished)
    try:
        unfinished.mkdir(parents=True, mode=0o700)
        filters = await find_filters(repository, commit)
        await _make_repository(repository, unfinished, branch, filters)
        await _check_out(unfinished, commit, branch)
        await copy_contents(contents, repository.root, unfinished)
        if setup is not None:
            await run_setup(repository.root, unfinished, setup)
            await _check_out(unfinished, commit, branch)
            await _ignore_new_files(unfinished)
    except (GitError, ExecError, OSError) as error:
        raise WorkspaceError(f"A copy of {repository.root} cannot be made in {unfinished}: {error}") from error
    await _settle_index(unfinished)
    unfinished.rename(folder)
    return base


def unfinished_name(folder: Path) -> Path:
    """Return where a base is made before it gets its name."""
    return folder.with_name(f"{folder.name}.unfinished")


async def _make_repository(repository: Repository, folder: Path, branch: str, filters: Filters) -> None:
    settings = await repository.settings()
    hashes = settings.get("extensions.objectformat", "sha1")
    words = ("init", "--quiet", "--template=", f"--initial-branch={branch}", f"--object-format={hashes}")
    await run_git(*words, cwd=folder, env={})
    git = folder / ".git"
    await asyncio.to_thread(_copy_git_files, repository, git)
    listed = await repository.git("for-each-ref", "--format=%(objectname) %(refname)", *_REFS)
    refs = [line.split(" ", 1) for line in listed.splitlines()]
    wanted = [(name, ref) for name, ref in refs if not ref.startswith(_OWN_REFS) and ref != f"refs/heads/{branch}"]
    orders = "".join(f"create {ref} {name}\n" for name, ref in wanted if not ref.endswith("/HEAD"))
    await run_git("update-ref", "--stdin", cwd=folder, env={}, input=orders)
    added = [*await _settings_of(repository), *filters.settings]
    with (git / "config").open("ab") as file:
        file.write(settings_text(added))


def _copy_git_files(repository: Repository, git: Path) -> None:
    common = repository.common_dir
    _link_objects(common / "objects", git / "objects")
    for name in _LINKED:
        if (common / name).is_dir():
            link_tree(common / name, git / name)
    for name in _COPIED:
        for source in (repository.git_dir / name, common / name):
            if source.is_file():
                (git / name).parent.mkdir(exist_ok=True)
                shutil.copyfile(source, git / name)
                break


def _link_objects(source: Path, target: Path) -> None:
    """Link all objects. The user may pack them at the same time (`git commit` does it in
    the background): git removes an object after the pack that contains it is complete, so
    packs are linked last, until there are no new ones.
    """
    link_tree(source, target)
    attempts = 1
    while link_tree(source / "pack", target / "pack"):
        attempts += 1
        if attempts > _LINK_ATTEMPTS:
            raise OSError(f"the packs in {source} change all the time: wait until git has finished, and start again")
    # Relative names of other object folders are right only in the user's repository.
    others = target / "info" / "alternates"
    if others.is_file():
        lines = [line for line in others.read_bytes().split(b"\n") if line and not line.startswith(b"#")]
        others.unlink()
        others.write_bytes(b"".join(_absolute(line, source) + b"\n" for line in lines))


def _absolute(line: bytes, objects: Path) -> bytes:
    """Return a line of `alternates` with an absolute path; a quoted one is absolute."""
    if line.startswith((b"/", b'"')):
        return line
    return os.path.normpath(os.path.join(os.fsencode(objects), line))


async def _settings_of(repository: Repository) -> list[tuple[str, str]]:
    """Return settings of the new repository: who commits, how files are stored, and the
    remotes.

    A push is refused: the run's branch is pushed by Atomic, if the user asks for it.
    """
    known = await repository.settings()
    found = [(name, value) for name, value in known.items() if name.startswith("user.") or name in _PLAIN]
    found.append(("gc.auto", "0"))
    remotes: set[str] = set()
    for file in (repository.common_dir / "config", repository.git_dir / "config.worktree"):
        if not file.is_file():
            continue
        words = ("config", "--file", str(file), "--no-includes", "-z", "--list")
        for name, value in settings_in(await run_git(*words, cwd=repository.root, env={})):
            is_remote = name.startswith("remote.") and name.endswith(_REMOTE)
            if is_remote or name.startswith("branch.") or name in _OWN_FILE:
                found.append((name, value))
            if is_remote and name.endswith(".url"):
                remotes.add(name.removesuffix(".url"))
    return [*found, *((f"{remote}.pushurl", NO_PUSH) for remote in sorted(remotes))]


def settings_text(settings: Sequence[tuple[str, str]]) -> bytes:
    """Return settings as git writes them to a file."""
    lines: list[str] = []
    for name, value in settings:
        section, _, rest = name.partition(".")
        subsection, _, key = rest.rpartition(".")
        heading = f'[{section} "{_quoted(subsection)}"]' if subsection else f"[{section}]"
        lines.append(f'{heading}\n\t{key} = "{_quoted(value)}"\n')
    return "".join(lines).encode("utf-8", "surrogateescape")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def _check_out(folder: Path, commit: str, branch: str) -> None:
    """Check out the start commit, with the filters that its settings have."""
    words = ("-c", "core.hooksPath=/dev/null", "checkout", "--quiet", "--force", "-B", branch, commit)
    # git-lfs leaves big files out if the user wants it.
    env = {name: os.environ.get(name) for name in ("GIT_LFS_SKIP_SMUDGE",)}
    await run_git(*words, cwd=folder, env=env, timeout=_CHECKOUT_TIMEOUT, is_short=False)


async def _ignore_new_files(folder: Path) -> None:
    """Let git ignore the files that a set-up command has made."""
    words = ("ls-files", "--others", "--exclude-standard", "--directory", "-z")
    made = split(await run_git(*words, cwd=folder, env={}))
    if not made:
        return
    rules = folder / ".git" / "info" / "exclude"
    rules.parent.mkdir(exist_ok=True)
    with rules.open("a", encoding="utf-8", errors="surrogateescape") as file:
        file.write("\n")
        file.writelines(f"/{_as_pattern(path)}\n" for path in made)


def _as_pattern(path: str) -> str:
    """Return a pattern of a `.gitignore` that means this path only."""
    escaped = re.sub(r"([\\*?\[\] ])", r"\\\1", path)
    # A line cannot contain its own end.
    return escaped.replace("\n", "?")


async def _settle_index(folder: Path) -> None:
    """Make the index two seconds younger than the files.

    Git reads a file again if it has the time of the index, since it may have changed in
    the same second. The files of a base do not change. A worker changes its own copy of
    a file, but not before the next second: git compares whole seconds.
    """
    index = folder / ".git" / "index"
    status = index.stat()
    await asyncio.sleep(max(0.0, int(status.st_mtime) + 1 - time.time()))
    os.utime(index, (status.st_atime, status.st_mtime + 2))
