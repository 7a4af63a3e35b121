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
    id, task = arguments.words
    work = require_work(id, "undo")
    refuse_running(work, "undo")
    commit = asyncio.run(_undo(work, require_landed(work, task)))
    put(
        f"Task {one_line(task)} is undone on {work.name}, in commit {commit[:12]}.\n"
        f"No check has run on the result. To merge it: atomic accept {work.short}\n"
    )
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
    await require_merges(repository, f"git revert {landed.base[:12]}..{landed.commit[:12]} on {work.name}")
    # A merge with a commit that follows the task and has the files from before it.
    reverted = await commit_tree(repository, await tree_of(repository, landed.base), [landed.commit], "Without it\n")
    merged = await merge_trees(repository, tip, reverted)
    if merged.conflicts:
        raise CliError(await _explain_conflict(work, landed, merged.conflicts))
    if merged.tree == await tree_of(repository, tip):
        raise CliError(f"Nothing is left of task {task} on {work.name}: there is nothing to undo")
    message = f"Undo task {task}: {one_line(landed.title)}\n\n{RUN_TRAILER}: {work.id}\n{UNDO_TRAILER}: {task}\n"
    commit = await commit_tree(repository, merged.tree, [tip], message)
    if not await move_branch(repository, work.name, commit, tip):
        raise CliError(f"{work.name} has moved meanwhile, and nothing was changed: atomic undo {work.short} {task}")
    return commit


async def _explain_conflict(work: RunWork, landed: Landed, conflicts: Sequence[str]) -> str:
    """Return why a task cannot be undone, with the later tasks that changed its lines."""
    position = work.branch.landed.index(landed)
    later: list[str] = []
    for one in work.branch.landed[position + 1 :]:
        changed = await work.repository.differing(one.base, one.commit)
        if changed.intersection(conflicts):
            later.append(one_line(one.task))
    advice = f"undo task {', '.join(reversed(later))} first" if later else f"git revert on {work.name} by hand"
    return (
        f"Task {one_line(landed.task)} cannot be undone, and nothing was changed: later commits of {work.name} change"
        f" the same lines of {named(conflicts)}. {advice.capitalize()}"
    )
