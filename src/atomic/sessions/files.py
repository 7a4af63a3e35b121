"""File operations of a journal: lock, make private, copy aside, sync, replace.

SQLite's own locks do not show whether another connection has a journal open: they
belong to the process, and any `close()` of the database file drops them. So a separate
file is locked. The process that holds it exclusively may copy and replace the database
files.
"""

from __future__ import annotations

import errno
import fcntl
import filecmp
import glob
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from atomic.graph.engine.errors import JournalError

WAIT_SECONDS = 10.0
_POLL_SECONDS = 0.005


class Lock:
    """A lock that is shared while a journal is open, and exclusive for a repair."""

    def __init__(self, path: str) -> None:
        self._path = f"{path}-lock"
        self._fd: int | None = None

    def try_alone(self) -> bool:
        """Take the lock exclusively.

        False if it is held elsewhere, also in this process.
        """
        return self._take(fcntl.LOCK_EX)

    def share(self) -> None:
        """Take the lock shared.

        The change from exclusive to shared is not atomic: keep nothing open that a
        repair by another process would replace.
        """
        deadline = time.monotonic() + WAIT_SECONDS
        while not self._take(fcntl.LOCK_SH):
            if time.monotonic() > deadline:
                raise JournalError(f'Another process is checking or repairing "{self._path.removesuffix("-lock")}"')
            time.sleep(_POLL_SECONDS)

    def release(self) -> None:
        if self._fd is None:
            return
        # The last holder deletes the file. A process that has just opened it notices,
        # and creates a new one.
        if self.try_alone():
            with suppress(OSError):
                os.unlink(self._path)
        self._close()

    def _take(self, how: int) -> bool:
        while True:
            if self._fd is None:
                self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._fd, how | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                    return False
                raise
            if self._is_in_place(self._fd):
                return True
            self._close()

    def _is_in_place(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    def _close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def make_folder(path: str) -> None:
    """Create a folder and its missing parents, private to the user."""
    missing: list[str] = []
    folder = path
    while not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        sync_folder(folder)  # otherwise a power cut could lose the folder with all synced files in it


def make_private(path: str) -> None:
    for name in (path, f"{path}-wal", f"{path}-shm"):
        with suppress(FileNotFoundError):
            mode = stat.S_IMODE(os.stat(name).st_mode)
            if mode & 0o177:
                os.chmod(name, 0o600)


def size_of(path: str) -> int:
    """Return the size of a file, 0 if it is missing.

    Raises JournalError if it is not a regular file.
    """
    try:
        info = os.stat(path)
    except FileNotFoundError:
        return 0
    if not stat.S_ISREG(info.st_mode):
        raise JournalError(f'"{path}" is not a file')
    return info.st_size


def keep_aside(path: str) -> str:
    """Copy the files of a journal before they are changed, and return the name of the
    copy.

    An existing copy with the same contents is used again.
    """
    for earlier in sorted(Path(path).parent.glob(f"{glob.escape(Path(path).name)}.damaged-*")):
        if not earlier.name.endswith("-wal") and _same_files(path, str(earlier)):
            return str(earlier)
    stamp = f"{path}.damaged-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    target = stamp
    number = 1
    while os.path.lexists(target) or os.path.lexists(f"{target}-wal"):
        number += 1
        target = f"{stamp}-{number}"
    try:
        for suffix in ("", "-wal"):
            if not suffix or size_of(path + suffix):
                copy_file(path + suffix, target + suffix)
    except OSError:
        for suffix in ("", "-wal"):  # an incomplete copy is useless
            with suppress(OSError):
                os.unlink(target + suffix)
        raise
    sync_folder(path)
    return target


def copy_file(source: str, target: str) -> None:
    """Copy a file privately and sync the copy; a missing file counts as empty."""
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(fd, "wb") as to:
        with suppress(FileNotFoundError), open(source, "rb") as of:
            while chunk := of.read(1 << 20):
                to.write(chunk)
        to.flush()
        os.fsync(to.fileno())


def sync_file(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_folder(path: str) -> None:
    """Sync the folder of a file: a rename is not durable before that."""
    sync_file(os.path.dirname(path))


def _same_files(path: str, copy: str) -> bool:
    pairs = [(path + suffix, copy + suffix) for suffix in ("", "-wal")]
    if any(size_of(one) != size_of(other) for one, other in pairs):
        return False
    return all(size_of(one) == 0 or filecmp.cmp(one, other, shallow=False) for one, other in pairs)


def rebuilt_path(path: str) -> str:
    """Return the path of a complete rebuilt journal; `recovery` writes it."""
    return f"{path}.recovered"


def install_rebuilt(path: str) -> None:
    """Rename a rebuilt journal into place, also one whose builder died before that.

    The old log is deleted first: SQLite would apply it to the new file.
    """
    if not os.path.exists(rebuilt_path(path)):
        return
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)
    sync_folder(path)
    os.rename(rebuilt_path(path), path)
    sync_folder(path)
