"""The merge queue of a run: put one piece of work after the other on its branch.

Works are put on top of each other one at a time. Their checks run at the same time: a
work does not wait until the ones before it are checked, but expects them to pass. If
one does not, it leaves the queue, and those that were put on top of it begin again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from atomic.workspaces.branch_record import BranchRecord
from atomic.workspaces.merging import Merged, MergeQueue, find_base, find_dropped, rebase
from atomic.workspaces.parked_work import ParkedWork
from atomic.workspaces.rebasing import Conflict
from atomic.workspaces.run_branch import Landed, Work
from atomic.workspaces.run_folders import RunFolders

ProblemT = TypeVar("ProblemT")


class _Candidate:
    """A commit to which the branch moves, if its checks pass and all before it have."""

    def __init__(self, tip: str, merged: Merged, former: _Candidate | None) -> None:
        self.tip = tip  # the commit below it: of `former`, or of the branch
        self.merged = merged
        self.former = former
        self._landed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def end(self, *, landed: bool) -> None:
        """Note whether the branch has moved to the commit."""
        self._landed.set_result(landed)

    async def has_landed(self) -> bool:
        """Wait for its end, and return whether the branch has moved to the commit."""
        await asyncio.wait({self._landed})  # others wait for it too, so it is not cancelled
        return self._landed.result()


class WorkMerges:
    """Merges work into the branch of one run."""

    def __init__(self, record: BranchRecord, folders: RunFolders, parked: ParkedWork) -> None:
        self._record = record
        self._folders = folders
        self._parked = parked
        self._queue = MergeQueue()
        self._candidates: list[_Candidate] = []  # each is on top of the one before it

    async def merge(
        self, work: Work, *, order: int, check: Callable[[str], Awaitable[ProblemT | None]] | None
    ) -> Landed | Conflict | ProblemT:
        """Put work on top of the branch, and move the branch if `check` has no problem.

        Of several that wait to be put on top, the one of the lowest order is next, and
        the branch moves in this order too.
        """
        while True:
            put = await self._put_on_top(work, order)
            done = await self._land(work, put, check) if isinstance(put, _Candidate) else put
            if done is not None:
                return done

    async def _put_on_top(self, work: Work, order: int) -> Landed | Conflict | _Candidate | None:
        """Put work on top of the last candidate, or of the branch if there is none.

        None: it must be tried again, because the work with which it has a conflict did
        not land.
        """
        async with self._queue.turn(order):
            known = await self._record.find_landed(work)
            if known is not None:
                return known
            former = self._candidates[-1] if self._candidates else None
            tip = self._record.required.tip if former is None else former.merged.commit
            await self._record.refuse_checked_out()  # before checks are run for nothing
            merged = await self._rebase(work, tip)
            if isinstance(merged, Merged):
                candidate = _Candidate(tip, merged, former)
                self._candidates.append(candidate)
                return candidate
        return merged if former is None or await former.has_landed() else None

    async def _land(
        self, work: Work, candidate: _Candidate, check: Callable[[str], Awaitable[ProblemT | None]] | None
    ) -> Landed | ProblemT | None:
        """Check a candidate, and move the branch when those before it have landed.

        Return the problem, if the check has one. None: it must be tried again, because
        the branch is not at the commit below the candidate.
        """
        merged = candidate.merged
        is_landed = False
        try:
            problem = None if check is None else await check(merged.commit)
            if candidate.former is not None and not await candidate.former.has_landed():
                return None
            if problem is not None:
                return problem
            sources = (*work.former, work.commit)
            landed = Landed(work.name, work.title, work.attempt, candidate.tip, merged.commit, merged.dropped, sources)
            is_landed = await self._record.land(landed)
            return (self._record.landed(work.name) or landed) if is_landed else None
        finally:
            self._candidates.remove(candidate)
            candidate.end(landed=is_landed)

    async def _rebase(self, work: Work, tip: str) -> Merged | Conflict:
        """Put the commits of a work on top of the tip. Raises WorkspaceError, GitError."""
        repository = self._record.repository
        if await repository.is_ancestor(tip, work.commit):  # nothing else was merged, or the worker has done it
            return Merged(work.commit, await find_dropped(repository, start=work.start, tip=tip, merged=work.commit))
        async with self._folders.temporary(f"merge-{work.name}") as workspace:
            ref = f"{self._parked.ref(work.name, work.attempt)}-merged"
            return await rebase(repository, workspace, start=work.start, result=work.commit, tip=tip, ref=ref)

    async def builds_on(self, start: str, result: str) -> str | None:
        """Return the last commit of the branch that a result builds on.

        None if that is not `start` or a later commit: the worker has left the history
        of the branch. Raises GitError.
        """
        repository = self._record.repository
        base = await find_base(repository, start=start, tip=self._record.required.tip, result=result)
        return base if base == start or await repository.is_ancestor(start, base) else None
