"""A journal that was rebuilt beside a damaged one, and how it takes its place.

Every opening looks for one, for its builder may have died; how it is built is for those few that find damage.
"""

from __future__ import annotations

import os
from contextlib import suppress

from atomic.sessions.files import sync_folder


def ready(path: str) -> str:
    """Where a rebuilt journal waits, whole."""
    return f"{path}.recovered"


def finish(path: str) -> None:
    """Put a rebuilt journal into place; also one whose builder died before it could do that.

    The old log must go first: SQLite would apply it to the new file.
    """
    if not os.path.exists(ready(path)):
        return
    for suffix in ("-wal", "-shm"):
        with suppress(FileNotFoundError):
            os.unlink(path + suffix)
    sync_folder(path)
    os.rename(ready(path), path)
    sync_folder(path)
