"""The branch of a run: its record in the run's journal, and the ref.

The record is written before the ref moves. After a kill in between, the next process
completes the move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from atomic.base.errors import AtomicError
from atomic.git import Repository, find_repository
from atomic.workspaces.branch_moves import BranchCheckedOutError, move_branch, refuse_checked_out
from atomic.workspaces.isolation import Isolation
from atomic.workspaces.run_branch import FACT, AcceptResult, Landed, RunBranch, Work, branch_name, read_branch

STARTS = "workspaces"  # the fact with the commit at which each workspace began, by name


class BranchMovedError(AtomicError):
    """The branch of a run is not where Atomic left it, and not ahead of that, or it may
    not move.
    """

    code = "branch_changed"


class BranchRecord:
    """Reads, makes and moves the branch of one run."""

    def __init__(self, run: str, facts: Mapping[str, Any], keep: Callable[[str, Any], None]) -> None:
        """Describe it; nothing is read yet. `keep` adds a value to the `facts`."""
        self.run = run
        self._facts = facts
        self._keep = keep
        self._landing = asyncio.Lock()  # the record names one move at a time

    @property
    def branch(self) -> RunBranch | None:
        """Return the branch; None if the run has no workspaces."""
        return read_branch(self._facts)

    @property
    def required(self) -> RunBranch:
        found = self.branch
        assert found is not None, "`begin` comes first"
        return found

    @property
    def repository(self) -> Repository:
        """Return the user's repository. Raises BranchMovedError if it is gone."""
        found = find_repository(self.required.root)
        if found is None:
            raise BranchMovedError(
                f"The repository in {self.required.root} is gone: restore it, then atomic resume {self.run}"
            )
        return found

    @property
    def isolation(self) -> Isolation:
        """Return how the workers of the run are kept apart."""
        branch = self.required
        return Isolation(branch.kind, branch.own_user, branch.reasons, branch.guarded)

    @property
    def starts(self) -> dict[str, str]:
        """Return the commit at which each workspace began, by name."""
        return {**self._facts.get(STARTS, {})}

    def note_start(self, name: str, start: str | None) -> None:
        """Record where a workspace begins; None: it is removed."""
        known = self.starts
        starts = {other: commit for other, commit in known.items() if other != name}
        if start is not None:
            starts[name] = start
        if starts != known:
            self._keep(STARTS, starts)

    async def make(
        self, repository: Repository, isolation: Isolation, *, start: str, first: str, upstream: str, setup: str
    ) -> RunBranch:
        """Make the branch at `first`, or move it there if no work was done on it.

        Raises BranchMovedError if it is not the run's own.
        """
        branch = RunBranch(
            name=branch_name(self.run),
            kind=isolation.kind,
            root=str(repository.root),
            start=start,
            first=first,
            tip=first,
            upstream=upstream.removeprefix("refs/heads/"),
            own_user=isolation.own_user,
            guarded=isolation.guarded,
            reasons=isolation.reasons,
            setup=setup,
        )
        await _refuse_parents(repository, branch.name)
        current = await _commit_of(repository, branch)
        known = self.branch
        # A branch that is not known could be the user's, so it is recorded before it is made.
        ours = ("",) if known is None else ("", first, known.first, known.replaced)
        if current not in ours:
            raise _exists(branch.name)
        # If Atomic is killed now, the next start still knows the commit as its own.
        branch = msgspec.structs.replace(branch, replaced=current)
        self._keep(FACT, branch)
        if not await self._move(repository, branch, first, current or "0" * len(first)):
            raise _exists(branch.name)
        return branch

    async def tip(self) -> str:
        """Return the last commit of the branch.

        Commits that were added to it since count. Raises BranchMovedError.
        """
        branch = self.required
        current = await _commit_of(self.repository, branch)
        if current == branch.tip:
            return current
        # Atomic was killed before it had made the branch, or has removed it unused.
        if not current and STARTS not in self._facts:
            if not await self._move(self.repository, branch, branch.first, "0" * len(branch.first)):
                raise _exists(branch.name)
            return branch.first
        if current and await self.repository.is_ancestor(branch.tip, current):
            landing = self.required.landing  # a merge may have recorded it since
            is_landing = landing is not None and await self.repository.is_ancestor(landing.commit, current)
            branch = self.required
            if branch.tip == current:  # a task has landed since
                return current
            if landing is not None and is_landing:
                self._note_landed(landing, current)  # Atomic was killed when it had moved the branch
            else:
                self._keep(FACT, msgspec.structs.replace(branch, tip=current))
            return current
        what = f"points to {current[:12]}" if current else "was deleted"
        raise BranchMovedError(
            f"The branch {branch.name} {what}: Atomic left it at {branch.tip[:12]}. To continue from there: "
            f"git branch -f {branch.name} {branch.tip[:12]} && atomic resume {self.run}"
        )

    async def remove_unused(self) -> None:
        """Remove the branch if no workspace was ever made of it. A resume makes it again.

        Raises BranchMovedError, GitError.
        """
        branch = self.branch
        if branch is None or STARTS in self._facts:
            return
        words = ("for-each-ref", "--format=%(objectname) %(worktreepath)", branch.ref)
        current, _, checkout = (await self.repository.git(*words)).strip().partition(" ")
        if current == branch.first and not checkout:
            await self.repository.git("update-ref", "-d", branch.ref, current)

    async def find_landed(self, work: Work) -> Landed | None:
        """Return the commits of a work on the branch, if they are there, or if Atomic was
        killed when it was about to move the branch to them.
        """
        await self.tip()
        known = self.landed(work.name)
        if known is not None and work.commit in known.sources:
            return known
        landing = self.required.landing
        if landing is None or landing.task != work.name or work.commit not in landing.sources:
            return None
        return landing if await self.land(landing) else None

    def landed(self, name: str) -> Landed | None:
        """Return what a task has added to the branch."""
        return next((one for one in self.required.landed if one.task == name), None)

    async def land(self, landed: Landed) -> bool:
        """Move the branch to the commit of a task. Return whether it was still at the
        commit before.
        """
        async with self._landing:
            return await self._land(landed)

    async def _land(self, landed: Landed) -> bool:
        tip = await self.tip()
        is_there = await self.repository.is_ancestor(landed.commit, tip)
        if not is_there and tip != landed.base:
            return False
        if not is_there:
            await self.refuse_checked_out()
            # If Atomic is killed now, `tip` and `find_landed` complete the move.
            self._keep(FACT, msgspec.structs.replace(self.required, landing=landed))
            if not await self._move(self.repository, self.required, landed.commit, tip):
                self._keep(FACT, msgspec.structs.replace(self.required, landing=None))
                return False
        self._note_landed(landed, tip if is_there else landed.commit)
        return True

    async def refuse_checked_out(self) -> None:
        """Raise BranchMovedError if a checkout of the user is on the branch: it cannot
        move.
        """
        branch = self.required
        try:
            await refuse_checked_out(self.repository, branch.name, upstream=branch.upstream)
        except BranchCheckedOutError as error:
            raise self._paused(error) from error

    async def _move(self, repository: Repository, branch: RunBranch, new: str, old: str) -> bool:
        try:
            return await move_branch(repository, branch.name, new, old, upstream=branch.upstream)
        except BranchCheckedOutError as error:
            raise self._paused(error) from error

    def _paused(self, error: BranchCheckedOutError) -> BranchMovedError:
        return BranchMovedError(f"{error}. Leave it ({error.switch}), then atomic resume {self.run}")

    def _note_landed(self, landed: Landed, tip: str) -> None:
        branch = self.required
        others = [one for one in branch.landed if one.task != landed.task]
        former = self.landed(landed.task)
        if former is not None:  # it has landed before, and continues
            landed = _joined(former, landed)
        accepted = branch.accept_result if tip == branch.tip else None  # it was without this commit
        new = msgspec.structs.replace(branch, tip=tip, landed=(*others, landed), landing=None, accept_result=accepted)
        self._keep(FACT, new)

    def keep_accept_result(self, result: AcceptResult) -> None:
        """Record whether the branch was merged into the user's."""
        self._keep(FACT, msgspec.structs.replace(self.required, accept_result=result))


def _joined(former: Landed, landed: Landed) -> Landed:
    """Return all that a task has added, its former parts included."""
    sources = tuple(dict.fromkeys((*former.sources, *landed.sources)))
    landed = msgspec.structs.replace(landed, sources=sources)
    if landed.commit in (landed.base, former.commit):  # nothing new
        return msgspec.structs.replace(landed, base=former.base, commit=former.commit, former=former.former)
    if landed.base == former.commit:
        return msgspec.structs.replace(landed, base=former.base, former=former.former)
    return msgspec.structs.replace(landed, former=former.parts)


async def _commit_of(repository: Repository, branch: RunBranch) -> str:
    """Return the commit of a branch; empty if it does not exist."""
    return (await repository.git("for-each-ref", "--format=%(objectname)", branch.ref)).strip()


async def _refuse_parents(repository: Repository, branch: str) -> None:
    """Raise BranchMovedError if a branch has the name of a folder of this one: git keeps
    one name as a file, the other one as a folder.
    """
    folder = branch.rpartition("/")[0]
    found = (await repository.git("for-each-ref", "--format=%(refname)", f"refs/heads/{folder}")).splitlines()
    if f"refs/heads/{folder}" in found:
        raise BranchMovedError(
            f'Your branch "{folder}" leaves no room for {branch}, the branch of this run: rename it '
            f"(git branch -m {folder} NAME), or give --isolate none"
        )


def _exists(branch: str) -> BranchMovedError:
    return BranchMovedError(f"The branch {branch} exists already: rename it (git branch -m {branch} NAME), then resume")
