"""Put commits on top of another commit, inside of a workspace.

The history of a worker may have merges, and commits that later ones take back. So where
its commits cannot be put on the new base one by one, their sum is tried as one commit.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from atomic.git import GitError
from atomic.workspaces.git_in_view import NO_SETTINGS, SAFE, git_in_view
from atomic.workspaces.views import View

MAX_CONFLICT = 20_000  # characters
_MAX_SIDES = 8  # files of a conflict of which each side is shown apart
# The same commits give the same result for each user.
_SETTINGS = (
    *("-c", "rebase.backend=merge", "-c", "rebase.autoSquash=false", "-c", "rebase.updateRefs=false"),
    *("-c", "merge.renames=true", "-c", "merge.directoryRenames=conflict", "-c", "merge.conflictStyle=merge"),
    *("-c", "rerere.enabled=false", "-c", "core.quotePath=false"),
)
_NO_NAME = {"GIT_COMMITTER_NAME": "Atomic", "GIT_COMMITTER_EMAIL": "atomic@localhost"}
# By the versions of a file that git has: of the former state, of the branch, of the task.
_SIDES = {
    "123": "changed by other tasks and by this one",
    "12": "changed by other tasks, deleted or moved by this one",
    "13": "deleted or moved by other tasks, changed by this one",
    "23": "added by other tasks and by this one",
    "1": "deleted or moved by other tasks and by this one",
    "2": "added or moved here by other tasks",
    "3": "added or moved here by this task",
}


class Conflict(msgspec.Struct, frozen=True):
    """Files that both sides changed, and the conflict as git shows it."""

    paths: tuple[str, ...]
    text: str


class Rebase:
    """One rebase onto the commit `onto`, in the view of a workspace without changes."""

    def __init__(self, view: View, onto: str) -> None:
        self._view = view
        self._onto = onto
        self._env: Mapping[str, str] = NO_SETTINGS

    async def run(self, base: str, result: str) -> str | Conflict:
        """Put the commits after `base`, up to `result`, on top of `onto`.

        Return the new commit, or the conflict. Raises GitError.
        """
        await self._find_name()
        commits = (await self._git("rev-list", "--parents", result, f"^{base}")).splitlines()
        if all(len(line.split()) <= 2 for line in commits):  # no merges
            try:
                done = await self._pick(base, result)
            except GitError:
                if len(commits) <= 1:
                    raise
            else:
                if isinstance(done, str) or len(commits) <= 1:
                    return done
        return await self._pick(base, await self._join(base, result))

    async def _find_name(self) -> None:
        """Give git a name if it has none: each new commit needs one."""
        try:
            await self._git("var", "GIT_COMMITTER_IDENT")
        except GitError:
            self._env = {**self._env, **_NO_NAME}

    async def _join(self, base: str, result: str) -> str:
        """Return one commit on top of `base` with the files of `result`.

        It has author and message of the last commit that is not a merge.
        """
        words = ("rev-list", "--no-merges", "--max-count=1", result, f"^{base}", f"^{self._onto}")
        last = (await self._git(*words)).strip() or result
        told = await self._git("show", "--no-patch", "--format=%an%x00%ae%x00%aI%x00%B", last)
        name, email, date, message = told.split("\0", 3)
        author = {"GIT_AUTHOR_NAME": name, "GIT_AUTHOR_EMAIL": email, "GIT_AUTHOR_DATE": date}
        made = await self._git("commit-tree", f"{result}^{{tree}}", "-p", base, "-m", message.strip(), env=author)
        return made.strip()

    async def _pick(self, base: str, result: str) -> str | Conflict:
        try:
            await self._git("rebase", "--quiet", "--onto", self._onto, base, result)
        except GitError:
            conflict = await self._find_conflict()
            await self._end()
            if conflict is None:
                raise
            return conflict
        return (await self._git("rev-parse", "HEAD")).strip()

    async def _end(self) -> None:
        """End a rebase that has stopped, if one has begun."""
        try:
            await self._git("rebase", "--abort")
        except GitError:
            await self._git("reset", "--quiet", "--hard", self._onto)

    async def _find_conflict(self) -> Conflict | None:
        """Return the conflict at which a rebase has stopped."""
        stages: dict[str, list[str]] = {}
        for entry in (await self._git("ls-files", "--unmerged", "-z")).split("\0")[:-1]:
            facts, _, path = entry.partition("\t")
            stages.setdefault(path, []).append(facts.split()[2])
        if not stages:
            return None
        texts = [f"{path}: {_SIDES[''.join(found)]}" for path, found in stages.items()]
        texts.append(await self._git("diff", "--no-color", "--no-ext-diff"))
        for path in [path for path, found in stages.items() if len(found) == 2 and "1" in found][:_MAX_SIDES]:
            other = stages[path][1]
            texts.append(await self._git("diff", "--no-color", "--no-ext-diff", f":1:{path}", f":{other}:{path}"))
        return Conflict(tuple(stages), "\n".join(texts)[:MAX_CONFLICT])

    async def _git(self, *words: str, env: Mapping[str, str] | None = None) -> str:
        return await git_in_view(self._view, *SAFE, *_SETTINGS, *words, env={**self._env, **(env or {})})
