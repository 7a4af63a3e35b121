"""What a run has parked: workspaces as commits below `refs/atomic/<run>/`.

`atomic salvage` lists and restores it, `atomic sessions prune` removes it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from atomic.base.arguments import UsageError
from atomic.base.errors import did_you_mean
from atomic.base.terminal import one_line
from atomic.base.text import local_time
from atomic.cli.errors import CliError
from atomic.cli.run_branches import RunWork, find_branch_repository, is_checked_out
from atomic.cli.streams import json_line, put, put_table, readable, tell
from atomic.config import WorkspaceSettings, atomic_home
from atomic.git import GitError, Repository
from atomic.graph import JournalError, RunOwnedError
from atomic.processes.temporary_folders import temporary_prefix
from atomic.sessions.facts import Facts
from atomic.sessions.model import SessionStatus
from atomic.sessions.started import believe_journal
from atomic.workspaces import (
    WITH_OTHERS,
    BranchMovedError,
    RunWorkspaces,
    WorkspaceError,
    remove_tree,
    size_of,
    unparked_in,
)
from atomic.workspaces.branch_merges import git_as_user
from atomic.workspaces.run_branch import RunBranch, parked_prefix

WORKSPACES = "workspaces"  # below ATOMIC_HOME
_FORM = "%00".join(
    ("%(refname)", "%(objectname)", "%(parent)", "%(committerdate:unix)", "%(contents:subject)"),
)


class Parked(msgspec.Struct, frozen=True):
    """A parked workspace. `others` are its index, stashes and other branches."""

    ref: str
    name: str  # TASK/ATTEMPT, or `discarded`
    commit: str
    result: str  # the commit of the worker
    time: int
    subject: str
    others: tuple[str, ...] = ()

    @property
    def task(self) -> str:
        return self.name.partition("/")[0]

    @property
    def attempt(self) -> str:
        return self.name.partition("/")[2]


async def list_parked(repository: Repository, run: str) -> list[Parked]:
    """Return the parked work of a run, by task and attempt."""
    prefix = parked_prefix(run)
    listed = await repository.git("for-each-ref", "--sort=version:refname", f"--format={_FORM}", prefix)
    found: list[Parked] = []
    # A worker's subject may have other characters that end a line for `splitlines`.
    for line in listed.removesuffix("\n").split("\n") if listed else ():
        ref, commit, parents, time, subject = line.split("\0")
        result, *others = (commit,)
        if subject.endswith(WITH_OTHERS) and " " in parents:
            result, *others = parents.split()
            subject = subject.removesuffix(WITH_OTHERS)
        found.append(Parked(ref, ref.removeprefix(prefix), commit, result, int(time), subject, tuple(others)))
    return found


def park_left(work: RunWork) -> bool:
    """Park the work that a stopped run has left in workspaces.

    Return whether there was any, and all is parked; say what cannot be parked.
    """
    session = work.session
    if not unparked_in(atomic_home() / WORKSPACES / work.id):
        return False
    believe_journal(session)
    try:
        with closing(session.journal()) as journal:
            facts = Facts(session.dir, session.redactor)
            facts.open(journal, session.id)  # no resume may use them until it is closed
            project = Path(session.record.cwd or work.branch.root)
            workspaces = RunWorkspaces(work.id, atomic_home(), facts, facts.set, project, WorkspaceSettings())
            asyncio.run(workspaces.park_left(is_over=_is_over(work)))
    except (WorkspaceError, GitError, JournalError, RunOwnedError, BranchMovedError, OSError) as error:
        tell(f"work of {work.id} cannot be parked: {one_line(str(error))}")
        return False
    return True


def _is_over(work: RunWork) -> bool:
    return work.session.record.status is SessionStatus.CANCELLED


async def show_parked(work: RunWork, *, as_json: bool) -> None:
    """Print the parked work of a run."""
    rows: list[tuple[str, ...]] = []
    objects: list[dict[str, Any]] = []
    for one in await list_parked(work.repository, work.id):
        files = sorted(await _changed_files(work, one))
        rows.append((one.name, local_time(one.time), _count(len(files)), one.subject))
        objects.append(
            {
                "task": one.task,
                "attempt": one.attempt,
                "ref": one.ref,
                "commit": one.commit,
                "time": one.time,
                "subject": readable(one.subject),
                "files": [readable(path) for path in files],
                "others": one.others,
            }
        )
    if as_json:
        put(json_line(objects))
        return
    put_table(rows, empty=f"Run {work.short} has nothing parked.\n")
    for folder in unparked_in(atomic_home() / WORKSPACES / work.id):
        then = "" if _is_over(work) else f" (atomic resume {work.short} continues it)"
        put(f"Not parked: the work in {one_line(str(folder))}{then}\n")
    if rows:
        put(f"\natomic salvage {work.short} TASK[/ATTEMPT] writes the files of one to a new folder.\n")


async def _changed_files(work: RunWork, parked: Parked) -> set[str]:
    """Return the files that were changed in a parked workspace since it began."""
    repository = work.repository
    files = await repository.differing(await _base_of(work, parked), parked.result)
    parents = (await repository.git("log", "-1", "--format=%P", parked.result)).split()
    if files or len(parents) < 2:
        return {*files}
    # A merge that has the same files as the branch has still changed those of the task.
    return {*await repository.differing(parents[0], parked.result)}


async def _base_of(work: RunWork, parked: Parked) -> str:
    """Return the commit that a parked workspace began with."""
    branch = work.branch
    for landed in branch.landed:
        for base, commit in landed.parts:
            if landed.task == parked.task and await _has(work, commit, parked.result):
                return base  # its result is on the branch
    try:
        base = (await work.repository.git("merge-base", parked.result, branch.tip)).strip()
    except GitError:  # the branch and its commits are gone
        return branch.first
    return branch.first if base == parked.result else base


async def _has(work: RunWork, commit: str, other: str) -> bool:
    """Return whether a commit has the other one in its history."""
    try:
        return await work.repository.is_ancestor(other, commit)
    except GitError:
        return False


async def restore_parked(work: RunWork, name: str, to: str | None) -> None:
    """Write the files of a parked workspace to a new folder, and list its other commits."""
    parked = _choose(work, await list_parked(work.repository, work.id), name)
    target = _require_folder(work, parked, to)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        number = await _write_files(work.repository, parked.commit, target)
    except OSError as error:
        reason = error.strerror or error
        raise CliError(f"{target} cannot be written: {reason}. Give another folder with --to DIR") from error
    put(f"{_count(number)} of {parked.name} ({parked.commit[:12]}): {one_line(str(target))}\n")
    if not parked.others:
        return
    put("Also kept, to look at with git show or git cherry-pick:\n")
    words = ("log", "--no-walk=unsorted", "--format=%s", *parked.others)
    subjects = (await work.repository.git(*words)).splitlines()
    put_table((f"  {parked.ref}^{place}", subject) for place, subject in enumerate(subjects, start=2))


def _count(files: int) -> str:
    return f"{files} file{'' if files == 1 else 's'}"


def _choose(work: RunWork, parked: list[Parked], given: str) -> Parked:
    """Return the parked workspace with this name, or the last attempt at this task."""
    for one in parked:
        if one.name == given:
            return one
    attempts = [one for one in parked if one.task == given]
    if attempts:
        numbered = [one for one in attempts if one.attempt.isdigit()]
        return (numbered or attempts)[-1]
    names = [one.name for one in parked]
    if work.repository.root.joinpath(given).exists():
        raise UsageError(
            f'Nothing is parked as "{given}": paths are for runs in the checkout, and this one has a branch. Give a '
            f"TASK: {', '.join(names)}"
        )
    hint = did_you_mean(given, [*names, *(one.task for one in parked)], otherwise=f"there are: {', '.join(names)}")
    raise UsageError(f'Nothing is parked as "{given}"{hint if names else ""}')


def _require_folder(work: RunWork, parked: Parked, to: str | None) -> Path:
    """Return the folder to write: the given one, or one next to the project.

    Raises UsageError if there are files in it.
    """
    root = work.repository.root
    target = root.with_name(f"{root.name}-salvage-{parked.name.replace('/', '-')}")
    if to is not None:
        target = Path(to).absolute()
    is_empty = target.is_dir() and not any(target.iterdir())
    if os.path.lexists(target) and not is_empty:
        raise UsageError(f"{target} exists and is not an empty folder: give another one with --to DIR")
    return target


async def _write_files(repository: Repository, commit: str, target: Path) -> int:
    """Write the files of a commit to a folder that is complete when it has its name.

    Return their number.
    """
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix=".atomic-salvage-"))
    try:
        files = made / "files"
        files.mkdir()
        with TemporaryDirectory(prefix=temporary_prefix("index")) as folder:
            index = str(Path(folder) / "index")
            await repository.git("read-tree", commit, env={"GIT_INDEX_FILE": index})
            await git_as_user(repository, "checkout-index", "--all", f"--prefix={files}/", GIT_INDEX_FILE=index)
            listed = await repository.git("ls-files", "-z", env={"GIT_INDEX_FILE": index})
        files.rename(target)
    finally:
        shutil.rmtree(made)
    return listed.count("\0")


class KeptWork(msgspec.Struct, frozen=True):
    """What a run with a branch has left outside of its session's folder."""

    branch: RunBranch
    repository: Repository | None  # None: the user has removed it
    refs: tuple[str, ...]
    folder: Path
    size: int  # bytes of the folder, and of objects that only the refs have
    is_merged: bool = False  # another branch has the commits of the run's branch, so it is removed too


async def find_kept(run: str, branch: RunBranch, home: Path) -> KeptWork:
    """Find the parked work and the workspaces of a run. Raises GitError."""
    repository = find_branch_repository(branch)
    folder = home / WORKSPACES / run
    size = size_of(folder) if folder.is_dir() else 0
    refs: tuple[str, ...] = ()
    if repository is not None:
        refs = tuple(one.ref for one in await list_parked(repository, run))
    if repository is not None and refs:
        words = ("rev-list", "--disk-usage", "--objects", *refs, "--not", "--branches", "--remotes", "--tags")
        size += int(await repository.git(*words))
    merged = "" if repository is None else await _find_merged(repository, branch)
    return KeptWork(branch, repository, refs, folder, size, bool(merged))


async def _find_merged(repository: Repository, branch: RunBranch) -> str:
    """Return the commit of a run's branch if it can be removed: another branch or tag
    has it, and it is not checked out. Empty otherwise.
    """
    tip = (await repository.git("for-each-ref", "--format=%(objectname)", branch.ref)).strip()
    if not tip:
        return ""
    words = ("for-each-ref", "--format=%(refname)", "--contains", tip, "refs/heads", "refs/remotes", "refs/tags")
    having = (await repository.git(*words)).splitlines()
    if having == [branch.ref] or await is_checked_out(repository, branch):
        return ""
    return tip


async def remove_kept(kept: KeptWork) -> str:
    """Remove parked work, workspaces, and the branch if another one has its commits.

    Return the name of the branch if it stays. Raises GitError, OSError.
    """
    remove_tree(kept.folder)
    repository = kept.repository
    if repository is None:
        return ""
    orders = "".join(f"delete {ref}\n" for ref in kept.refs)
    await repository.git("update-ref", "--stdin", input=orders)
    branch = kept.branch
    if not (await repository.git("for-each-ref", "--format=%(objectname)", branch.ref)).strip():
        return ""
    merged = await _find_merged(repository, branch)
    if not merged:
        return branch.name
    await repository.git("update-ref", "-d", branch.ref, merged)
    return ""
