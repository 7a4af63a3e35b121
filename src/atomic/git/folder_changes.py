"""Record what changes in a folder while an agent works there: commits, and a patch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from atomic.git.calls import GitError
from atomic.git.patches import write_mail
from atomic.git.repository import find_repository
from atomic.git.scratch import Change, Scratch, open_scratch

# Files of a folder outside of a repository: git does not know there which have changed.
MAX_FILES = 10_000
# More commits than that were fetched, not made; they become one.
MAX_COMMITS = 200


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What changed in a folder.

    commits: each commit as a patch with a head, in order
    patch: changes of files that are in none of the commits
    folder: the working folder, below the root that the paths in patches begin at
    rewind: commits that were removed first (`git commit --amend` removes one, adds one)
    branch: the branch that was checked out; "": none; None: it did not change
    dirty: files with changes that the commits include, and their objects before; None: no
        file
    left_out: files whose change is not in the patch
    """

    commits: tuple[str, ...] = ()
    patch: str = ""
    folder: str = ""
    rewind: int = 0
    branch: str | None = None
    dirty: dict[str, str | None] = {}
    left_out: tuple[str, ...] = ()


class _Committed(msgspec.Struct, frozen=True):
    """The files that commits changed, the commit before them, and their names."""

    files: dict[str, Change] = {}
    base: str | None = None
    rewind: int = 0
    names: list[str] = []


class FileWatch:
    """The state of a folder when the watch began. `watch_folder` makes one."""

    def __init__(self, scratch: Scratch, folder: Path, ignored: Collection[Path]) -> None:
        self._scratch = scratch
        self._folder = folder
        self._ignored = ignored
        self._head: str | None = None
        self._branch: str | None = None
        self._before = ""

    async def start(self) -> None:
        """Record the current state."""
        if self._scratch.repository is not None:
            self._head, self._branch = await self._scratch.repository.head()
        self._before = await self._scratch.snapshot(self._ignored)

    async def changes(self, *, is_secret: Callable[[str], bool] = lambda text: False) -> Changes:
        """Return the changes since the start.

        A binary file in which `is_secret` finds a secret is left out.
        """
        scratch = self._scratch
        head: str | None = None
        branch: str | None = None
        if scratch.repository is not None:
            head, branch = await scratch.repository.head()
        committed = await self._committed(head)
        after = await scratch.snapshot(self._ignored)
        expected = self._before
        dirty: dict[str, str | None] = {}
        if committed.files:
            # A commit may include files that git ignores.
            after = await scratch.tree_with_files(committed.files)
            before = await scratch.entries(self._before, committed.files)
            for path, change in committed.files.items():
                entry = before.get(path)
                if entry != change.old:
                    dirty[path] = None if entry is None else entry[1]
            entries = {path: change.new for path, change in committed.files.items()}
            expected = await scratch.tree(self._before, entries, index="expected")
        mails, hidden = await self._mails(committed, is_secret)
        rest = await scratch.diff(expected, after, is_secret=is_secret)
        return Changes(
            commits=mails,
            patch=rest.text,
            folder=self._folder.relative_to(scratch.root).as_posix().removeprefix("."),
            rewind=committed.rewind,
            branch=None if branch == self._branch else (branch or ""),
            dirty=dirty,
            left_out=tuple(sorted({*scratch.left_out, *rest.left_out, *hidden})),
        )

    async def _committed(self, head: str | None) -> _Committed:
        """Return the commits made since; `head` is the current commit."""
        scratch = self._scratch
        if head is None or head == self._head:
            return _Committed(base=self._head)
        changed = await scratch.changed(self._head or await scratch.empty_tree(), head)
        base: str | None = None
        rewind = 0
        if self._head is not None:
            base, rewind = await self._common(self._head, head)
        since = [head] if base is None else [head, f"^{base}"]
        names = (await scratch.git("rev-list", "--first-parent", "--reverse", *since)).split()
        return _Committed(changed, base, rewind, names if len(names) <= MAX_COMMITS else names[-1:])

    async def _common(self, old: str, new: str) -> tuple[str | None, int]:
        """Return the last common commit and how many commits before `old` it is.

        Without one (the first commit was amended), return None and the number of all
        commits. If a merge is between, nothing counts as removed.
        """
        git = self._scratch.git
        try:
            base = (await git("merge-base", old, new)).strip()
        except GitError:
            return None, int(await git("rev-list", "--first-parent", "--count", old))
        steps = int(await git("rev-list", "--first-parent", "--count", old, f"^{base}"))
        reached = (await git("rev-parse", f"{old}~{steps}")).strip()
        return (base, steps) if reached == base else (old, 0)

    async def _mails(
        self, committed: _Committed, is_secret: Callable[[str], bool]
    ) -> tuple[tuple[str, ...], list[str]]:
        """Return each commit as text, and the files that their patches leave out.

        A patch is the difference from the previous commit in this list, whatever the
        commit's parents are.
        """
        before = committed.base or await self._scratch.empty_tree()
        mails: list[str] = []
        hidden: list[str] = []
        for name in committed.names:
            patch = await self._scratch.diff(before, name, is_secret=is_secret)
            mails.append(write_mail(await self._scratch.git("cat-file", "commit", name), name, patch.text))
            hidden += patch.left_out
            before = name
        return tuple(mails), hidden


@asynccontextmanager
async def watch_folder(folder: str | os.PathLike[str], *, ignored: Collection[Path] = ()) -> AsyncGenerator[FileWatch]:
    """Watch the repository of a folder, or the folder itself if it is in none.

    Raises GitError, also for a folder outside of a repository with more than 10,000
    files.
    """
    start = await asyncio.to_thread(Path(folder).resolve)
    repository = await asyncio.to_thread(find_repository, start)
    if repository is None:
        await asyncio.to_thread(check_file_count, start)
    async with open_scratch(start if repository is None else repository.root, repository) as scratch:
        watch = FileWatch(scratch, start, ignored)
        await watch.start()
        yield watch


def check_file_count(root: Path) -> None:
    """Raise GitError if a folder outside of a repository has too many files."""
    count = 0
    for _, _, files in os.walk(root):
        count += len(files)
        if count > MAX_FILES:
            raise GitError(("status",), f"{root} is in no repository and has more than {MAX_FILES:,} files")
