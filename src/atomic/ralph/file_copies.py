"""Copies of files in the folder of a session, by the hash of their content."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from atomic.base.files import replace_file
from atomic.base.redaction import Redactor
from atomic.sessions.files import make_folder

STORE = "snapshots/users-files"  # below the session's folder: a file for each content, by its hash
_MIB = 1024 * 1024
MOST_COPIES = 2_000  # that are kept
MOST_BYTES = 16 * _MIB  # of one file that is kept
MOST_KEPT = 64 * _MIB  # bytes of all together
COPY_CHANGED = "another program has changed the copy that was kept of it"
DELETED = "deleted"
LINK = "link"


def content_of(path: Path) -> str:
    """Return a hash of the content.

    For a large file its size and time, for a link its target.
    """
    try:
        status = path.lstat()
        if stat.S_ISLNK(status.st_mode):
            return f"{LINK}:{os.readlink(path)}"
        if not stat.S_ISREG(status.st_mode):
            return "special"
        if status.st_size > MOST_BYTES:
            return f"large:{status.st_size}:{status.st_mtime_ns}"
        return sha256(path.read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return DELETED
    except OSError:
        return "unreadable"


def mode_of(path: Path) -> int:
    """Return the permissions of a file, or the default if it is missing."""
    try:
        return path.lstat().st_mode & 0o777
    except OSError:
        return 0o644


class Store:
    """Copies of files by the hash of their content.

    None is ever removed. A copy that another program has changed is written again when
    the same content is kept again.
    """

    def __init__(self, session: Path, redactor: Redactor) -> None:
        self._folder = session / STORE
        self._redactor = redactor
        self._kept: tuple[int, int] | None = None  # number of copies and their bytes; None: not counted yet

    def keep(self, path: Path, content: str) -> str:
        """Keep a copy of a file. Return why that is not possible, or nothing."""
        if content in (DELETED, "special") or content.startswith(f"{LINK}:") or self.has(content):
            return ""
        if content.startswith("large:"):
            return f"it is larger than {MOST_BYTES // _MIB} MiB"
        try:
            data = path.read_bytes()
        except OSError as error:
            return f"it cannot be read ({error.strerror})"
        if sha256(data).hexdigest() != content:
            return "it changed while it was copied"
        return self.keep_bytes(data, content)

    def keep_bytes(self, data: bytes, content: str) -> str:
        """Keep bytes; `content` is their hash. Return why that is not possible, or nothing."""
        if self._redactor.finds_in_file(data):
            return "it contains something that looks like a secret"
        count, size = self._kept or self._count()
        if count >= MOST_COPIES:
            return f"the limit of {MOST_COPIES:,} copies is reached"
        if size + len(data) > MOST_KEPT:
            return f"the limit of {MOST_KEPT // _MIB} MiB for all copies is reached"
        make_folder(str(self._folder))
        replace_file(self._folder / content, data)
        self._kept = count + 1, size + len(data)
        return ""

    @property
    def is_full(self) -> bool:
        return self._kept is not None and self._kept[0] >= MOST_COPIES

    def can_give(self, content: str) -> bool:
        """Return whether a file with this content can be made: a missing file and a
        link need no copy.
        """
        return content == DELETED or content.startswith(f"{LINK}:") or self.has(content)

    def has(self, content: str) -> bool:
        return self._exists(content) and content_of(self._folder / content) == content

    def is_changed(self, content: str) -> bool:
        """Return whether another program has changed the copy: its name is the hash of
        its bytes.
        """
        return self._exists(content) and not self.has(content)

    def read(self, content: str) -> bytes:
        """Return the bytes of a copy.

        Raises OSError, also if another program has changed it.
        """
        path = self._folder / content
        data = path.read_bytes()
        if sha256(data).hexdigest() != content:
            raise OSError(errno.EIO, COPY_CHANGED, str(path))
        return data

    def _exists(self, content: str) -> bool:
        return bool(content) and os.path.lexists(self._folder / content)

    def _count(self) -> tuple[int, int]:
        with suppress(FileNotFoundError):
            sizes = [entry.stat().st_size for entry in os.scandir(self._folder)]
            return len(sizes), sum(sizes)
        return 0, 0
