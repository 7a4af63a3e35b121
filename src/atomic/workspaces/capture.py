"""Keep everything that a worker leaves in a workspace as one commit.

The first parent of that commit is the result: the worker's last commit, or a commit of
the files as they were left. Further parents have the rest of the workspace: the index,
other branches, stashes, commits that only the log of HEAD names, and the history
of repositories inside of the workspace.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path

import msgspec

from atomic.git import GitError
from atomic.git.calls import run_git, split
from atomic.workspaces.author import Author
from atomic.workspaces.base import Base
from atomic.workspaces.git_in_view import (
    ALTERNATES,
    NO_SETTINGS,
    OUT,
    SAFE,
    TIMEOUT,
    GitTimeoutError,
    as_list_entry,
    copy_git_files,
    git_in_view,
    remove_locks,
)
from atomic.workspaces.views import View

_GITLINK = "160000 "
# Files of a git folder that exist while git waits for its user.
_UNFINISHED = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
}
UNSOLVED = "conflict"
WITH_OTHERS = " (with other commits)"  # ends the subject of a commit that keeps several
_NO_COMMIT = "does not have a commit checked out"  # of git, about a repository in the tree
_LISTED = ("ls-files", "-z")
_WORKERS_TIMEOUT = 60.0  # of a small question to a repository that a worker could write to
_SECOND_TIMEOUT = 300.0  # of a call, after one that took too long
_MAX_PATHS = 500  # of one command
_TRIED = "refs/atomic/tried"  # a commit of which git may not be able to read everything
_DISK_IS_FULL = ("No space left on device", "Disk quota exceeded")  # of git


class Captured(msgspec.Struct, frozen=True):
    """The content of a workspace: the result, and the commit with everything.

    `unfinished` is the command of git that waits for its user, such as a rebase, or
    `UNSOLVED` if only the index has conflicts. Files may have both sides of a conflict
    then.
    """

    result: str
    parked: str
    unfinished: str = ""


class Capture:
    """One capture: git calls inside of a view, with a git folder of our own.

    The worker's git folder is only read. If it is damaged, the files still count.
    """

    def __init__(self, view: View, base: Base, exchange: Path, author: Author, *, start: str = "") -> None:
        """Prepare a capture.

        `start` is the commit at which the workspace began, if it is not the
        base's.
        """
        self._view = view
        self._base = base
        self._start = start or base.commit
        self._git_dir = exchange / "git"
        self._worker = view.root / ".git"
        self._has_worker = True  # its repository can be read
        self._is_careful = False  # each commit of the worker is tried first
        self._timeout = TIMEOUT
        self._numbers = count(1)  # of the indexes of inner repositories
        objects = [base.folder / ".git" / "objects", self._worker / "objects"]
        self._env = {
            **NO_SETTINGS,
            "GIT_DIR": str(self._git_dir),
            "GIT_WORK_TREE": str(view.root),
            "GIT_INDEX_FILE": str(self._git_dir / "index"),
            ALTERNATES: os.pathsep.join(map(as_list_entry, objects)),
            **author.variables,
        }

    async def run(self, message: str, bundle: Path) -> Captured:
        """Write a bundle with everything that git can read. Raises GitError."""
        try:
            return await self._run(message, bundle)
        except GitTimeoutError:
            self._use_files_only()
            self._timeout = _SECOND_TIMEOUT
        except GitError as error:
            _raise_if_full(error)
            await asyncio.to_thread(_remove_unfinished, self._git_dir, bundle)
            try:
                # An object may be damaged: leave out only the commits that need it.
                self._is_careful = True
                return await self._run(message, bundle)
            except GitError as again:
                _raise_if_full(again)
                self._use_files_only()
        await asyncio.to_thread(_remove_unfinished, self._git_dir, bundle)
        return await self._run(message, bundle)

    def _use_files_only(self) -> None:
        self._has_worker = False
        self._env[ALTERNATES] = as_list_entry(self._base.folder / ".git" / "objects")

    async def _run(self, message: str, bundle: Path) -> Captured:
        await asyncio.to_thread(copy_git_files, self._base.folder / ".git", self._git_dir)
        head = await self._find_head()
        extra = await self._add_files(self._view.root, self._git_dir / "index")
        await self._add_committed(head)
        tree = (await self._git("write-tree")).strip()
        result = head
        if tree != (await self._git("rev-parse", f"{head}^{{tree}}")).strip():
            result = (await self._git("commit-tree", tree, "-p", head, "-m", message)).strip()
        extra += await self._find_more(result)
        parked = result
        if extra:
            parents = [word for commit in (result, *extra) for word in ("-p", commit)]
            subject = message.partition("\n")[0]
            parked = (await self._git("commit-tree", tree, *parents, "-m", f"{subject}{WITH_OTHERS}")).strip()
        await self._git("update-ref", OUT, parked)
        await self._write_bundle(bundle)
        return Captured(result, parked, await self._find_unfinished())

    async def _find_unfinished(self) -> str:
        listed = await self._view.run("ls", "-A", "--", str(self._worker), timeout=TIMEOUT, is_short=True)
        names = listed.stdout.splitlines()
        for name, operation in _UNFINISHED.items():
            if name in names:
                return operation
        try:
            return UNSOLVED if await self._ask_worker("ls-files", "--unmerged") else ""
        except GitError:
            return ""  # a damaged repository: the files count

    async def _add_files(self, root: Path, index: Path) -> list[str]:
        """Add all files below `root` to an index, and return commits of repositories in
        it.

        Git adds a repository inside of another one only as the name of a commit. Its
        files are added in place of that, unless it is a submodule.
        """
        env = {"GIT_WORK_TREE": str(root), "GIT_INDEX_FILE": str(index)}
        plain = await self._add_all(root, env)
        listed = split(await self._git(*_LISTED, "--stage", env=env, cwd=root))
        linked = [line.partition("\t")[2] for line in listed if line.startswith(_GITLINK)]
        found: list[str] = []
        for path in dict.fromkeys((*plain, *linked)):
            folder = root / path
            if not await self._is_repository(folder):
                continue
            inner_index = self._git_dir / f"index-{next(self._numbers)}"
            found += await self._add_files(folder, inner_index)
            inner_env = {"GIT_WORK_TREE": str(folder), "GIT_INDEX_FILE": str(inner_index)}
            tree = (await self._git("write-tree", env=inner_env, cwd=folder)).strip()
            found.append(await self._commit_inner(folder, tree))
            if path in plain or not await self._is_submodule(path, env):
                await self._git("update-index", "--force-remove", "--", path, env=env, cwd=root)
                await self._git("read-tree", f"--prefix={path}/", tree, env=env, cwd=root)
        return found

    async def _add_all(self, root: Path, env: Mapping[str, str]) -> list[str]:
        """Add all files, and return the repositories that git refuses to add: they have
        no commit.
        """
        try:
            await self._git("add", "--all", "--", ".", env=env, cwd=root)
        except GitError as error:
            if _NO_COMMIT not in error.reason:
                raise
        else:
            return []
        plain = await self._find_without_commit(root, env)
        excluded = [f":(exclude,literal){path}" for path in plain]
        await self._git("add", "--all", "--", ".", *excluded, env=env, cwd=root)
        return plain

    async def _find_without_commit(self, root: Path, env: Mapping[str, str]) -> list[str]:
        """Return the repositories below a folder that have no commit.

        Git lists one as an untracked folder, or as a link to a commit that it had.
        """
        others = split(await self._git(*_LISTED, "--others", "--exclude-standard", env=env, cwd=root))
        listed = split(await self._git(*_LISTED, "--stage", env=env, cwd=root))
        found = [path.rstrip("/") for path in others if path.endswith("/")]
        found += [line.partition("\t")[2] for line in listed if line.startswith(_GITLINK)]
        return [path for path in found if not await self._has_commit(root / path)]

    async def _has_commit(self, folder: Path) -> bool:
        words = ("--git-dir", str(folder / ".git"), "rev-parse", "--quiet", "--verify", "HEAD")
        try:
            await git_in_view(self._view, *SAFE, *words, env=NO_SETTINGS, timeout=_WORKERS_TIMEOUT)
        except GitError:
            return False
        return True

    async def _add_committed(self, head: str) -> None:
        """Add files that the worker has committed although the ignore rules name them."""
        words = ("diff", "--cached", "--name-only", "--no-renames", "--diff-filter=D", "-z", head)
        missing = (await self._git(*words)).split("\0")[:-1]
        literal = {"GIT_LITERAL_PATHSPECS": "1"}
        for at in range(0, len(missing), _MAX_PATHS):
            paths = missing[at : at + _MAX_PATHS]
            there = (await self._git("ls-files", "--others", "-z", "--", *paths, env=literal)).split("\0")[:-1]
            if there:
                await self._git("add", "--force", "--", *there, env=literal)

    async def _is_repository(self, folder: Path) -> bool:
        """Return whether a folder is a repository that is there with its files."""
        done = await self._view.run("test", "-e", str(folder / ".git"), timeout=TIMEOUT, is_short=True)
        return done.exit_code == 0

    async def _is_submodule(self, path: str, env: Mapping[str, str]) -> bool:
        # The file itself may be a link to anything.
        words = ("config", "--blob", ":.gitmodules", "--get-regexp", r"^submodule\..*\.path$")
        try:
            listed = await self._git(*words, env=env)
        except GitError:
            return False
        return path in [line.partition(" ")[2] for line in listed.splitlines()]

    async def _commit_inner(self, folder: Path, tree: str) -> str:
        """Return a commit of the files of an inner repository, with its own history if it
        has one.
        """
        parents: Sequence[str] = ()
        if self._has_worker:
            ask = (*SAFE, "-C", str(folder), "rev-parse", "--absolute-git-dir")
            try:
                git_dir = await git_in_view(self._view, *ask, env=NO_SETTINGS, timeout=_WORKERS_TIMEOUT)
                git_dir = git_dir.strip()
                words = ("--git-dir", git_dir, "rev-parse", "--verify", "HEAD^{commit}")
                head = (await self._git(*words, timeout=_WORKERS_TIMEOUT)).strip()
                self._env[ALTERNATES] += os.pathsep + as_list_entry(f"{git_dir}/objects")
                if await self._can_be_kept(head):
                    parents = ("-p", head)
            except GitTimeoutError:
                self._use_files_only()
            except GitError:
                pass  # it has no commit, or it is damaged: its files are kept
        return (await self._git("commit-tree", tree, *parents, "-m", f"Files of {folder.name}")).strip()

    async def _find_head(self) -> str:
        """Return the worker's commit; the start commit if its repository is damaged or
        another one.
        """
        try:
            head = (await self._ask_worker("rev-parse", "--verify", "HEAD^{commit}")).strip()
            await self._git("rev-list", "--objects", "--quiet", head, f"^{self._base.commit}")
            await self._git("merge-base", head, self._start)
        except GitError:
            return self._start
        return head if await self._can_be_kept(head) else self._start

    async def _find_more(self, result: str) -> list[str]:
        """Return commits that the result does not contain: index, branches, stashes,
        log of HEAD.
        """
        found: list[str] = []
        staged = await self._staged_tree(result)
        # A first commit has no parent.
        known = (await self._git("log", "--first-parent", "--max-count=2", "--format=%T", result)).split()
        if staged and staged not in known:
            index = (await self._git("commit-tree", staged, "-p", result, "-m", "The index")).strip()
            if await self._can_be_kept(index):
                found.append(index)
        try:
            tips = set((await self._ask_worker("rev-list", "--no-walk", "--all", "--reflog")).split())
        except GitError:
            return found
        for tip in sorted(tips - {result} - await self._known_tips()):
            excluded = [f"^{one}" for one in (self._base.commit, result, *found)]
            try:
                new = (await self._git("rev-list", "--max-count=1", tip, *excluded)).strip()
            except GitError:
                continue  # its objects are not complete
            if new and await self._can_be_kept(tip):
                found.append(tip)
        return found

    async def _staged_tree(self, result: str) -> str:
        """Return the files of the worker's index as a tree.

        With conflicts these are the files of the result, and those without a conflict
        that it does not have. Empty if there are none, or if the repository is damaged.
        """
        try:
            return (await self._ask_worker("write-tree")).strip()
        except GitError as error:
            _raise_if_full(error)
        try:
            entries = split(await self._ask_worker(*_LISTED, "--stage"))
        except GitError:
            return ""
        kept = {entry.split()[2] for entry in split(await self._git("ls-tree", "-r", "-z", result))}
        added = [words for entry in entries if (words := _words_of(entry)) and words[1].split(",")[1] not in kept]
        if not added:
            return ""
        env = {"GIT_INDEX_FILE": str(self._git_dir / "index-staged")}
        await self._git("read-tree", result, env=env)
        for at in range(0, len(added), _MAX_PATHS):
            words = (word for words in added[at : at + _MAX_PATHS] for word in words)
            await self._git("update-index", "--add", "--replace", *words, env=env)
        return (await self._git("write-tree", env=env)).strip()

    async def _can_be_kept(self, commit: str) -> bool:
        """Return whether git can read all objects of a commit that the base does not have.

        That takes as long as keeping them, so it is tried only after a failure.
        """
        if not self._is_careful:
            return True
        tried = self._git_dir / "tried.bundle"
        try:
            await self._git("update-ref", _TRIED, commit)
            await self._write_bundle(tried, _TRIED)
        except GitError as error:
            _raise_if_full(error)
            return False
        return True

    async def _known_tips(self) -> set[str]:
        """Return the tips of the user's branches, which the base has too."""
        own = self._base.folder / ".git"
        listed = await run_git("rev-list", "--no-walk", "--all", cwd=own, env={"GIT_DIR": str(own)})
        return set(listed.split())

    async def _write_bundle(self, bundle: Path, ref: str = OUT) -> None:
        try:
            await self._git("bundle", "create", "--quiet", str(bundle), ref, f"^{self._base.commit}")
        except GitError as error:
            if "empty bundle" not in error.reason:
                raise

    async def _git(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        timeout: float | None = None,
    ) -> str:
        environment = {**self._env, **(env or {})}
        return await git_in_view(
            self._view, *SAFE, *arguments, env=environment, cwd=cwd, timeout=timeout or self._timeout
        )

    async def _ask_worker(self, *arguments: str) -> str:
        """Ask the worker's repository, unless it did not answer in time before."""
        if not self._has_worker:
            raise GitError(arguments, "the worker's repository is damaged")
        env = {**NO_SETTINGS, "GIT_DIR": str(self._worker), "GIT_WORK_TREE": str(self._view.root)}
        try:
            return await git_in_view(self._view, *SAFE, *arguments, env=env, timeout=_WORKERS_TIMEOUT)
        except GitTimeoutError:
            self._use_files_only()
            raise


def _raise_if_full(error: GitError) -> None:
    """Raise the error of a full disk: nothing is damaged, and nothing may be left out."""
    if any(words in error.reason for words in _DISK_IS_FULL):
        raise error


def _words_of(entry: str) -> tuple[str, str] | None:
    """Return how `git update-index` adds an entry of an index; None for a conflict."""
    facts, _, path = entry.partition("\t")
    mode, blob, stage = facts.split(" ")
    return ("--cacheinfo", f"{mode},{blob},{path}") if stage == "0" else None


def _remove_unfinished(git_dir: Path, bundle: Path) -> None:
    """Remove the rest of a git that was killed, also in its own folder."""
    remove_locks(git_dir)
    for path in bundle.parent.glob(f"{bundle.name}*"):
        path.unlink()
