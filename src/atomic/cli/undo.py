"""`atomic undo ID TASK`: take a task back out of a run's branch, with a new commit."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from atomic.base.arguments import Arguments
from atomic.base.errors import ExitCode
from atomic.base.terminal import one_line
from atomic.cli.errors import CliError
from atomic.cli.run_branches import RunWork, refuse_checked_out, refuse_running, require_landed, require_work
from atomic.cli.streams import put
from atomic.workspaces import move_branch
from atomic.workspaces.branch_merges import (
    RUN_TRAILER,
    UNDO_TRAILER,
    commit_tree,
    find_undone,
    merge_trees,
    named,
    require_merges,
    tree_of,
)
from atomic.workspaces.run_branch import Landed


def undo_command(arguments: Arguments) -> int:
    """Undo a task on the run's branch; the user's checkout is not touched."""
    *ids, task = arguments.words
    work = require_work(next(iter(ids), None), "undo")
    refuse_running(work, "undo")
    commit = asyncio.run(_undo(work, require_landed(work, task)))
    next_step = f"No check has run on the result: atomic accept {work.short} --fix runs the checks and merges it"
    if not asyncio.run(work.repository.differing(work.branch.start, commit)):
        next_step = f"Nothing is left to merge: atomic discard {work.short} removes the branch"
    put(f"Task {one_line(task)} is undone on {work.name}, in commit {commit[:12]}.\n{next_step}\n")
    return ExitCode.DONE


async def _undo(work: RunWork, landed: Landed) -> str:
    """Commit the branch without the changes of a task, and return the commit."""
    repository = work.repository
    task = one_line(landed.task)
    tip = await work.require_tip()
    await refuse_checked_out(work, "undo")
    if not await repository.is_ancestor(landed.commit, tip):
        raise CliError(f"The branch {work.name} was rewritten and does not have task {task} ({landed.commit[:12]})")
    undone = await find_undone(repository, work.branch, work.id, tip)
    if task in undone:
        raise CliError(f"Task {task} of run {work.short} is undone already, in commit {undone[task][:12]}")
    ranges = " ".join(f"{base[:12]}..{commit[:12]}" for base, commit in reversed(landed.parts))
    await require_merges(repository, f"git revert {ranges} on {work.name}")
    tree = await _tree_without(work, landed, tip)
    if tree == await tree_of(repository, tip):
        raise CliError(f"Nothing is left of task {task} on {work.name}: there is nothing to undo")
    message = f"Undo task {task}: {one_line(landed.title)}\n\n{RUN_TRAILER}: {work.id}\n{UNDO_TRAILER}: {task}\n"
    commit = await commit_tree(repository, tree, [tip], message)
    if not await move_branch(repository, work.name, commit, tip):
        raise CliError(f"{work.name} has moved meanwhile, and nothing was changed: atomic undo {work.short} {task}")
    return commit


async def _tree_without(work: RunWork, landed: Landed, tip: str) -> str:
    """Return the files of the branch without the changes of a task. Raises CliError."""
    repository = work.repository
    current = tip
    tree = ""
    for base, commit in reversed(landed.parts):
        # A merge with a commit that follows the part and has the files from before it.
        reverted = await commit_tree(repository, await tree_of(repository, base), [commit], "Without it\n")
        merged = await merge_trees(repository, current, reverted)
        if merged.conflicts:
            raise CliError(await _explain_conflict(work, landed, commit, merged.conflicts))
        tree = merged.tree
        current = await commit_tree(repository, tree, [current], "Without a part\n")
    return tree


async def _explain_conflict(work: RunWork, landed: Landed, commit: str, conflicts: Sequence[str]) -> str:
    """Return why a part of a task cannot be undone, with the later tasks that changed its
    lines.
    """
    later: list[str] = []
    for one in work.branch.landed:
        if one.task != landed.task and await _changed_later(work, one, commit, conflicts):
            later.append(one_line(one.task))
    advice = f"undo task {', '.join(reversed(later))} first" if later else f"git revert on {work.name} by hand"
    return (
        f"Task {one_line(landed.task)} cannot be undone, and nothing was changed: later commits of {work.name} change"
        f" the same lines of {named(conflicts)}. {advice.capitalize()}"
    )


async def _changed_later(work: RunWork, other: Landed, commit: str, paths: Sequence[str]) -> bool:
    """Return whether a task has changed some files after a commit of the branch."""
    for base, end in other.parts:
        if await work.repository.is_ancestor(end, commit):
            continue
        if (await work.repository.differing(base, end)).intersection(paths):
            return True
    return False
