"""Run the checks on known files, find checks in a project that had none, and turn red
checks into a task.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from itertools import count
from pathlib import Path
from typing import TypeVar

import msgspec

from atomic.base.terminal import one_line
from atomic.git import FolderSnapshot, GitError, find_repository
from atomic.loading.project_check import CheckCommand
from atomic.processes import ExecError
from atomic.ralph.checkout import Checkout
from atomic.ralph.checks import NOT_FOUND
from atomic.ralph.evidence import CheckResult
from atomic.ralph.file_copies import content_of
from atomic.ralph.options import project_check
from atomic.ralph.prompts import check_output
from atomic.ralph.run_folder import Ralph, RunFolder
from atomic.ralph.state import RalphState
from atomic.ralph.turn_changes import is_cache, keep_alive
from atomic.tasks import Task
from atomic.workflows.task_loop import COMES_FIRST
from atomic.workspaces import View, restore_files_in, tracked_files_in

ResultT = TypeVar("ResultT")
MAX_RUNS = 3  # of the checks, if files change while they run


class Checked(msgspec.Struct, frozen=True):
    """The results of the checks, the files after them, and the files that changed while
    they ran.
    """

    results: Sequence[CheckResult]
    after: FolderSnapshot
    moved: Sequence[str] = ()
    deleted: Sequence[str] = ()  # committed files that the checks removed
    rewritten: Sequence[str] = ()  # files of a commit that the checks changed in their own workspace
    tree_after: str = ""  # of that workspace, after the checks

    @property
    def red(self) -> list[CheckResult]:
        """Return the checks that block a task."""
        return [one for one in self.results if one.blocking and one.exit_code != 0 and not one.tolerated]

    def missing(self, run: RunFolder) -> list[CheckResult]:
        """Return the red checks that must be green at the end."""
        red = [one for one in self.results if one.exit_code != 0 and not one.tolerated]
        return [one for one in red if run.checks.must_pass(one.command)]

    def is_green(self, run: RunFolder) -> bool:
        """Return whether checks ran and leave nothing to do.

        A tree without checks is not green: one may come later.
        """
        return bool(self.results) and not self.moved and not self.missing(run)


async def check_tree(
    run: RunFolder, *, now: FolderSnapshot | None = None, runs: int = 1, work: Collection[str] = ()
) -> Checked:
    """Run the checks, and again, up to `runs` times, while files change that checks do
    not write.

    `now`: a snapshot that the caller has just taken. Only Atomic's own code may have
    run since. `work`: files that the task has changed. What is committed of these and
    of other tasks' files is never taken for a file that checks write, nor is a committed
    file that a check deletes.
    """
    if run.is_isolated:
        return await check_commit(run, now or await run.current())
    work = work_of(run).union(work)
    while True:
        runs -= 1
        before = now or await run.snapshots.take()
        now = None
        results, after = await watch_checks(run, before, lambda: run.checks.check(run.cwd, run.options.gate_timeout))
        changes = await run.snapshots.changes(before, after)
        moved = [one.path for one in changes if not is_cache(one.path)]
        committed = await _committed(run, moved)
        known = {*run.checks.leftovers} - work
        deleted = [one.path for one in changes if one.status == "deleted" and one.path in committed - known]
        run.checks.note_deleted(deleted)
        if moved and run.checks.is_learning:
            run.checks.note_leftovers({*moved} - (committed & work) - {*deleted})
        known = {*run.checks.leftovers}
        moved = [path for path in moved if path not in known]
        if not moved or runs <= 0:
            return Checked(results, after, moved, deleted)


async def check_commit(run: RunFolder, snapshot: FolderSnapshot) -> Checked:
    """Run the checks in a new workspace of a commit: no file of a worker is there that
    is not in the commit.

    If git cannot read the files after the checks, they run once more in another
    workspace. If it cannot then either, they are red: it is not known what they prove.
    """
    try:
        return await _check_once(run, snapshot)
    except _UnknownFilesError as first:
        if first.is_red:
            return Checked([_without_proof(one, first.reason) for one in first.results], snapshot)
    try:
        return await _check_once(run, snapshot)
    except _UnknownFilesError as again:
        return Checked([_without_proof(one, again.reason) for one in again.results], snapshot)


class _UnknownFilesError(Exception):
    """Git cannot read the files of the workspace in which checks have run."""

    def __init__(self, results: Sequence[CheckResult], reason: str) -> None:
        super().__init__(reason)
        self.results = results
        self.reason = reason

    @property
    def is_red(self) -> bool:
        return any(one.exit_code != 0 and not one.tolerated for one in self.results)


async def _check_once(run: RunFolder, snapshot: FolderSnapshot) -> Checked:
    assert snapshot.head is not None
    base = await run.workspaces.base()
    async with run.timed("check"), run.workspaces.fresh(f"check-{snapshot.head[:12]}", snapshot.head) as view:
        results = await run.checks.check(run.cwd, run.options.gate_timeout, view=view)
        try:
            after, rewritten = await tracked_files_in(view, base.folder, snapshot.head)
        except (GitError, ExecError, OSError) as error:
            raise _UnknownFilesError(results, str(error)) from error
    return Checked(results, snapshot, rewritten=rewritten, tree_after=after)


def _without_proof(result: CheckResult, reason: str) -> CheckResult:
    """Return a green result as a red one that says why it proves nothing."""
    if result.exit_code != 0 and not result.tolerated:
        return result
    said = (
        f"{result.output_tail.rstrip()}\n\nThe command ended with exit code {result.exit_code}, but afterwards git"
        f" cannot read the files on which it ran ({one_line(reason)}), so it proves nothing. A check, and the programs"
        " that it starts, must leave .git as it is."
    )
    return msgspec.structs.replace(result, exit_code=1, tolerated=False, unreadable=True, output_tail=said.lstrip())


async def check_with_former_files(
    run: RunFolder, commit: str, start: str, paths: Sequence[str]
) -> Sequence[CheckResult]:
    """Run the checks on a commit, with these files as they are in `start`.

    They decide what the checks do: a task may have made a check weaker.
    """
    name = f"former-{commit[:12]}"
    async with run.timed("check"), run.workspaces.fresh(name, commit) as view:
        await restore_files_in(view, start, paths)
        return await run.checks.check_once(run.cwd, run.options.gate_timeout, view)


def work_of(run: RunFolder) -> set[str]:
    """Return the files that are evidence of a task."""
    return {path for proof in run.evidence.values() for path in proof.changed_files}


async def deleted_by_checks(run: RunFolder) -> list[str]:
    """Return the committed files that checks have deleted and that are still gone."""
    repository = find_repository(run.cwd)
    root = run.cwd if repository is None else repository.root
    gone = [path for path in run.checks.deleted if content_of(root / path) == "deleted"]
    return sorted(await _committed(run, gone))


async def _committed(run: RunFolder, paths: Collection[str]) -> set[str]:
    """Return which of these files the last commit has.

    Others may be outputs, which a check may write and remove.
    """
    repository = find_repository(run.cwd)
    if not paths or repository is None or (await repository.head())[0] is None:
        return set()
    words = ("ls-tree", "-r", "-z", "--name-only", "--full-tree", "HEAD", "--")
    return set((await repository.git(*words, *paths)).split("\0")[:-1])


def deleting(paths: Sequence[str]) -> str:
    """Return the sentence about files that a check has deleted, and what to do."""
    named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    return (
        f"the checks deleted committed files: {named}. Bring them back and repair the check, or leave them deleted,"
        " then resume"
    )


async def watch_checks(
    run: RunFolder, before: FolderSnapshot, checks: Callable[[], Awaitable[ResultT]]
) -> tuple[ResultT, FolderSnapshot]:
    """Run checks, compare the user's files, and return the result and a snapshot after
    the checks.
    """
    checkout = Checkout(run)
    await checkout.begin_checks(before)
    try:
        with keep_alive(run.session):
            async with run.timed("check"):
                result = await checks()
    finally:
        after = await checkout.end_checks(before)
    return result, after


async def moved_files(run: RunFolder, before: FolderSnapshot, after: FolderSnapshot) -> list[str]:
    """Return the files that differ, except Python caches."""
    return [one.path for one in await run.snapshots.changes(before, after) if not is_cache(one.path)]


def moving(paths: Sequence[str], when: str) -> str:
    """Return why a run cannot be completed while its files keep changing."""
    named = ", ".join(paths[:5]) + (f" and {len(paths) - 5} more" if len(paths) > 5 else "")
    return (
        f"files changed {when}, three times in a row: {named}. They are not the files that were checked and reviewed:"
        " find out which program changes them (a reviewer, a formatter, a server), stop it, and resume"
    )


async def is_known_green(run: RunFolder, state: RalphState, now: FolderSnapshot) -> bool:
    """Return whether all checks that count were green on exactly these files."""
    if now.tree in {snapshot.tree for snapshot in state.checked.values()}:
        return True
    checks = run.checks
    for check in checks.chosen:
        if checks.must_pass(check.command) and checks.baseline.get(check.command) != 0:
            return False
    return state.start is not None and not await moved_files(run, state.start, now)


def repair_task(run: RunFolder, red: Sequence[CheckResult]) -> Task:
    """Return a task for red checks. No other task begins before it is done."""
    known = {task.id for task in run.tasks.tasks}  # a list may have a task of such a name
    number = next(number for number in count(1) if f"check-{number}" not in known)
    metadata = {"role": "fixer", "repairs": "checks", "red": said_of(red), COMES_FIRST: True}
    return Task(f"check-{number}", "Make the checks pass", check_output(red), priority=0, metadata=metadata)


def said_of(results: Sequence[CheckResult]) -> str:
    """Return how checks ended, in one line."""
    return "; ".join(f"{one.command} {_ended(one)}" for one in results)


def _ended(result: CheckResult) -> str:
    if result.steered:
        return f"does not count: {', '.join(result.steered[:5])}, above the project, has changed since the run began"
    if result.timed_out:
        return "took too long"
    if result.exit_code == NOT_FOUND:
        return f"was not found (exit code {NOT_FOUND})"
    if result.unreadable:
        return "left files that git cannot read"
    return f"ended with exit code {result.exit_code}"


async def look_for_check(ctx: Ralph, run: RunFolder) -> None:
    """Take the check of a project that had none when the run began."""
    if run.checks.chosen:
        return
    found = await _find_check(run)
    if found is None:
        return
    if not ctx.deps.trusted and not await _is_new(ctx, run, found):
        if run.checks.refuse(found.command):
            run.say(
                f"{found.command} ({found.origin}) is not run: that file existed before the run, and the project is "
                "not approved (atomic trust); --verify COMMAND gives a check that needs no approval"
            )
        return
    run.checks.add_late(found)
    run.say(f"check: {found.command} (found in {found.origin}); it must be green at the end")


async def _find_check(run: RunFolder) -> CheckCommand | None:
    project = _project(run)
    if not run.is_isolated:
        return await asyncio.to_thread(project_check, project, str(run.cwd))
    async with run.workspaces.files_of(await run.tip()) as copy:
        view = View(copy, run.workspaces.repository.root)
        return await asyncio.to_thread(project_check, str(view.path_of(Path(project))), str(view.path_of(run.cwd)))


async def _is_new(ctx: Ralph, run: RunFolder, found: CheckCommand) -> bool:
    """Return whether this run added the file that defines a check: agents could have
    run it themselves.
    """
    start = ctx.state.start
    assert start is not None  # `prepare` has taken it
    changes = await run.snapshots.changes(start, await run.current())
    path = await asyncio.to_thread(_path_of, run, found)
    return any(one.path == path and one.status == "added" for one in changes)


def _path_of(run: RunFolder, found: CheckCommand) -> str:
    """Return the file that defines a check, relative to the root of the repository."""
    repository = find_repository(run.cwd)
    root = run.cwd if repository is None else repository.root
    return os.path.relpath(os.path.realpath(os.path.join(_project(run), found.origin)), os.path.realpath(root))


def _project(run: RunFolder) -> str:
    return run.options.project or str(run.cwd)
