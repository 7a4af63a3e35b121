"""Keep the work in the workspaces of a run, in the user's repository.

It is at `refs/atomic/<run>/<name>/<attempt>`. Work that was kept there before is not
replaced, but kept next to it.
"""

from __future__ import annotations

from atomic.git import Repository
from atomic.workspaces.author import find_author
from atomic.workspaces.branch_record import BranchRecord
from atomic.workspaces.capture import Captured
from atomic.workspaces.run_branch import parked_prefix
from atomic.workspaces.run_folders import file_name
from atomic.workspaces.workspace import Workspace


class ParkedWork:
    """The refs that keep the workspaces of one run."""

    def __init__(self, record: BranchRecord) -> None:
        self._record = record

    def ref(self, name: str, attempt: int | str) -> str:
        """Return the ref that keeps the work of an attempt in a workspace."""
        return f"{self._folder(name)}/{attempt}"

    def _folder(self, name: str) -> str:
        return f"{parked_prefix(self._record.run)}{file_name(name)}"

    async def park(self, workspace: Workspace, ref: str, message: str) -> Captured:
        """Keep everything in a workspace at a ref.

        No program may run in it. `message` is for files that are not committed. Raises
        WorkspaceError, GitError.
        """
        repository = self._record.repository
        author = await find_author(repository)
        former = (await repository.git("for-each-ref", "--format=%(objectname)", ref)).strip()
        if not former:
            return await workspace.capture(repository, ref, author, message)
        beside = f"{ref}-{former[:12]}"
        await repository.git("update-ref", beside, former)
        captured = await workspace.capture(repository, ref, author, message)
        if await _has_same_files(repository, former, captured.parked):
            await repository.git("update-ref", "-d", beside, former)
        return captured

    async def next_attempt(self, name: str) -> int:
        """Return a number that is not in use: nothing that is parked is replaced."""
        numbers = [int(attempt) for attempt in await self._attempts(name) if attempt.isdigit()]
        return 1 + max(numbers, default=0)

    async def next_cut(self, name: str, attempt: int) -> str:
        """Return a free name for the work of a process that was killed in an attempt."""
        prefix = f"{attempt}-cut-"
        cuts = [one for one in await self._attempts(name) if one.startswith(prefix)]
        return f"{prefix}{len(cuts) + 1}"

    async def _attempts(self, name: str) -> list[str]:
        """Return the last parts of the refs that keep a workspace."""
        folder = f"{self._folder(name)}/"
        listed = await self._record.repository.git("for-each-ref", "--format=%(refname)", folder)
        return [ref.removeprefix(folder) for ref in listed.splitlines()]


async def _has_same_files(repository: Repository, one: str, other: str) -> bool:
    """Return whether two parked commits and their parents have the same files."""
    trees = [
        await repository.git("log", "--no-walk=unsorted", "--format=%T", name, f"{name}^@") for name in (one, other)
    ]
    return trees[0] == trees[1]
