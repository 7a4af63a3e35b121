"""What changes in a folder while somebody works there: the commits, and the rest as a patch."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from atomic.git.errors import GitError
from atomic.git.patches import write_mail
from atomic.git.repository import Repository, find_repository
from atomic.git.scratch import Change, Entry, Scratch, open_scratch

MAX_FILES = 10_000  # in a folder that is no repository: there nothing says which of them have changed
MAX_COMMITS = 200  # more than that were not made but fetched; they become one


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What changed. Commits are in order, each as a patch with a head; `patch` is what is in the files beyond them."""

    commits: tuple[str, ...] = ()
    patch: str = ""
    folder: str = ""  # where the work was done, below the root that the patches' paths begin at
    rewind: int = 0  # commits that were taken back first (`git commit --amend` is one, and one commit)
    branch: str | None = None  # another one is checked out now; empty: none is
    dirty: dict[str, str | None] = {}  # files with changes that the commits took in: the object each was; None: no file
    left_out: tuple[str, ...] = ()  # files whose change is not in the patch


class _Committed(msgspec.Struct, frozen=True):
    """What was committed: the files as they were and are, the commit to start from, the commits on top of it."""

    files: dict[str, Change] = {}
    base: str | None = None
    rewind: int = 0
    names: list[str] = []


class FileWatch:
    """Knows what was there at the beginning. `watching` makes one."""

    def __init__(self, scratch: Scratch, folder: Path, ignored: Collection[Path]) -> None:
        self._scratch, self._folder, self._ignored = scratch, folder, ignored
        self._head: str | None = None
        self._branch: str | None = None
        self._before = ""

    async def look(self) -> None:
        """See what is there now."""
        if self._scratch.repository is not None:
            self._head, self._branch = await self._scratch.repository.head()
        self._before = await self._scratch.snapshot(self._ignored)

    async def changes(self, *, is_secret: Callable[[str], bool] = lambda text: False) -> Changes:
        """What has changed since. A file of bytes in which `is_secret` finds something is left out."""
        scratch, repository = self._scratch, self._scratch.repository
        head, branch = (None, None) if repository is None else await repository.head()
        committed = await self._committed(head)
        after, expected, was = await scratch.snapshot(self._ignored), self._before, {}
        if committed.files:
            after = await scratch.picture(committed.files)  # a commit may have taken in what git ignores
            was = await scratch.entries(self._before, committed.files)
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
            dirty={
                path: _name(was.get(path)) for path, change in committed.files.items() if was.get(path) != change.old
            },
            left_out=tuple(sorted({*scratch.left_out, *rest.left_out, *hidden})),
        )

    async def _committed(self, head: str | None) -> _Committed:
        """What was committed since: `head` is where HEAD is now."""
        scratch = self._scratch
        if head is None or head == self._head:
            return _Committed(base=self._head)
        changed = await scratch.changed(self._head or await scratch.empty_tree(), head)
        base, rewind = (None, 0) if self._head is None else await self._common(self._head, head)
        since = [head] if base is None else [head, f"^{base}"]
        names = (await scratch.git("rev-list", "--first-parent", "--reverse", *since)).split()
        return _Committed(changed, base, rewind, names if len(names) <= MAX_COMMITS else names[-1:])

    async def _common(self, old: str, new: str) -> tuple[str | None, int]:
        """The last commit that two have in common, and how many steps back it is from the old one.

        None, and all steps that there are, if they have none (the first commit was amended). Where the common one
        cannot be reached that way, because of a merge, nothing is taken back.
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
        """Each commit as text, with the change to the one before it in this list, whatever its parents are."""
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
async def watching(folder: str | os.PathLike[str], *, ignored: Collection[Path] = ()) -> AsyncGenerator[FileWatch]:
    """Watch the repository of a folder, or the folder itself if it is in none.

    Raises GitError; also for a folder outside of a repository that has more than 10,000 files.
    """
    place, repository = await asyncio.to_thread(_place, folder)
    root = place if repository is None else repository.root
    async with open_scratch(root, repository) as scratch:
        watch = FileWatch(scratch, place, ignored)
        await watch.look()
        yield watch


def _place(folder: str | os.PathLike[str]) -> tuple[Path, Repository | None]:
    place = Path(folder).resolve()
    repository = find_repository(place)
    if repository is None:
        count_files(place)
    return place, repository


def count_files(root: Path) -> None:
    """Raise GitError if a folder that is in no repository has too many files to look at."""
    left = MAX_FILES
    for _, _, files in os.walk(root):
        left -= len(files)
        if left < 0:
            raise GitError(("status",), f"the folder is in no repository and has more than {MAX_FILES:,} files")


def _name(entry: Entry | None) -> str | None:
    return None if entry is None else entry[1]
