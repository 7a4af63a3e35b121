"""The merge queue of a run: put one piece of work after the other on its branch."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

from atomic.workspaces.branch_record import BranchRecord
from atomic.workspaces.merging import Merged, MergeQueue, find_base, find_dropped, rebase
from atomic.workspaces.parked_work import ParkedWork
from atomic.workspaces.rebasing import Conflict
from atomic.workspaces.run_branch import Landed, Work
from atomic.workspaces.run_folders import RunFolders

ProblemT = TypeVar("ProblemT")


class WorkMerges:
    """Merges work into the branch of one run, one at a time."""

    def __init__(self, record: BranchRecord, folders: RunFolders, parked: ParkedWork) -> None:
        self._record = record
        self._folders = folders
        self._parked = parked
        self._queue = MergeQueue()

    def turn(self, order: int) -> AbstractAsyncContextManager[None]:
        """Wait until no other work is merged. The lowest order that waits is next."""
        return self._queue.turn(order)

    async def merge(
        self, work: Work, *, order: int, check: Callable[[str], Awaitable[ProblemT | None]] | None
    ) -> Landed | Conflict | ProblemT:
        """Put work on top of the branch, and move the branch if `check` has no problem."""
        async with self.turn(order):
            known = await self._record.find_landed(work)
            if known is not None:
                return known
            while True:
                tip = await self._record.tip()
                await self._record.refuse_checked_out()  # before checks are run for nothing
                merged = await self._rebase(work, tip)
                if isinstance(merged, Conflict):
                    return merged
                problem = None if check is None else await check(merged.commit)
                if problem is not None:
                    return problem
                sources = (*work.former, work.commit)
                landed = Landed(work.name, work.title, work.attempt, tip, merged.commit, merged.dropped, sources)
                if await self._record.land(landed):
                    return self._record.landed(work.name) or landed

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
