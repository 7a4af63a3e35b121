"""Name temporary folders, and remove those of processes that were killed.

A folder has the name `atomic-KIND-PID-NAMESPACE-RANDOM`. A process number is unique
only in its namespace, and containers may share the folder for temporary files.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile

MAX_REMOVED = 50  # folders that one start removes

_NAME = re.compile(r"atomic-[a-z]+-(?P<pid>[0-9]+)-(?P<space>[0-9a-f]+)-.+")


def temporary_prefix(kind: str) -> str:
    """Return how the name of a temporary folder of this process begins."""
    return f"atomic-{kind}-{os.getpid()}-{_namespace()}-"


def remove_leftovers(folder: str | None = None) -> int:
    """Remove the temporary folders of ended processes of this user, and return their
    number.
    """
    dead = find_leftovers(folder or tempfile.gettempdir())
    if dead:
        import shutil  # most starts find nothing

        for path in dead[:MAX_REMOVED]:
            shutil.rmtree(path, ignore_errors=True)
    return min(len(dead), MAX_REMOVED)


def find_leftovers(folder: str) -> list[str]:
    """Return the temporary folders of ended processes of this user."""
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if _is_leftover(entry)]
    except OSError:  # the folder does not exist or is not readable
        return []


def _is_leftover(entry: os.DirEntry[str]) -> bool:
    found = _NAME.fullmatch(entry.name)
    if found is None or found["space"] != _namespace() or not entry.is_dir(follow_symlinks=False):
        return False
    status = entry.stat(follow_symlinks=False)
    is_private = status.st_uid == os.getuid() and not status.st_mode & (stat.S_IRWXG | stat.S_IRWXO)
    return is_private and not _is_alive(int(found["pid"]))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _namespace() -> str:
    try:
        return f"{os.stat('/proc/self/ns/pid').st_ino:x}"
    except OSError:  # other systems have one namespace
        return "0"
