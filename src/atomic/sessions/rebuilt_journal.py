"""Replaces a damaged journal by its rebuilt one.

Each opening looks for a rebuilt journal, because the process that built it may have died.
The module `recovery` builds it.
"""

from __future__ import annotations

import os
from contextlib import suppress

from atomic.sessions.files import sync_folder


def ready(path: str) -> str:
    """Return the path of a complete rebuilt journal."""
    return f"{path}.recovered"


def finish(path: str) -> None:
    """Rename a rebuilt journal into place, also one whose builder died before that.

    The old log is deleted first: SQLite would apply it to the new file.
    """
    if not os.path.exists(ready(path)):
        return
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)
    sync_folder(path)
    os.rename(ready(path), path)
    sync_folder(path)
