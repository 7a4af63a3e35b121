"""Read files that a stranger may have put there: regular ones, of a bounded size, that lie where they seem to.

A pipe or a device is never opened, a link that leads out is not followed, and what another user has put into a folder
is not taken for its owner's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import msgspec

MAX_FILE = 1024 * 1024
MAX_TOTAL = 4 * MAX_FILE  # of one folder with all below: a syntax tree of it is still made in seconds
MAX_ENTRIES = 2000
MAX_DEPTH = 8
_SKIPPED = frozenset({"__pycache__", "node_modules", ".git", ".venv"})


class FoundFile(msgspec.Struct, frozen=True):
    """A file below a folder; without `data` the reason why it is not read."""

    name: str  # from the root, with /
    data: bytes = b""
    reason: str = ""


class Root:
    """A folder whose files are read, and whose they may be."""

    def __init__(self, folder: Path, owners: Sequence[int], *, shared: bool) -> None:
        self.folder, self.real = folder, os.path.realpath(folder)
        self._owners, self._shared = frozenset(owners), shared  # shared: others may have the right to write there

    @classmethod
    def of_project(cls, folder: Path) -> Root:
        """What lies in a project may be ours, the system's, or belong to whom the whole project does."""
        return cls(folder, (os.getuid(), 0, _owner(folder)), shared=True)

    @classmethod
    def of_user(cls, folder: Path) -> Root:
        """What runs without being asked for must be ours, and nobody else may be able to write it."""
        return cls(folder, (os.getuid(), 0), shared=False)

    def read(self, name: str, *, limit: int = MAX_FILE) -> FoundFile | None:
        """A file; None if there is none."""
        path = os.path.join(self.folder, name)
        if not os.path.lexists(path):
            return None
        try:
            return FoundFile(name, self._content(self._inside(path), limit))
        except ValueError as error:
            return FoundFile(name, reason=str(error))
        except OSError as error:
            return FoundFile(name, reason=f"it cannot be read: {error.strerror}")

    def walk(self, folder: str, *, deep: bool = True, skipping: Collection[str] | None = None) -> Iterator[FoundFile]:
        """The files of a folder, in order; with `deep` those below it too. What is too much is named once.

        `skipping`: names of folders that are passed over, else those that tools fill. Where nothing is to be skipped,
        a folder that lies too deep is named too.
        """
        budget = _Budget(_SKIPPED if skipping is None else skipping)
        yield from self._walk(folder, MAX_DEPTH if deep else 1, budget)

    def _walk(self, folder: str, depth: int, budget: _Budget) -> Iterator[FoundFile]:
        path = os.path.join(self.folder, folder)
        if not os.path.lexists(path):
            return
        try:
            with os.scandir(self._inside(path)) as entries:
                listed = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except ValueError as error:
            yield FoundFile(folder, reason=str(error))
            return
        except OSError as error:
            yield FoundFile(folder, reason=f"it cannot be read: {error.strerror}")
            return
        for name, is_folder in listed:
            inner = f"{folder}/{name}"
            if not budget.counts():
                yield FoundFile(folder, reason=f"there are more than {MAX_ENTRIES:,} files or {MAX_TOTAL:,} bytes")
                return
            if not is_folder:
                found = self.read(inner)
                if found is not None:
                    budget.left -= len(found.data)
                    yield found
            elif name in budget.skipping:
                continue
            elif depth > 1:
                yield from self._walk(inner, depth - 1, budget)
            elif not budget.skipping:
                yield FoundFile(inner, reason=f"it lies more than {MAX_DEPTH} folders deep")

    def _inside(self, path: str) -> str:
        real = os.path.realpath(path)
        leads_out = real != self.real and not real.startswith(self.real.rstrip(os.sep) + os.sep)
        if leads_out and self._shared:  # one's own links are one's own business
            raise ValueError("a link leads out of the folder: it is not followed")
        self._check(os.stat(real))
        return real

    def _content(self, real: str, limit: int) -> bytes:
        if not stat.S_ISREG(os.stat(real).st_mode):  # before it is opened: to open some devices does something
            raise ValueError("this is not a regular file")
        # Somebody may have put a pipe or a link there meanwhile: neither is waited for or followed.
        fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as file:
            status = os.fstat(fd)
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("this is not a regular file")
            self._check(status)
            content = file.read(limit + 1)
        if len(content) > limit:
            raise ValueError(f"this file is longer than {limit:,} bytes")
        return content

    def _check(self, status: os.stat_result) -> None:
        if status.st_uid not in self._owners:
            raise ValueError("it belongs to another user: it is not read")
        if not self._shared and status.st_mode & stat.S_IWOTH:
            raise ValueError("every user may write it: it is not read")


class _Budget:
    """How much of a folder is still looked at."""

    def __init__(self, skipping: Collection[str]) -> None:
        self.entries, self.left, self.skipping = MAX_ENTRIES, MAX_TOTAL, skipping

    def counts(self) -> bool:
        self.entries -= 1
        return self.entries >= 0 and self.left >= 0


def _owner(folder: Path) -> int:
    try:
        return os.stat(folder).st_uid
    except OSError:
        return os.getuid()
