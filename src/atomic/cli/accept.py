"""`atomic accept ID`: merge a run's branch into the branch of the user's checkout.

The merge is made as git objects first. The checkout then only moves forward to a commit
that exists, by git itself, which refuses to overwrite files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.terminal import one_line
from atomic.base.text import cut
from atomic.cli.errors import CliError
from atomic.cli.run_branches import (
    RUN_TRAILER,
    RunWork,
    commit_tree,
    find_undone,
    git_as_user,
    merge_trees,
    named,
    refuse_running,
    require_merges,
    require_work,
    tree_of,
)
from atomic.cli.streams import confirmed, put
from atomic.git import GitError, Repository
from atomic.git.calls import run_git, split
from atomic.processes.temporary_folders import temporary_prefix

_HEADS = "refs/heads/"
_MAX_SUBJECT = 72
_STATUS = ("status", "--porcelain=v1", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=dirty")
# The user's settings may not stash files, enter submodules or pack the repository.
_FORWARD = (
    *("-c", "submodule.recurse=false", "-c", "gc.auto=0", "-c", "maintenance.auto=false"),
    *("merge", "--quiet", "--ff-only", "--no-autostash"),
)
_NO_FILTER = ("unspecified", "unset", "set")


def accept_command(arguments: Arguments) -> int:
    """Merge the branch, or refuse before anything has changed."""
    work = require_work(arguments.words[0], "accept")
    refuse_running(work, "accept")
    put(asyncio.run(_accept(work, squash=arguments.has("--squash"))))
    return ExitCode.DONE


async def _accept(work: RunWork, *, squash: bool) -> str:
    repository = work.repository
    tip = await work.require_tip()
    head, target = await _require_target(work)
    nothing = f"There is nothing to merge: {target} has all changes of {work.name}"
    if await repository.is_ancestor(tip, head):
        raise CliError(nothing)
    is_forward = not squash and await repository.is_ancestor(head, tip)
    new = tip
    if not is_forward:
        tree = await _merge(work, head, tip, target)
        if tree == await tree_of(repository, head):
            raise CliError(nothing)
        parents = [head] if squash else [head, tip]
        new = await commit_tree(repository, tree, parents, await _message(work, tip, squash=squash))
    changed = await repository.differing(head, new)
    await _check_files(work, changed)
    await _check_filters(work, new, changed)
    try:
        await git_as_user(repository, *_FORWARD, new, GIT_REFLOG_ACTION=f"atomic accept {work.short}")
    except GitError as error:
        raise CliError(f"{work.name} was not merged into {target}: {one_line(error.reason)}") from error
    how = "as one commit" if squash else "as a merge commit"
    if is_forward:
        how = "as a fast-forward"
    files = "1 file" if len(changed) == 1 else f"{len(changed)} files"
    return f"Merged {work.name} into {target} {how}: {files} changed, {target} is at {new[:12]}\n"


async def _require_target(work: RunWork) -> tuple[str, str]:
    """Return the commit and the branch of the checkout.

    Raise CliError if it is not ready for a merge, or not on the branch that the run
    began on and the user does not confirm it.
    """
    repository = work.repository
    head, ref = await repository.head()
    began = work.branch.upstream.removeprefix(_HEADS)
    switch = f"git switch {began or 'BRANCH'}, then atomic accept {work.short}"
    if head is None or ref is None:
        where = "has no commit" if head is None else f"is on no branch, but at {head[:12]}"
        raise CliError(f"Your checkout {repository.root} {where}: {switch}")
    target = ref.removeprefix(_HEADS)
    if ref == work.branch.ref:
        raise CliError(f"Your checkout {repository.root} is on {work.name} itself: {switch}")
    operation = repository.operation()
    if operation:
        raise CliError(f"A git {operation} in {repository.root} is not finished: finish or abort it, then accept")
    if target == began:
        return head, target
    origin = f"on {began}" if began else "on no branch"
    difference = f"Run {work.short} began {origin}, and your checkout is on {target}"
    if not confirmed(f"{difference}. Merge into {target}? [y/N] "):
        raise CliError(f"{difference}: {switch}, or confirm it at a terminal")
    return head, target


async def _merge(work: RunWork, head: str, tip: str, target: str) -> str:
    """Return the tree of the merge. Raises CliError for a conflict."""
    by_hand = f"git merge {work.name} by hand"
    await require_merges(work.repository, by_hand)
    tree, conflicts = await merge_trees(work.repository, head, tip)
    if conflicts:
        raise CliError(
            f"{work.name} and {target} change the same lines of {named(conflicts)}, and nothing was changed: "
            f"{by_hand} in {work.repository.root}, and resolve the conflicts"
        )
    return tree


async def _message(work: RunWork, tip: str, *, squash: bool) -> str:
    """Return the message of a commit: its tasks without undone ones, and the run."""
    subject = f"Merge branch '{work.name}'"
    if squash:
        prompt = one_line(work.session.record.prompt) or f"Work of run {work.short}"
        subject = cut(prompt, _MAX_SUBJECT)
    undone = await find_undone(work, tip)
    landed = [one for one in work.branch.landed if one_line(one.task) not in undone]
    tasks = "".join(f"* {one_line(one.task)}: {one_line(one.title)}\n" for one in landed)
    return f"{subject}\n\n{tasks}\n{RUN_TRAILER}: {work.id}\n"


async def _check_files(work: RunWork, changed: Collection[str]) -> None:
    """Raise CliError if files of the user are in the way of the merge."""
    repository = work.repository
    entries = split(await repository.git("ls-files", "-t", "-z"))
    if any(entry.startswith("S ") for entry in entries):
        raise CliError(f"{repository.root} is a sparse checkout: git merge {work.name} by hand")
    dirty = _in_the_way([entry[3:] for entry in split(await git_as_user(repository, *_STATUS))], changed)
    if dirty:
        raise CliError(
            f"The merge would change files with uncommitted changes: {named(dirty)}. "
            f"Commit or stash them, then atomic accept {work.short}"
        )
    # Ignored files too: git would overwrite them.
    others = split(await repository.git("ls-files", "--others", "-z"))
    untracked = _in_the_way([path.rstrip("/") for path in others], changed)
    if untracked:
        raise CliError(
            f"The merge would overwrite files that git does not track: {named(untracked)}. "
            f"Move them away, then atomic accept {work.short}"
        )


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


async def _check_filters(work: RunWork, new: str, changed: Collection[str]) -> None:
    """Raise CliError if a file needs a filter that only the repository configures.

    Without the filter the file would be written as it is stored.
    """
    repository = work.repository
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
            raise CliError(
                f'{one_line(path)} needs the filter "{one_line(name)}" of {repository.common_dir / "config"}, and '
                f"Atomic runs no program that a repository names: git merge {work.name} by hand"
            )


async def _own_settings(repository: Repository) -> list[str]:
    """Return the names of the settings in the repository's own file."""
    words = ("config", "--file", str(repository.common_dir / "config"), "--no-includes", "-z", "--name-only", "--list")
    return (await run_git(*words, cwd=repository.root, env={})).split("\0")
