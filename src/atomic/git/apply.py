"""Make recorded changes again, in files and as commits: all of them, or none."""

from __future__ import annotations

import asyncio
import os
import re
import unicodedata
from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from atomic.base.errors import AtomicError
from atomic.git.calls import GitError, split
from atomic.git.folder_changes import Changes
from atomic.git.patches import Commit, Identity, read_mail, split_patch
from atomic.git.repository import Repository, find_repository
from atomic.git.scratch import Change, Entry, Scratch, index_info, open_scratch

# Attempts to write a locked index, a quarter of a second apart.
_ATTEMPTS = 20
_UNKNOWN_AUTHOR = Identity("Atomic", "atomic@localhost", "")


# Names in a project that steer programs: git, Atomic, agents and editors. A file with
# such a name in its path can make a program run something. `loading.trusted_files` lists
# in detail which files agents read.
_STEERING = frozenset(
    {
        ".agents",
        ".atomic",
        ".claude",
        ".claude.json",
        ".codex",
        ".copilot",
        ".cursor",
        ".devcontainer",
        ".envrc",
        ".gemini",
        ".git",
        ".gitattributes",
        ".github",
        ".gitmodules",
        ".idea",
        ".kimi",
        ".lsp.json",
        ".mcp.json",
        ".opencode",
        ".qwen",
        ".vscode",
        "git~1",  # the short name of .git on Windows file systems
        "opencode.json",
        "opencode.jsonc",
    }
)


class PatchError(AtomicError):
    """Recorded changes cannot be made here; the text names the file and the reason."""


async def apply_changes(
    folder: str | os.PathLike[str], changes: Changes, *, own_commits: Collection[str] = ()
) -> list[str]:
    """Make the changes in a folder, except those already present.

    Return the new commits.

    A recording is untrusted. Nothing is written outside of the folder's repository,
    inside of another repository, or to a file that steers programs, and only
    `own_commits` may be removed.

    Raises PatchError, before anything has changed, if a patch does not fit or writes to
    a forbidden path, if changes of a file would be lost, or if commits have no
    repository.
    """
    needs_repository = bool(changes.commits or changes.rewind or changes.branch is not None)
    if not needs_repository and not changes.patch.strip():
        return []
    root, repository = _find_root(folder, changes.folder)
    if repository is None and needs_repository:
        raise PatchError(f"The recording has commits, but {root} is in no git repository")
    top = root if repository is None else repository.root
    try:
        async with open_scratch(top, repository) as scratch:
            return await _Application(scratch, root.relative_to(top).as_posix(), changes, own_commits).run()
    except GitError as error:
        lines = [line.removeprefix("error: ").removeprefix("fatal: ") for line in error.reason.splitlines()]
        raise PatchError("; ".join(dict.fromkeys(line for line in lines if line))) from error


def _find_root(folder: str | os.PathLike[str], recorded: str) -> tuple[Path, Repository | None]:
    """Return the folder that the paths in patches begin at, and its repository.

    It is above `folder` only if the end of its path equals `recorded`. Raises
    PatchError for another folder, for a root outside of the repository, and for one
    that contains the home folder: its files are programs and keys of the user.
    """
    start = Path(folder).resolve()
    repository = find_repository(start)
    if not recorded:
        if _contains_home(start):
            raise PatchError(f"A recording changes no files in {start}: play it in the folder of a project")
        return start, repository
    parts = PurePosixPath(recorded).parts
    if ".." in parts or start.parts[-len(parts) :] != parts or len(parts) > len(start.parents):
        raise PatchError(f"The recording was made in the folder {recorded} of its repository, not in {start}")
    root = start.parents[len(parts) - 1]
    if repository is None or not root.is_relative_to(repository.root) or _contains_home(root):
        raise PatchError(f"The recording begins in {root}, which is not part of the repository of {start}")
    return root, repository


def _contains_home(folder: Path) -> bool:
    """Return whether a folder is the home folder or above it."""
    return Path.home().resolve().is_relative_to(folder)


class _Application:
    """Apply one set of changes.

    All trees are made before a file, the index or a ref is written.
    """

    def __init__(self, scratch: Scratch, prefix: str, changes: Changes, own_commits: Collection[str]) -> None:
        self._scratch = scratch
        self._changes = changes
        self._own_commits = own_commits
        self._new_commits: list[str] = []
        self._directory: tuple[str, ...] = ()
        self._prefix = ""
        if prefix != ".":
            self._directory = (f"--directory={prefix}",)
            self._prefix = f"{prefix}/"

    async def run(self) -> list[str]:
        scratch = self._scratch
        repository = scratch.repository
        await self._check_paths()
        old: str | None = None
        branch: str | None = None
        if repository is not None:
            old, branch = await repository.head()
        new = await self._make_commits(old)
        committed: dict[str, Change] = {}
        if new and new != old:
            committed = await scratch.changed(old or await scratch.empty_tree(), new)
        entries = {path: change.new for path, change in committed.items()}
        touched = {*entries, *await self._paths(self._changes.patch)}
        await scratch.git("read-tree", "--empty", index="now")
        now = await scratch.tree_with_files(touched, index="now")
        self._check_dirty_files(committed, await scratch.entries(now))
        await scratch.tree(now, entries, index="then")
        await self._apply(self._changes.patch, index="then")
        then = await scratch.tree(index="then")
        # A dry run: git refuses if a file has changed since.
        await scratch.git("read-tree", "-n", "-m", "-u", now, then, index="now")
        if repository is not None and new is not None:
            await self._move_head(repository, old, new, branch, entries)
        await scratch.git("read-tree", "-m", "-u", now, then, index="now")
        return self._new_commits

    async def _check_paths(self) -> None:
        """Raise PatchError for a path that a recording may not write, in any commit."""
        patches = [*(read_mail(text).patch for text in self._changes.commits), self._changes.patch]
        paths: dict[str, None] = {}
        for patch in patches:
            paths.update(dict.fromkeys(await self._paths(patch)))
        for path in paths:
            if steers(path):
                raise PatchError(f"{path} steers git, Atomic or an agent: a recording may not change it")
            _check_location(self._scratch.root, path)

    async def _make_commits(self, head: str | None) -> str | None:
        """Make the commits, which no ref names yet, and return the last one."""
        if head is not None and self._changes.rewind:
            head = await self._rewind(head)
        await self._scratch.git("read-tree", head or "--empty", index="commits")
        for text in self._changes.commits:
            commit = read_mail(text)
            if await self._apply(commit.patch, index="commits", keep=True):
                head = await self._commit_index(commit, head)
                self._new_commits.append(head)
        return head

    async def _rewind(self, head: str) -> str | None:
        """Return the commit before the removed ones; None if all are removed.

        Raises PatchError for commits that are not `own_commits`.
        """
        steps = self._changes.rewind
        if steps < 0:
            raise PatchError(f"The recording takes back {steps} commits: give 0 or more")
        listed = await self._scratch.git("rev-list", "--first-parent", f"--max-count={steps + 1}", head)
        commits = listed.split()
        for commit in commits[:steps]:
            if commit not in self._own_commits:
                raise PatchError(f"The recording takes back the commit {commit[:12]}, which this replay has not made")
        return commits[steps] if steps < len(commits) else None

    async def _commit_index(self, commit: Commit, parent: str | None) -> str:
        author = commit.author or _UNKNOWN_AUTHOR
        committer = commit.committer or author
        environment = {**author.environment("AUTHOR"), **committer.environment("COMMITTER")}
        tree = (await self._scratch.git("write-tree", "--missing-ok", index="commits", keep=True)).strip()
        parents = () if parent is None else ("-p", parent)
        words = ("commit-tree", tree, *parents, "-F", "-")
        return (await self._scratch.git(*words, input=commit.message, keep=True, env=environment)).strip()

    async def _apply(self, patch: str, *, index: str, keep: bool = False) -> bool:
        """Apply a patch to an index; return False if all of it is there already."""
        if not patch.strip():
            return True
        try:
            await self._git_apply(patch, "--cached", index=index, keep=keep)
        except GitError:
            parts = split_patch(_with_newline(patch))
            missing = [part for part in parts if not await self._is_applied(part, index)]
            if len(missing) == len(parts):
                raise
            if missing:
                await self._git_apply("".join(missing), "--cached", index=index, keep=keep)
            return bool(missing)
        return True

    async def _is_applied(self, patch: str, index: str) -> bool:
        try:
            await self._git_apply(patch, "--cached", "--check", "--reverse", index=index)
        except GitError:
            return False
        return True

    async def _git_apply(self, patch: str, *words: str, index: str = "index", keep: bool = False) -> str:
        command = ("apply", "--whitespace=nowarn", *words, *self._directory, "-")
        return await self._scratch.git(*command, input=_with_newline(patch), index=index, keep=keep)

    async def _paths(self, patch: str) -> list[str]:
        """Return the files that a patch changes."""
        if not patch.strip():
            return []
        listed = await self._git_apply(patch, "--numstat", "-z")
        named = [line.split("\t", 2)[2] for line in split(listed)]
        moved = re.findall(r"^(?:rename|copy) from (.+)$", patch, re.MULTILINE)
        return [*named, *(f"{self._prefix}{path}" for path in moved)]

    def _check_dirty_files(self, committed: Mapping[str, Change], now: Mapping[str, Entry]) -> None:
        """Raise PatchError if a commit would overwrite changes that were not recorded.

        A file that a commit writes must be as it was at the recording, or as it will
        be.
        """
        for path, change in committed.items():
            known = {_object_of(change.old), _object_of(change.new)}
            recorded = path.removeprefix(self._prefix)
            if recorded in self._changes.dirty:
                known.add(self._changes.dirty[recorded])
            if _object_of(now.get(path)) not in known:
                raise PatchError(f"{path} has changes that the recorded commit would overwrite")

    async def _move_head(
        self, repository: Repository, old: str | None, new: str, branch: str | None, entries: dict[str, Entry | None]
    ) -> None:
        """Set the index and HEAD to the new commits."""
        target = self._changes.branch
        if target and target != branch:
            await self._check_branch(repository, target, new)
        if entries:
            await _update_index(repository, entries)
        if target is None or target == (branch or ""):
            if new != old:
                await repository.git("update-ref", "-m", "replay: commits of a recording", "HEAD", new, old or "")
        elif target:
            await repository.git("update-ref", target, new)
            await repository.git("symbolic-ref", "HEAD", target)
        else:
            await repository.git("update-ref", "--no-deref", "HEAD", new)

    async def _check_branch(self, repository: Repository, target: str, new: str) -> None:
        """Raise PatchError unless a branch is new or would only move forward."""
        if not re.fullmatch(r"refs/heads/(?!-)[^\s~^:?*\[\\]+", target):
            raise PatchError(f"The recording names an invalid branch: {target}")
        there = (await repository.git("for-each-ref", "--format=%(objectname)", target)).strip()
        if there and there != new and int(await repository.git("rev-list", "--count", there, f"^{new}")):
            raise PatchError(f"The branch {target.removeprefix('refs/heads/')} has commits that would be lost")


async def _update_index(repository: Repository, entries: Mapping[str, Entry | None]) -> None:
    """Write entries to the user's index; wait while another git holds it."""
    for tries_left in reversed(range(_ATTEMPTS)):
        try:
            await repository.git("update-index", "-z", "--index-info", input=index_info(entries))
        except GitError as error:
            if not tries_left or "index.lock" not in error.reason:
                raise
            await asyncio.sleep(0.25)
        else:
            return


def _check_location(root: Path, path: str) -> None:
    """Raise PatchError for a path outside of the root, behind a link or in another
    repository.
    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts:
        raise PatchError(f"{path} is outside of {root}")
    folder = root
    for part in parts[:-1]:
        folder = folder / part
        if folder.is_symlink():
            raise PatchError(f"{path} is behind a link: a recording may not change it")
        if os.path.lexists(folder / ".git"):
            raise PatchError(f"{path} belongs to another repository: a recording may not change it")


def _with_newline(patch: str) -> str:
    return patch if patch.endswith("\n") else f"{patch}\n"


def _object_of(entry: Entry | None) -> str | None:
    return None if entry is None else entry[1]


def steers(path: str) -> bool:
    """Return whether a path of a project has a part that steers programs.

    Parts are compared as the most lenient file systems do: without case, without
    characters that HFS+ ignores and without dots and spaces at the end.
    """
    for part in PurePosixPath(path.replace("\\", "/")).parts:
        seen = "".join(letter for letter in part if unicodedata.category(letter) != "Cf")
        if unicodedata.normalize("NFKC", seen).casefold().partition(":")[0].rstrip(". ") in _STEERING:
            return True
    return False
