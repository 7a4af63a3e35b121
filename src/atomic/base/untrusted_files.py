"""Read files that anyone may have put there.

Only regular files are opened: a pipe would block, and a device may act when it is
opened. No more than a limit of bytes is read. A link that leads out of a folder is not
followed.

* `read_bounded`, `read_bounded_text`, `read_start` and `open_regular` take any path.
* `read_inside` reads a file that must lie below one of several folders.
* `Root` reads files below a folder that must belong to certain users.
* `open_folder`, `open_file` and the like return descriptors. They open a path step by step from
  its root and follow no link, so a folder that is replaced by a link at that moment is an error.

All of them raise OSError; `RefusedFileError` is the one for a file that may not be
read.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from atomic.base.files import AnyPath

MAX_BYTES = 1024 * 1024  # of one file
MAX_TOTAL = 4 * MAX_BYTES  # of one folder and everything below it: parsed in seconds
MAX_ENTRIES = 2000
MAX_DEPTH = 8

_CHUNK = 256 * 1024
_SKIPPED_FOLDERS = frozenset({"__pycache__", "node_modules", ".git", ".venv"})
_LEADS_OUT = "a link leads out of the folder: it is not followed"
_STEP_FLAGS = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class RefusedFileError(OSError):
    """A file that may not be read; `strerror` is the reason."""

    def __init__(self, reason: str, path: AnyPath) -> None:
        super().__init__(errno.EINVAL, reason, os.fspath(path))


def reason_of(error: OSError) -> str:
    """Return why a file was not read, for a message that names the file itself."""
    reason = error.strerror or str(error)
    return reason if isinstance(error, RefusedFileError) else f"it cannot be read: {reason}"


def read_bounded(path: AnyPath, limit: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file that is not longer than the limit."""
    with open_regular(path) as file:
        return _read_within(file, limit, path)


def read_bounded_text(path: AnyPath, limit: int = MAX_BYTES) -> str:
    """Return the text of a file like `read_bounded`.

    Bytes that are not UTF-8 are replaced.
    """
    return read_bounded(path, limit).decode("utf-8", "replace")


def read_start(path: AnyPath, limit: int, *, follow_links: bool = True) -> bytes:
    """Return the first bytes of a regular file."""
    with open_regular(path, follow_links=follow_links) as file:
        return _read_up_to(file, limit)


def open_regular(path: AnyPath, *, follow_links: bool = True) -> BinaryIO:
    """Open a regular file for reading.

    `follow_links` is about the last part of the path.
    """
    # Checked before opening, because some devices act when they are opened.
    require_regular(os.stat(path, follow_symlinks=follow_links), path)
    flags = _FILE_FLAGS if follow_links else _FILE_FLAGS | os.O_NOFOLLOW
    descriptor = os.open(path, flags)
    try:
        require_regular(os.fstat(descriptor), path)  # it may have been replaced
    except RefusedFileError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def require_regular(status: os.stat_result, path: AnyPath, limit: int | None = None) -> os.stat_result:
    """Return the status of a regular file.

    Raise RefusedFileError for anything else, and beyond the limit.
    """
    if not stat.S_ISREG(status.st_mode):
        raise RefusedFileError("this is not a regular file", path)
    if limit is not None and status.st_size > limit:
        raise _too_long(limit, path)
    return status


def _read_within(file: BinaryIO, limit: int, path: AnyPath) -> bytes:
    require_regular(os.fstat(file.fileno()), path, limit)
    content = _read_up_to(file, limit + 1)  # it may grow while it is read
    if len(content) > limit:
        raise _too_long(limit, path)
    return content


def _read_up_to(file: BinaryIO, limit: int) -> bytes:
    content = bytearray()  # in chunks: a single read would allocate the whole limit
    while chunk := file.read(min(limit - len(content), _CHUNK)):
        content += chunk
    return bytes(content)


def _too_long(limit: int, path: AnyPath) -> RefusedFileError:
    return RefusedFileError(f"this file is longer than {limit:,} bytes", path)


def read_inside(path: Path, *, roots: Sequence[Path], limit: int) -> bytes | None:
    """Return the bytes of a regular file below one of the folders.

    None if there is no such file.
    """
    real = os.path.realpath(path)
    if not any(_is_below(real, os.path.realpath(root)) for root in roots):
        if not os.path.lexists(path):
            return None
        raise RefusedFileError(_LEADS_OUT, path)
    try:
        with open_regular(real, follow_links=False) as file:
            return _read_within(file, limit, path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_below(real: str, folder: str) -> bool:
    return real.startswith(folder.rstrip(os.sep) + os.sep)


class FoundFile(msgspec.Struct, frozen=True):
    """A file below a folder, with its content or the reason why it was not read."""

    name: str  # from the root, with /
    data: bytes = b""
    reason: str = ""


class Root:
    """A folder, and the users that may own files below it."""

    def __init__(self, folder: Path, owners: Collection[int], *, shared: bool) -> None:
        """Note who may write there.

        `shared`: users that are not owners may, so no link may lead out of the folder.
        """
        self.folder = folder
        self.real = os.path.realpath(folder)
        self._owners = frozenset(owners)
        self._shared = shared

    @classmethod
    def of_project(cls, folder: Path) -> Root:
        """Return the root of a project: files may belong to us, to root, or to the
        owner of the project.
        """
        try:
            owner = os.stat(folder).st_uid
        except OSError:
            owner = os.getuid()
        return cls(folder, (os.getuid(), 0, owner), shared=True)

    @classmethod
    def of_user(cls, folder: Path) -> Root:
        """Return the root of a user's own files, which need no trust: only the user may
        write them.
        """
        return cls(folder, (os.getuid(), 0), shared=False)

    def read(self, name: str, *, limit: int = MAX_BYTES) -> FoundFile | None:
        """Return a file; None if it does not exist."""
        path = os.path.join(self.folder, name)
        if not os.path.lexists(path):
            return None
        try:
            with open_regular(self._resolve(path), follow_links=False) as file:
                self._check_owner(os.fstat(file.fileno()), path)
                return FoundFile(name, _read_within(file, limit, path))
        except OSError as error:
            return FoundFile(name, reason=reason_of(error))

    def walk(self, folder: str, *, deep: bool = True, skipping: Collection[str] | None = None) -> Iterator[FoundFile]:
        """Yield the files of a folder in order, with `deep` also those below it.

        Folders named in `skipping` are left out, by default those that tools fill. If
        nothing is skipped, a folder below the depth limit is reported. Reaching a limit
        is reported once.
        """
        budget = _WalkBudget(_SKIPPED_FOLDERS if skipping is None else skipping)
        yield from self._walk(folder, MAX_DEPTH if deep else 1, budget)

    def _walk(self, folder: str, depth: int, budget: _WalkBudget) -> Iterator[FoundFile]:
        path = os.path.join(self.folder, folder)
        if not os.path.lexists(path):
            return
        try:
            with os.scandir(self._resolve(path)) as entries:
                listed = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except OSError as error:
            yield FoundFile(folder, reason=reason_of(error))
            return
        for name, is_folder in listed:
            inner = f"{folder}/{name}"
            if not budget.take_entry():
                yield FoundFile(folder, reason=f"there are more than {MAX_ENTRIES:,} files or {MAX_TOTAL:,} bytes")
                return
            if not is_folder:
                found = self.read(inner)
                if found is not None:
                    budget.bytes_left -= len(found.data)
                    yield found
            elif name in budget.skipping:
                continue
            elif depth > 1:
                yield from self._walk(inner, depth - 1, budget)
            elif not budget.skipping:
                yield FoundFile(inner, reason=f"it lies more than {MAX_DEPTH} folders deep")

    def _resolve(self, path: str) -> str:
        real = os.path.realpath(path)
        if self._shared and real != self.real and not _is_below(real, self.real):
            raise RefusedFileError(_LEADS_OUT, path)
        self._check_owner(os.stat(real), path)
        return real

    def _check_owner(self, status: os.stat_result, path: str) -> None:
        if status.st_uid not in self._owners:
            raise RefusedFileError("it belongs to another user: it is not read", path)
        if not self._shared and status.st_mode & stat.S_IWOTH:
            raise RefusedFileError("every user may write it: it is not read", path)


class _WalkBudget:
    """The number of entries and bytes that a walk may still read."""

    def __init__(self, skipping: Collection[str]) -> None:
        self.skipping = skipping
        self.bytes_left = MAX_TOTAL
        self._entries_left = MAX_ENTRIES

    def take_entry(self) -> bool:
        self._entries_left -= 1
        return self._entries_left >= 0 and self.bytes_left >= 0


def open_folder(root: str, folder: str) -> int:
    """Return a descriptor of a folder inside a root, which is a path without links."""
    return _open_below(root, _resolve_inside(root, folder), _FOLDER_FLAGS)


def open_inner_folder(folder: int, name: str) -> int:
    """Return a descriptor of a folder inside an open one; a link is an error."""
    return os.open(name, _FOLDER_FLAGS, dir_fd=folder)


def find_file(root: str, path: str) -> os.stat_result:
    """Return the status of the regular file inside a root that a path leads to."""
    return require_regular(os.stat(_resolve_inside(root, path), follow_symlinks=False), path, MAX_BYTES)


def open_file(root: str, path: str) -> int:
    """Return a descriptor of a regular file inside a root."""
    real = _resolve_inside(root, path)
    require_regular(os.stat(real, follow_symlinks=False), path, MAX_BYTES)
    return _open_below(root, real, _FILE_FLAGS | os.O_NOFOLLOW)


def open_entry(folder: int, name: str) -> int:
    """Return a descriptor of a file in an open folder; a link is an error."""
    return os.open(name, _FILE_FLAGS | os.O_NOFOLLOW, dir_fd=folder)


def _resolve_inside(root: str, path: str) -> str:
    real = os.path.realpath(path, strict=True)
    if real != root and not _is_below(real, root):
        raise RefusedFileError(_LEADS_OUT, path)
    return real


def _open_below(root: str, real: str, flags: int) -> int:
    """Open a resolved path step by step from the root."""
    steps = [step for step in real[len(root) :].split("/") if step]
    folder = os.open(root, _STEP_FLAGS if steps else flags)
    for index, step in enumerate(steps):
        try:
            inner = os.open(step, flags if index == len(steps) - 1 else _STEP_FLAGS, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder
