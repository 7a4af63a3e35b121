"""Make recorded changes again: in the files, and as commits. All of it, or nothing."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path, PurePosixPath

from atomic.base.steering import steers
from atomic.git.errors import GitError, PatchError
from atomic.git.folder_changes import Changes
from atomic.git.patches import Commit, Person, read_mail, split_patch
from atomic.git.repository import Repository, find_repository
from atomic.git.scratch import Change, Entry, Scratch, index_info, open_scratch

_LOCKED = 20  # times that a locked index is tried again, a quarter of a second each
_NOBODY = Person("Atomic", "atomic@localhost", "")


async def apply_changes(
    folder: str | os.PathLike[str], changes: Changes, *, own_commits: Collection[str] = ()
) -> list[str]:
    """Make the changes again in a folder. What is there already is left as it is. Return the new commits.

    A recording may come from a stranger: nothing is written outside of the folder's repository, inside of another
    repository, or below a name that steers programs, and only `own_commits` are taken back.

    Raises PatchError: a patch does not fit or writes where it may not, a file has changes that would be lost, or there
    is no repository for a commit. Nothing has changed then.
    """
    if not (changes.commits or changes.patch.strip() or changes.rewind or changes.branch is not None):
        return []
    root, repository = _root(folder, changes.folder)
    if repository is None and (changes.commits or changes.rewind or changes.branch is not None):
        raise PatchError(f"The recording has commits, but {root} is in no git repository")
    top = root if repository is None else repository.root
    try:
        async with open_scratch(top, repository) as scratch:
            return await _Application(scratch, root.relative_to(top).as_posix(), changes, own_commits).run()
    except GitError as error:
        raise PatchError(_readable(error)) from error


def _root(folder: str | os.PathLike[str], recorded: str) -> tuple[Path, Repository | None]:
    """The folder that the patches' paths begin at: above the given one only as far as its own path says so.

    Raises PatchError if the recording was made in another folder of its repository, or that root is none of this one.
    """
    place = Path(folder).resolve()
    repository = find_repository(place)
    if not recorded:
        return place, repository
    parts = PurePosixPath(recorded).parts
    fits = ".." not in parts and place.parts[-len(parts) :] == parts
    root = place.parents[len(parts) - 1] if fits and len(parts) <= len(place.parents) else None
    if root is None:
        raise PatchError(f"The recording was made in the folder {recorded} of its repository, and {place} is another")
    if repository is None or not root.is_relative_to(repository.root) or Path.home().resolve().is_relative_to(root):
        raise PatchError(f"The recording begins in {root}, which is not part of the repository of {place}")
    return root, repository


class _Application:
    """One making of changes. All trees are made before a file, the index or a ref is touched."""

    def __init__(self, scratch: Scratch, prefix: str, changes: Changes, own_commits: Collection[str]) -> None:
        self._scratch, self._changes, self._own_commits = scratch, changes, own_commits
        self._new_commits: list[str] = []
        self._where = () if prefix == "." else (f"--directory={prefix}",)
        self._prefix = "" if prefix == "." else f"{prefix}/"

    async def run(self) -> list[str]:
        scratch, repository = self._scratch, self._scratch.repository
        await self._check_places()
        old, branch = (None, None) if repository is None else await repository.head()
        new = await self._commit(old)
        committed = await scratch.changed(old or await scratch.empty_tree(), new) if new and new != old else {}
        entries = {path: change.new for path, change in committed.items()}
        touched = {*entries, *await self._paths(self._changes.patch)}
        await scratch.git("read-tree", "--empty", index="now")
        now = await scratch.picture(touched, index="now")
        await self._refuse_to_lose(committed, await scratch.entries(now))
        await scratch.tree(now, entries, index="then")
        await self._apply(self._changes.patch, index="then")
        then = await scratch.tree(index="then")
        await scratch.git("read-tree", "-n", "-m", "-u", now, then, index="now")
        if repository is not None and new is not None:
            await self._move(repository, old, new, branch, entries)
        await scratch.git("read-tree", "-m", "-u", now, then, index="now")
        return self._new_commits

    async def _check_places(self) -> None:
        """Raise PatchError for a path that a recording may not write, in whichever of its commits."""
        patches = [*(read_mail(text).patch for text in self._changes.commits), self._changes.patch]
        for path in dict.fromkeys([path for patch in patches for path in await self._paths(patch)]):
            if steers(path):
                raise PatchError(f"{path} steers git, Atomic or an agent: a recording may not change it")
            self._check_place(path)

    def _check_place(self, path: str) -> None:
        parts = PurePosixPath(path).parts
        if not parts or path.startswith("/") or ".." in parts:
            raise PatchError(f"{path} is outside of {self._scratch.root}")
        place = self._scratch.root
        for part in parts[:-1]:
            place = place / part
            if place.is_symlink():
                raise PatchError(f"{path} is behind a link: a recording may not change it")
            if os.path.lexists(place / ".git"):
                raise PatchError(f"{path} belongs to another repository: a recording may not change it")

    async def _commit(self, head: str | None) -> str | None:
        """Make the commits; give the last one. Nothing refers to them yet."""
        scratch = self._scratch
        if head is not None and self._changes.rewind:
            head = await self._rewound(head)
        await scratch.git(*(("read-tree", "--empty") if head is None else ("read-tree", head)), index="commits")
        for text in self._changes.commits:
            commit = read_mail(text)
            if await self._apply(commit.patch, index="commits", keep=True):
                head = await self._commit_index(commit, head)
                self._new_commits.append(head)
        return head

    async def _rewound(self, head: str) -> str | None:
        """The commit so many steps back; None if all are taken back. Raises PatchError for commits of others."""
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
        author = commit.author or _NOBODY
        environment = {
            **author.environment("AUTHOR"),
            **(commit.committer or author).environment("COMMITTER"),
        }
        tree = (await self._scratch.git("write-tree", "--missing-ok", index="commits", keep=True)).strip()
        parents = () if parent is None else ("-p", parent)
        words = ("commit-tree", tree, *parents, "-F", "-")
        return (await self._scratch.git(*words, input=commit.message, keep=True, env=environment)).strip()

    async def _apply(self, patch: str, *, index: str, keep: bool = False) -> bool:
        """Apply a patch to an index; False if all of it is there already."""
        if not patch.strip():
            return True
        try:
            await self._try(patch, index=index, keep=keep)
        except GitError:
            parts = split_patch(patch if patch.endswith("\n") else f"{patch}\n")
            missing = [part for part in parts if not await self._is_there(part, index)]
            if len(missing) == len(parts):
                raise
            if missing:
                await self._try("".join(missing), index=index, keep=keep)
            return bool(missing)
        return True

    async def _try(self, patch: str, *words: str, index: str, keep: bool = False) -> None:
        text = patch if patch.endswith("\n") else f"{patch}\n"
        command = ("apply", "--cached", "--whitespace=nowarn", *self._where, *words, "-")
        await self._scratch.git(*command, input=text, index=index, keep=keep)

    async def _is_there(self, patch: str, index: str) -> bool:
        try:
            await self._try(patch, "--check", "--reverse", index=index)
        except GitError:
            return False
        return True

    async def _paths(self, patch: str) -> list[str]:
        """The files that a patch is about."""
        if not patch.strip():
            return []
        text = patch if patch.endswith("\n") else f"{patch}\n"
        listed = await self._scratch.git("apply", "--numstat", "-z", *self._where, "-", input=text)
        named = [line.split("\t", 2)[2] for line in listed.split("\0")[:-1]]
        moved = re.findall(r"^(?:rename|copy) from (.+)$", patch, re.MULTILINE)
        return [*named, *(f"{self._prefix}{path}" for path in moved)]

    async def _refuse_to_lose(self, committed: Mapping[str, Change], now: Mapping[str, Entry]) -> None:
        """A file that a commit writes must be as it was when that was recorded, or as it will be."""
        for path, change in committed.items():
            known = {None if entry is None else entry[1] for entry in (change.old, change.new)}
            dirty = self._changes.dirty
            if path.removeprefix(self._prefix) in dirty:
                known.add(dirty[path.removeprefix(self._prefix)])
            entry = now.get(path)
            if (None if entry is None else entry[1]) not in known:
                raise PatchError(f"{path} has changes that the recorded commit would overwrite")

    async def _move(
        self, repository: Repository, old: str | None, new: str, branch: str | None, entries: dict[str, Entry | None]
    ) -> None:
        """Let index and HEAD follow the commits."""
        target = self._changes.branch
        if target and target != branch:
            await self._check_branch(repository, target, new)
        if entries:
            await _patiently(repository, "update-index", "-z", "--index-info", input=index_info(entries))
        if target is not None and target != (branch or ""):
            await self._switch(repository, target, new)
        elif new != old:
            await repository.git("update-ref", "-m", "replay: commits of a recording", "HEAD", new, old or "")

    async def _switch(self, repository: Repository, target: str, new: str) -> None:
        if target:
            await repository.git("update-ref", target, new)
            await repository.git("symbolic-ref", "HEAD", target)
        else:
            await repository.git("update-ref", "--no-deref", "HEAD", new)

    async def _check_branch(self, repository: Repository, target: str, new: str) -> None:
        """A branch that is to be checked out is new, or goes forward: no commit of it may be lost."""
        if not re.fullmatch(r"refs/heads/(?!-)[^\s~^:?*\[\\]+", target):
            raise PatchError(f"The recording names a branch that is none: {target}")
        there = (await repository.git("for-each-ref", "--format=%(objectname)", target)).strip()
        if there and there != new and int(await repository.git("rev-list", "--count", there, f"^{new}")):
            raise PatchError(f"The branch {target.removeprefix('refs/heads/')} has commits that would be lost")


async def _patiently(repository: Repository, *arguments: str, input: str) -> None:
    """Run git; wait while another one holds the index."""
    for tries_left in reversed(range(_LOCKED)):
        try:
            await repository.git(*arguments, input=input)
        except GitError as error:
            if not tries_left or "index.lock" not in error.reason:
                raise
            await asyncio.sleep(0.25)
        else:
            return


def _readable(error: GitError) -> str:
    """What git says of a patch, without its own words around it."""
    lines = [line.removeprefix("error: ").removeprefix("fatal: ") for line in error.reason.splitlines()]
    return "; ".join(_unique(line for line in lines if line))


def _unique(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(lines))
