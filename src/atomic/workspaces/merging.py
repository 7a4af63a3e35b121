"""Put the commits of a task on top of the run's branch, one task at a time.

The commits are rebased in a workspace of the branch's tip. The branch moves only if it
is still at that tip, after the caller has checked the result.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from atomic.git import GitError, Repository
from atomic.workspaces.workspace import Conflict, Workspace


class Merged(msgspec.Struct, frozen=True):
    """A commit that has the tip of the branch as an ancestor.

    `dropped` are lines that were added to the branch since the task began, and that the
    result does not have, by path.
    """

    commit: str
    dropped: dict[str, list[str]] = {}


async def rebase(
    repository: Repository, workspace: Workspace, *, start: str, result: str, tip: str, ref: str
) -> Merged | Conflict:
    """Put the commits of a task, `start` to `result`, on top of `tip`.

    `workspace` is a new one at `tip`; `ref` will keep the new commit in the user's
    repository. Raises WorkspaceError, GitError.
    """
    if start == tip:
        return Merged(result)
    done = await workspace.rebase(repository, start=start, result=result, ref=ref)
    if isinstance(done, Conflict):
        return done
    return Merged(done, await find_dropped(repository, start=start, tip=tip, merged=done))


async def find_dropped(repository: Repository, *, start: str, tip: str, merged: str) -> dict[str, list[str]]:
    """Return lines that the branch got since `start` and that a merge has taken away.

    A line that the merge adds again in the same file was moved, not dropped. Raises
    GitError.
    """
    landed = await _changed_lines(repository, start, tip)
    changed = await _changed_lines(repository, tip, merged)
    found: dict[str, list[str]] = {}
    for path, (added, removed) in changed.items():
        new = landed.get(path, (Counter(), Counter()))[0]
        lost = (removed & new) - added
        lines = [line for line in lost.elements() if line.strip()]
        if lines:
            found[path] = lines
    return found


_Lines = tuple[Counter[str], Counter[str]]


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


async def move_branch(repository: Repository, branch: str, new: str, old: str) -> bool:
    """Move a branch from one commit to another, if it is still at the first.

    Return whether it was.
    """
    try:
        await repository.git("update-ref", f"refs/heads/{branch}", new, old)
    except GitError:
        current = (await repository.git("rev-parse", "--verify", f"refs/heads/{branch}")).strip()
        if current == new:
            return True  # a process was killed after it had moved the branch
        if current == old:
            raise
        return False
    return True
