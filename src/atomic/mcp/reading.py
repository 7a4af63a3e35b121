"""Read a file that a stranger may have put there: a regular one, of a bounded size, that lies where it seems to."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path


def read_guarded(path: Path, *, roots: Sequence[Path], max_bytes: int) -> bytes | None:
    """The content; None: there is no such file. Raises ValueError with the reason why it is not read."""
    real = os.path.realpath(path)
    if not any(_is_inside(real, root) for root in roots):
        if not os.path.lexists(path):
            return None
        raise ValueError("a link leads out of the folder: it is not followed")
    try:
        return _content(real, max_bytes)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ValueError(f"this file cannot be read: {error.strerror}") from error


def _is_inside(real: str, root: Path) -> bool:
    folder = os.path.realpath(root)
    return real.startswith(folder.rstrip(os.sep) + os.sep)


def _content(real: str, max_bytes: int) -> bytes:
    if not stat.S_ISREG(os.stat(real).st_mode):  # before it is opened: to open some devices does something
        raise ValueError("this is not a regular file")
    # Somebody may have put a pipe or a link there meanwhile: neither is waited for or followed.
    fd = os.open(real, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise ValueError("this is not a regular file")
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise ValueError(f"this file is longer than {max_bytes:,} bytes")
    return content
