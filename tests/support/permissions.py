"""Permissions of files as a user has them, also for tests that run as root."""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager

import pytest


@contextmanager
def permissions_of_a_user() -> Generator[None]:
    """Let `os.access` answer as for a user who owns the files but is not root."""
    access = os.access

    def may_access(path: str | os.PathLike[str], mode: int) -> bool:
        return access(path, mode) and bool(os.stat(path).st_mode & stat.S_IWUSR)

    with pytest.MonkeyPatch.context() as patch:
        if os.getuid() == 0:
            patch.setattr(os, "access", may_access)
        yield
