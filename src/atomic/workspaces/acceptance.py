"""Merge a run's branch into the branch of the user's checkout.

The merge is made as git objects first. The checkout then only moves forward to a commit
that exists, by git itself, which refuses to overwrite files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

import msgspec

from atomic.base.terminal import one_line
from atomic.base.text import cut
from atomic.git import GitError, Repository
from atomic.git.calls import run_git, split
from atomic.processes.temporary_folders import temporary_prefix
from atomic.workspaces.branch_merges import (
    BranchError,
    commit_tree,
    git_as_user,
    have_common_commit,
    merge_message,
    merge_trees,
    named,
    require_merges,
    tree_of,
)
from atomic.workspaces.run_branch import RunBranch
from atomic.workspaces.taken_files import find_taken, move_forward

_HEADS = "refs/heads/"
_MAX_SUBJECT = 72
_STATUS = ("status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
# The user's settings may not stash files, enter submodules or pack the repository.
_FORWARD = (
    *("-c", "submodule.recurse=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
    *("merge", "--quiet", "--ff-only", "--no-autostash"),
)
_NO_FILTER = ("unspecified", "unset", "set")


class Outlook(msgspec.Struct, frozen=True):
    """The effect of a merge of a run's branch.

    `has_moved`: the user's branch has commits that the run's branch does not have.
    """

    head: str  # the commit of the checkout
    target: str  # its branch
    tip: str  # the last commit of the run's branch
    has_moved: bool = False
    tree: str = ""  # of the merge, if it has moved; with markers where it has conflicts
    conflicts: tuple[str, ...] = ()


class Accepted(msgspec.Struct, frozen=True):
    """A merge that was made. `how` completes "merged as"."""

    branch: str
    target: str
    commit: str
    how: str
    files: int

    def __str__(self) -> str:
        files = "1 file" if self.files == 1 else f"{self.files} files"
        return (
            f"Merged {self.branch} into {self.target} as {self.how}: {files} changed, "
            f"{self.target} is at {self.commit[:12]}"
        )


class Acceptance:
    """The branch of a run that the user wants to merge, or that `--accept` merges."""

    def __init__(self, repository: Repository, branch: RunBranch, run: str, *, prompt: str = "") -> None:
        """Describe it; nothing is read yet. `prompt` is the subject of a squashed
        commit.
        """
        self._repository = repository
        self._branch = branch
        self._run = run
        self._prompt = prompt

    @property
    def _command(self) -> str:
        return f"atomic accept {self._run[:8]}"

    @property
    def _by_hand(self) -> str:
        return f"git merge {self._branch.name} by hand"

    async def look(self, tip: str, *, confirm: Callable[[str], bool] | None = None) -> Outlook:
        """Return the effect of a merge of the branch at `tip`.

        `confirm` asks whether to merge into another branch than the one that the run
        began on. Raises BranchError if the checkout is not ready or nothing is to be
        merged.
        """
        head, target = await self._require_target(confirm)
        if await self._repository.is_ancestor(tip, head):
            raise self._nothing(target)
        if await self._repository.is_ancestor(head, tip):
            if await tree_of(self._repository, head) == await tree_of(self._repository, tip):
                raise self._nothing(target)  # its tasks were undone
            return Outlook(head, target, tip)
        await require_merges(self._repository, self._by_hand)
        if not await have_common_commit(self._repository, head, tip):
            name = self._branch.name
            raise BranchError(
                f"{target} and {name} have no commit in common: the history of {target} was rewritten since the run"
                f" began. git rebase --onto {target} {self._branch.start[:12]} {name} puts the work of the run on top"
                f" of it; then git switch {target} and {self._command}"
            )
        merged = await merge_trees(self._repository, head, tip)
        if not merged.conflicts and merged.tree == await tree_of(self._repository, head):
            raise self._nothing(target)
        return Outlook(head, target, tip, True, merged.tree, merged.conflicts)

    def _nothing(self, target: str) -> BranchError:
        return BranchError(f"There is nothing to merge: {target} has all changes of {self._branch.name}")

    async def _require_target(self, confirm: Callable[[str], bool] | None) -> tuple[str, str]:
        """Return the commit and the branch of the checkout."""
        repository = self._repository
        head, ref = await repository.head()
        began = self._branch.upstream.removeprefix(_HEADS)
        switch = f"git switch {began or 'BRANCH'}, then {self._command}"
        if head is None or ref is None:
            where = "has no commit" if head is None else f"is on no branch, but at {head[:12]}"
            raise BranchError(f"Your checkout {repository.root} {where}: {switch}")
        target = ref.removeprefix(_HEADS)
        if ref == self._branch.ref:
            raise BranchError(f"Your checkout {repository.root} is on {self._branch.name} itself: {switch}")
        operation = repository.operation()
        if operation:
            raise BranchError(
                f"A git {operation} in {repository.root} is not finished: finish or abort it, then {self._command}"
            )
        if target == began:
            return head, target
        origin = f"on {began}" if began else "on no branch"
        difference = f"Run {self._run[:8]} began {origin}, and your checkout is on {target}"
        if confirm is None or not confirm(f"{difference}. Merge into {target}? [y/N] "):
            raise BranchError(f"{difference}: {switch}, or confirm it at a terminal")
        return head, target

    async def merge(self, outlook: Outlook, *, squash: bool = False) -> Accepted:
        """Merge the branch, or raise BranchError before anything has changed.

        Conflicts have been handled by the caller.
        """
        assert not outlook.conflicts
        new = outlook.tip
        how = "a fast-forward"
        if squash or outlook.has_moved:
            how = "one commit" if squash else "a merge commit"
            new = await self._commit(outlook, squash=squash)
        changed = await self._repository.differing(outlook.head, new)
        taken = await self._check_files(outlook.head, changed, new)
        await self._check_filters(new, changed)
        try:
            if taken:
                ref = f"{_HEADS}{outlook.target}"
                reason = f"{self._command}: {how}"
                await move_forward(self._repository, taken, head=outlook.head, new=new, ref=ref, reason=reason)
            else:
                await git_as_user(self._repository, *_FORWARD, new, GIT_REFLOG_ACTION=self._command)
        except GitError as error:
            raise BranchError(
                f"{self._branch.name} was not merged into {outlook.target}: {one_line(error.reason)}"
            ) from error
        return Accepted(self._branch.name, outlook.target, new, how, len(changed))

    async def check_files(self, outlook: Outlook) -> None:
        """Raise BranchError if files of the user are in the way of a merge, also of one
        whose conflicts are not resolved yet.
        """
        new = outlook.tree or outlook.tip
        await self._check_files(outlook.head, await self._repository.differing(outlook.head, new), new)

    async def _commit(self, outlook: Outlook, *, squash: bool) -> str:
        """Write the commit of a merge, or of the whole work, and return it."""
        tree = outlook.tree or await tree_of(self._repository, outlook.tip)
        if tree == await tree_of(self._repository, outlook.head):
            raise self._nothing(outlook.target)
        parents = [outlook.head] if squash else [outlook.head, outlook.tip]
        subject = f"Merge branch '{self._branch.name}'"
        if squash:
            subject = cut(one_line(self._prompt) or f"Work of run {self._run[:8]}", _MAX_SUBJECT)
        message = await merge_message(self._repository, self._branch, self._run, subject, outlook.tip)
        return await commit_tree(self._repository, tree, parents, message)

    async def _check_files(self, head: str, changed: Collection[str], new: str) -> dict[str, str]:
        """Raise BranchError if files of the user are in the way of the merge.

        Return the uncommitted ones that the run has begun with, and that are still the
        same.
        """
        repository = self._repository
        entries = split(await repository.git("ls-files", "-t", "-z"))
        if any(entry.startswith("S ") for entry in entries):
            raise BranchError(f"{repository.root} is a sparse checkout: {self._by_hand}")
        dirty = _in_the_way([entry[3:] for entry in split(await git_as_user(repository, *_STATUS))], changed)
        # Ignored files too: git would overwrite them.
        others = split(await repository.git("ls-files", "--others", "-z"))
        untracked = _in_the_way([path.rstrip("/") for path in others], changed)
        first = self._branch.first
        taken: dict[str, str] = {}
        begun: Collection[str] = ()  # the files that the run has begun with
        if first != self._branch.start and (dirty or untracked):
            begun = await repository.differing(self._branch.start, first)
            taken = await find_taken(repository, [*dirty, *untracked], head=head, commits=(first, new))
        if dirty := [path for path in dirty if path not in taken]:
            raise BranchError(
                f"The merge would change files with uncommitted changes: {named(dirty)}{_since(dirty, begun)}. "
                f"Commit or stash them, then {self._command}"
            )
        if untracked := [path for path in untracked if path not in taken]:
            raise BranchError(
                f"The merge would overwrite files that git does not track: {named(untracked)}"
                f"{_since(untracked, begun)}. Move them away, then {self._command}"
            )
        return taken

    async def _check_filters(self, new: str, changed: Collection[str]) -> None:
        """Raise BranchError if a file needs a filter that only the repository configures.

        Without the filter the file would be written as it is stored.
        """
        repository = self._repository
        with TemporaryDirectory(prefix=temporary_prefix("index")) as folder:
            env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            await repository.git("read-tree", new, env=env)
            paths = "".join(f"{path}\0" for path in changed)
            listed = await repository.git("check-attr", "--cached", "-z", "--stdin", "filter", env=env, input=paths)
        fields = split(listed)
        filters = dict(zip(fields[2::3], fields[::3], strict=True))
        used = {name: path for name, path in filters.items() if name not in _NO_FILTER}
        if not used:
            return
        users = (await git_as_user(repository, "config", "--list", "-z", "--name-only")).split("\0")
        own = await _own_settings(repository)
        for name, path in used.items():
            prefix = f"filter.{name}."
            if any(key.startswith(prefix) for key in own) and not any(key.startswith(prefix) for key in users):
                raise BranchError(
                    f'{one_line(path)} needs the filter "{one_line(name)}" of {repository.common_dir / "config"}, and '
                    f"Atomic runs no program that a repository names: {self._by_hand}"
                )


def _since(paths: Sequence[str], begun: Collection[str]) -> str:
    """Return a remark if all files were changed before the run began, else an empty text."""
    return " (the run has them as they were when it began)" if set(paths) <= set(begun) else ""


def _in_the_way(paths: Iterable[str], changed: Collection[str]) -> list[str]:
    """Return the paths that are changed, or are a folder of a changed file, or inside
    of a changed path.
    """
    folders = {str(parent) for path in changed for parent in PurePosixPath(path).parents}
    found: list[str] = []
    for path in paths:
        is_below = any(str(parent) in changed for parent in PurePosixPath(path).parents)
        if path in changed or path in folders or is_below:
            found.append(path)
    return found


async def _own_settings(repository: Repository) -> list[str]:
    """Return the names of the settings in the repository's own file."""
    words = ("config", "--file", str(repository.common_dir / "config"), "--no-includes", "-z", "--name-only", "--list")
    return (await run_git(*words, cwd=repository.root, env={})).split("\0")
