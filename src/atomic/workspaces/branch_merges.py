"""Merges of a run's branch, computed on git's objects.

No file of the user's checkout is read or written, so a command can refuse before
anything has changed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.terminal import one_line
from atomic.git import GitError, Repository
from atomic.git.calls import split
from atomic.workspaces.author import find_author
from atomic.workspaces.run_branch import RunBranch

RUN_TRAILER = "Atomic-Run"
UNDO_TRAILER = "Atomic-Undo"
MAX_NAMED = 10  # files in a sentence
_OLDEST_GIT = (2, 39)  # `merge-tree --stdin`
_USERS_TIMEOUT = 1800.0  # seconds; filters of the user may fetch large files


class BranchError(AtomicError):
    """A run's branch cannot be merged or changed; nothing was changed."""


class MergedTrees(msgspec.Struct, frozen=True):
    """The result of a merge of two commits.

    With conflicts, files in `tree` have conflict markers, and `messages` describe each
    conflict in a line.
    """

    tree: str
    conflicts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()


async def require_merges(repository: Repository, otherwise: str) -> None:
    """Raise BranchError if git is too old to merge without a checkout."""
    said = (await repository.git("--version")).strip()
    found = re.search(r"(\d+)\.(\d+)", said)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST_GIT:
        needed = ".".join(map(str, _OLDEST_GIT))
        raise BranchError(f"This needs git {needed} or newer, and here is {said}: update git, or {otherwise}")


async def have_common_commit(repository: Repository, one: str, other: str) -> bool:
    """Return whether two commits have a history that can be merged."""
    try:
        return bool((await repository.git("merge-base", one, other)).strip())
    except GitError:  # it says so with an exit code
        return False


async def merge_trees(repository: Repository, ours: str, theirs: str) -> MergedTrees:
    """Merge two commits. Raises GitError."""
    words = ("merge-tree", "--write-tree", "--stdin", "-z", "--name-only", "--messages")
    said = await repository.git(*words, input=f"{ours} {theirs}\n")
    is_clean, tree, *rest = said.split("\0")
    if is_clean == "1":
        return MergedTrees(tree)
    end = rest.index("")  # an empty text ends the paths
    return MergedTrees(tree, tuple(rest[:end]), tuple(_conflict_messages(rest[end + 1 :])))


def _conflict_messages(fields: Sequence[str]) -> list[str]:
    """Return the messages about conflicts: each follows a number of paths, the paths,
    and its kind.
    """
    found: list[str] = []
    at = 0
    while at < len(fields) and fields[at].isdecimal():
        kind, message = fields[at + int(fields[at]) + 1 :][:2]
        at += int(fields[at]) + 3
        if kind.startswith("CONFLICT"):
            found.append(message.strip())
    return found


async def tree_of(repository: Repository, commit: str) -> str:
    """Return the tree of a commit."""
    return (await repository.git("rev-parse", f"{commit}^{{tree}}")).strip()


async def commit_tree(repository: Repository, tree: str, parents: Sequence[str], message: str) -> str:
    """Write a commit of the user and return its name; no branch moves."""
    env = (await find_author(repository)).variables
    words = [word for parent in parents for word in ("-p", parent)]
    return (await repository.git("commit-tree", tree, *words, "-F", "-", env=env, input=message)).strip()


async def find_undone(repository: Repository, branch: RunBranch, run: str, tip: str) -> dict[str, str]:
    """Return the tasks that were undone, each with the commit that did it."""
    trailers = [f"%(trailers:key={key},valueonly,unfold,separator=%x2C)" for key in (RUN_TRAILER, UNDO_TRAILER)]
    form = "%x00".join(("%H", *trailers))
    # The trailers of a worker may have characters that end a line.
    fields = split(await repository.git("log", "-z", f"--format={form}", tip, f"^{branch.first}"))
    found: dict[str, str] = {}
    for commit, of, task in zip(fields[::3], fields[1::3], fields[2::3], strict=True):
        if of == run and task:
            found[task] = commit
    return found


async def merge_message(repository: Repository, branch: RunBranch, run: str, subject: str, tip: str) -> str:
    """Return the message of a commit with a run's work: its tasks without undone ones,
    and the run.
    """
    undone = await find_undone(repository, branch, run, tip)
    landed = [one for one in branch.landed if one_line(one.task) not in undone]
    tasks = "".join(f"* {one_line(one.task)}: {one_line(one.title)}\n" for one in landed)
    return f"{subject}\n\n{tasks}\n{RUN_TRAILER}: {run}\n"


async def git_as_user(repository: Repository, *words: str, **variables: str) -> str:
    """Run git with the settings, filters and hooks that the user has for all
    repositories, and without the ones of this repository. Raises GitError.
    """
    base = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return await repository.git_as_user(*words, base={**base, **variables}, timeout=_USERS_TIMEOUT)


def named(paths: Sequence[str]) -> str:
    """Return file names for a sentence: the first ones, and the number of others."""
    shown = ", ".join(one_line(path) for path in paths[:MAX_NAMED])
    left = len(paths) - MAX_NAMED
    return f"{shown} and {left} more" if left > 0 else shown
