"""Where a host is, and whether what the folder brings may run."""

from __future__ import annotations

import os
from pathlib import Path

from atomic.config import atomic_home
from atomic.hosts.errors import FolderGoneError


def current_folder() -> str:
    """The folder that the program was started in. Raises FolderGoneError."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        raise FolderGoneError from None


def is_trusted(folder: str | None = None) -> bool:
    """Whether what a folder (else the current one) brings for agents may run: somebody has approved it as it is now."""
    if not os.path.exists(atomic_home() / "trust.json"):
        return False
    from atomic.config import find_project
    from atomic.loading import trust

    place = Path(folder or current_folder())
    return trust.look(find_project(place)).allows(place)
