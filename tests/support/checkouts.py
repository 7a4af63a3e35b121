"""The state of a user's checkout, to compare before and after a run."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

# What a run adds to a repository: its branch, and what it has parked.
_OF_RUNS = ("refs/atomic", "refs/heads/atomic", "logs/refs/atomic", "logs/refs/heads/atomic")
_OBJECTS = "objects"
_PACKED = "packed-refs"


@dataclass(frozen=True)
class CheckoutState:
    """Mode, time and content of everything in a checkout and in its git folder.

    New objects, and the refs of runs, are not part of it.
    """

    files: dict[str, str]
    objects: dict[str, str]

    def changes_to(self, other: CheckoutState) -> list[str]:
        """Return what differs in `other`, one line for each file; new objects do not count."""
        found = [
            f"{path}: {self.files.get(path, 'missing')} -> {other.files.get(path, 'missing')}"
            for path in sorted(self.files.keys() | other.files.keys())
            if self.files.get(path) != other.files.get(path)
        ]
        damaged = [path for path, content in self.objects.items() if other.objects.get(path) != content]
        return found + [f"{path}: damaged" for path in sorted(damaged)]


def checkout_state(root: Path) -> CheckoutState:
    """Return the state of a checkout, or of a bare repository."""
    git = root / ".git" if (root / ".git").is_dir() else root
    files: dict[str, str] = {}
    objects: dict[str, str] = {}
    for path in (root, *sorted(root.rglob("*"))):
        inside = str(path.relative_to(git)) if path.is_relative_to(git) else None
        if inside is None:
            files[str(path.relative_to(root))] = _describe(path, with_time=True)
        elif inside == _OBJECTS or inside.startswith(f"{_OBJECTS}/"):
            if not path.is_dir():
                objects[inside] = _describe(path, with_time=False)
        elif not any(inside == ours or inside.startswith(f"{ours}/") for ours in _OF_RUNS):
            # The folders of git get new times when a ref or an object is added.
            files[f".git/{inside}"] = _describe(path, with_time=not path.is_dir() and inside != _PACKED)
    return CheckoutState(files, objects)


def _describe(path: Path, *, with_time: bool) -> str:
    status = path.lstat()
    content = b""
    if stat.S_ISLNK(status.st_mode):
        content = os.fsencode(os.readlink(path))
    elif stat.S_ISREG(status.st_mode):
        content = path.read_bytes()
        if path.name == _PACKED:
            content = b"".join(line for line in content.splitlines(True) if not _is_of_run(line))
    time = f" {status.st_mtime_ns}" if with_time else ""
    return f"{status.st_mode:o}{time} {hashlib.sha256(content).hexdigest()[:16]}"


def _is_of_run(line: bytes) -> bool:
    name = line.split()[-1].decode("utf-8", "replace")
    return name.startswith(("refs/atomic/", "refs/heads/atomic/"))
