"""Replace a file atomically: readers see the old content or the new one."""

from __future__ import annotations

import os
from contextlib import suppress

AnyPath = str | os.PathLike[str]


def replace_file(path: AnyPath, data: bytes, *, durable: bool = True) -> None:
    """Write a file that only the user may read. Raise OSError and keep the old content.

    Without `durable` a power cut may lose the new content; a kill does not.
    """
    path = os.fspath(path)
    folder, name = os.path.split(path)
    # The random part separates threads and processes that reuse an id.
    short = os.fsdecode(os.fsencode(name)[:200])  # a name has at most 255 bytes
    temporary = os.path.join(folder, f".{short}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(fd)
        os.rename(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
    if durable:
        sync_folder(folder or ".")


def sync_folder(folder: str) -> None:
    """Flush the entries of a folder to disk; a rename is durable only after that."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
