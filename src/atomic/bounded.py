"""Read a file that a stranger may have put there: a regular one, and no more of it than a limit.

A pipe would keep us waiting, a device would never end or would do something when it is opened.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import BinaryIO

MAX_BYTES = 1024 * 1024
_PART = 256 * 1024


def read_bounded(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file. Raises OSError where it is no regular file, is longer, or cannot be read."""
    content = beginning_of(path, limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"this file is longer than {limit:,} bytes", os.fspath(path))
    return content


def beginning_of(path: str | os.PathLike[str], limit: int) -> bytes:
    """Return the first bytes of a file. Raises OSError where it is no regular file, or cannot be read."""
    with open_regular(path) as file:
        content = bytearray()  # in parts: one read would reserve the memory of the whole limit
        while part := file.read(min(limit - len(content), _PART)):
            content += part
        return bytes(content)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a file for reading. Raises OSError where it is no regular file, or cannot be opened."""
    if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened: to open some devices does something
        raise OSError(errno.EINVAL, "this is not a regular file", os.fspath(path))
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(number).st_mode):  # replaced meanwhile
        os.close(number)
        raise OSError(errno.EINVAL, "this is not a regular file", os.fspath(path))
    return os.fdopen(number, "rb")


def read_bounded_text(path: str | os.PathLike[str], limit: int = MAX_BYTES) -> str:
    """Return the text of a file; bytes that are no UTF-8 are replaced. Raises OSError like `read_bounded`."""
    return read_bounded(path, limit).decode("utf-8", "replace")
