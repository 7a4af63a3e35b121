"""Put the commits of a task on top of the run's branch, one task at a time.

The commits are rebased in a workspace of their own. The branch moves only if it is at
the commit below them, after the caller has checked the result.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from itertools import count

import msgspec

from atomic.git import GitError, Repository
from atomic.workspaces.commit_changes import changed_files
from atomic.workspaces.rebasing import Conflict
from atomic.workspaces.workspace import Workspace

WHOLE = "(the whole change)"  # in place of a line that was dropped


class Merged(msgspec.Struct, frozen=True):
    """A commit that has the tip of the branch as an ancestor.

    `dropped` are lines that were added to the branch since the task began, and that the
    result does not have, by path.
    """

    commit: str
    dropped: dict[str, list[str]] = {}


async def find_base(repository: Repository, *, start: str, tip: str, result: str) -> str:
    """Return the last commit of a branch that the work of a task builds on.

    This is `start`, or a later commit if the worker has rebased or merged. If the
    worker has left the history of `start`, it may be an earlier one. Raises GitError.
    """
    if await repository.is_ancestor(tip, result):
        return tip
    try:
        return (await repository.git("merge-base", tip, result)).strip()
    except GitError:
        return start  # no common history


async def rebase(
    repository: Repository, workspace: Workspace, *, start: str, result: str, tip: str, ref: str
) -> Merged | Conflict:
    """Put the work of a task, which began at `start`, on top of `tip`.

    `workspace` is one that does not exist yet; `ref` will keep the new commit in the
    user's repository. Raises WorkspaceError, GitError.
    """
    base = await find_base(repository, start=start, tip=tip, result=result)
    done = await workspace.rebase(repository, onto=tip, base=base, result=result, ref=ref)
    if isinstance(done, Conflict):
        return done
    return Merged(done, await find_dropped(repository, start=start, tip=tip, merged=done))


async def find_dropped(repository: Repository, *, start: str, tip: str, merged: str) -> dict[str, list[str]]:
    """Return lines that the branch got since `start` and that a merge has taken away.

    A line that the merge adds somewhere else was moved, not dropped. Where the branch
    has changed a file without adding lines (a binary file, a mode, removed lines) and
    the file is as before, it has the one line `WHOLE`. Raises GitError.
    """
    if start == tip:
        return {}
    landed_files = await changed_files(repository, start, tip)
    merged_files = await changed_files(repository, tip, merged)
    if landed_files.keys().isdisjoint(merged_files):
        return {}
    landed = await _changed_lines(repository, start, tip)
    changed = await _changed_lines(repository, tip, merged)
    moved = sum((added for added, _ in changed.values()), Counter[str]())
    found: dict[str, list[str]] = {}
    for path, (_, removed) in changed.items():
        new = landed.get(path, _NO_LINES)[0]
        lost = Counter({line: count for line, count in (removed & new).items() if line.strip()})
        gone = lost - moved
        moved -= lost
        if gone:
            found[path] = list(gone.elements())
    for path in _reverted(landed_files, merged_files):
        if not landed.get(path, _NO_LINES)[0]:
            found[path] = [WHOLE]
    return found


_Lines = tuple[Counter[str], Counter[str]]
_NO_LINES: _Lines = Counter(), Counter()
_Versions = tuple[str, str]  # of a file: before a change and after it


async def _changed_lines(repository: Repository, old: str, new: str) -> dict[str, _Lines]:
    """Return the added and the removed lines between two commits, by path."""
    words = ("diff", "--no-renames", "--no-color", "--no-ext-diff", "--unified=0", "--no-prefix", old, new)
    found: dict[str, _Lines] = {}
    lines: _Lines = Counter(), Counter()
    header: list[str] = []
    for line in (await repository.git("-c", "core.quotePath=false", *words)).split("\n"):
        if line.startswith("diff --git "):
            header = []
            lines = Counter(), Counter()
        elif line.startswith(("--- ", "+++ ")) and len(header) < 2:
            header.append(line[4:].split("\t")[0])
            if len(header) == 2:
                path = header[1] if header[1] != "/dev/null" else header[0]
                lines = found.setdefault(path.strip('"'), lines)
        elif line.startswith("+"):
            lines[0][line[1:]] += 1
        elif line.startswith("-"):
            lines[1][line[1:]] += 1
    return found


def _reverted(landed: Mapping[str, _Versions], merged: Mapping[str, _Versions]) -> list[str]:
    """Return the files that the branch has changed, and that a merge has changed back,
    unless they were moved.
    """
    added = {new for _, new in merged.values()}
    return [path for path, (old, new) in landed.items() if merged.get(path) == (new, old) and new not in added]


class MergeQueue:
    """Lets one task through at a time, in the order of the list."""

    def __init__(self) -> None:
        self._is_busy = False
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._numbers = count()

    @asynccontextmanager
    async def turn(self, order: int) -> AsyncGenerator[None]:
        """Wait for the others."""
        await self._enter(order)
        try:
            yield
        finally:
            self._leave()

    async def _enter(self, order: int) -> None:
        if not self._is_busy:
            self._is_busy = True
            return
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (order, next(self._numbers), mine))
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():  # it was let through at the same moment
                self._leave()
            raise

    def _leave(self) -> None:
        while self._waiting:
            _, _, waiting = heapq.heappop(self._waiting)
            if not waiting.done():
                waiting.set_result(None)
                return
        self._is_busy = False
