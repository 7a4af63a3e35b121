"""The one module of this room that touches the disk: a file is read as it is and replaced as a whole.

Whoever looks at the path, at any instant and after a power cut too, finds the old list or the new one.
"""

from __future__ import annotations

import os
import stat

from atomic.base.files import replace_file
from atomic.tasks.errors import TaskFileError

AnyPath = str | os.PathLike[str]

MAX_BYTES = 256 * 1024 * 1024  # far above any list that can be worked on; a wrong path is no reason to fill the memory


def read_file(path: AnyPath) -> bytes:
    """Read a regular file.

    Raises:
        TaskFileError: it is missing, unreadable, too large, or something that could block for ever.
    """
    name = os.fspath(path)
    try:
        with open(name, "rb", opener=_open_at_once) as file:
            info = os.fstat(file.fileno())
            if not stat.S_ISREG(info.st_mode):
                raise TaskFileError("read", name, "not a regular file")
            if info.st_size > MAX_BYTES:
                raise TaskFileError("read", name, f"larger than {MAX_BYTES // 1024**2} MB")
            return file.read(MAX_BYTES)
    except OSError as error:
        raise TaskFileError("read", name, error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the name
        raise TaskFileError("read", name, str(error)) from error


def write_file(path: AnyPath, data: bytes) -> None:
    """Replace the file; when this returns the new content survives a power cut.

    Raises:
        TaskFileError: it cannot be written; the old content stands.
    """
    name = os.fspath(path)
    try:
        replace_file(name, data)
    except OSError as error:
        raise TaskFileError("written", name, error.strerror or str(error)) from error
    except ValueError as error:
        raise TaskFileError("written", name, str(error)) from error


def _open_at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)  # a named pipe would wait for a writer
