"""The branch of a run, for the verbs that show, merge, change or remove it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atomic.base.arguments import UsageError
from atomic.base.errors import ExitCode, did_you_mean
from atomic.cli.errors import CliError
from atomic.cli.last_run import require_logged_run
from atomic.config import atomic_home
from atomic.git import GitError, Repository, find_repository
from atomic.graph import JournalError
from atomic.sessions.facts import read_facts
from atomic.sessions.store import Session, SessionStore
from atomic.workspaces import find_checkout
from atomic.workspaces.branch_merges import find_undone, git_as_user
from atomic.workspaces.run_branch import Landed, RunBranch, parked_prefix, read_branch

DISCARDED = "discarded"  # the last part of the ref that keeps a removed branch


class RunWork(msgspec.Struct, frozen=True):
    """A run that has a branch, and the repository of the user with that branch."""

    session: Session
    branch: RunBranch
    repository: Repository

    @property
    def id(self) -> str:
        return self.session.id

    @property
    def short(self) -> str:
        return self.session.id[:8]

    @property
    def name(self) -> str:
        """Return the name of the branch."""
        return self.branch.name

    async def find_tip(self) -> str:
        """Return the commit of the branch; empty if the branch is gone."""
        return (await self.repository.git("for-each-ref", "--format=%(objectname)", self.branch.ref)).strip()

    async def require_tip(self) -> str:
        """Return the commit of the branch. Raise CliError with the way to restore it."""
        tip = await self.find_tip()
        if tip:
            return tip
        commit = await self.find_discarded() or self.branch.tip
        raise CliError(
            f"The branch {self.name} of run {self.short} is gone from {self.branch.root}: "
            f"git branch {self.name} {commit[:12]} brings it back"
        )

    async def find_discarded(self) -> str:
        """Return the commit of the branch when it was discarded last; empty if it was not."""
        kept = f"{parked_prefix(self.id)}{DISCARDED}"
        words = ("for-each-ref", "--sort=version:refname", "--format=%(objectname) %(refname)")
        listed = (await self.repository.git(*words, parked_prefix(self.id))).splitlines()
        discarded = [name for name, _, ref in (line.partition(" ") for line in listed) if _is_discarded(ref, kept)]
        return discarded[-1] if discarded else ""


def _is_discarded(ref: str, first: str) -> bool:
    """Return whether a ref keeps a removed branch: the first one, or a numbered one."""
    return ref == first or ref.removeprefix(f"{first}-").isdigit()


def require_work(id: str | None, verb: str) -> RunWork:
    """Return the run with that id and its branch; without an id the last run of this
    folder. Raises CliError, SessionError, UsageError.
    """
    session = require_logged_run() if id is None else SessionStore(atomic_home()).find(id)
    if session.record.is_conversation:
        raise CliError(f"{session.id} is a conversation: there is no branch to {verb}")
    if not session.journal_path.is_file():
        raise CliError(f"The journal of {session.id} is missing: put {session.journal_path} back, then {verb}")
    try:
        branch = read_branch(read_facts(session.journal_path, session.id))
    except JournalError as error:
        raise CliError(f"The journal of {session.id} cannot be read: {error}") from error
    if branch is None:
        raise CliError(f"Run {session.id} worked in your checkout itself: there is no branch to {verb}")
    return work_of(session, branch)


def work_of(session: Session, branch: RunBranch) -> RunWork:
    """Return a run with the repository of its branch. Raises CliError if it is gone."""
    repository = find_branch_repository(branch)
    if repository is None:
        raise CliError(f"There is no git repository in {branch.root}, where run {session.id} worked: put it back")
    return RunWork(session, branch, repository)


def find_branch_repository(branch: RunBranch) -> Repository | None:
    """Return the repository of a run's branch; None if it is gone."""
    found = find_repository(branch.root)
    # A repository in a folder above is another one.
    return found if found is not None and found.root == Path(branch.root).resolve() else None


def refuse_running(work: RunWork, verb: str) -> None:
    """Raise CliError if a process works on the run."""
    if work.session.is_owned:
        raise CliError(f"{work.id} is running: atomic stop {work.id}, then {verb}", ExitCode.OWNED)


async def refuse_checked_out(work: RunWork, verb: str) -> None:
    """Raise CliError if a checkout of the user is on the run's branch."""
    folder = await find_checkout(work.repository, work.name)
    if folder is None:
        return
    if folder.resolve() == work.repository.root.resolve():
        raise CliError(f"Your checkout {folder} is on {work.name} itself: switch to another branch, then {verb}")
    raise CliError(
        f"{work.name} is checked out in another worktree, {folder}: switch it to another branch, then {verb}"
    )


async def find_undone_of(work: RunWork) -> list[str]:
    """Return the tasks that `atomic undo` has taken out of the run's branch."""
    tip = await work.find_tip()
    return sorted(await find_undone(work.repository, work.branch, work.id, tip)) if tip else []


async def is_checked_out(repository: Repository, branch: RunBranch) -> bool:
    """Return whether any worktree of the repository is on the run's branch."""
    return await find_checkout(repository, branch.name) is not None


def require_landed(work: RunWork, task: str) -> Landed:
    """Return what a task added to the branch. Raises UsageError with the known tasks."""
    landed = {one.task: one for one in work.branch.landed}
    if task in landed:
        return landed[task]
    if not landed:
        raise UsageError(f"No task of run {work.short} is on its branch {work.name} yet")
    hint = did_you_mean(task, landed, otherwise=f"there are: {', '.join(landed)}")
    raise UsageError(f'No task "{task}" is on the branch {work.name}{hint}')


async def users_setting(repository: Repository, name: str) -> str:
    """Return a setting that the user has for all repositories, or an empty text."""
    try:
        return (await git_as_user(repository, "config", "--get", name)).strip()
    except GitError:
        return ""
