"""Tracked files that are as a commit has them although their bytes differ.

Git may store a file in other bytes than the working tree has: with other line ends, in another encoding, or as what a
filter such as git-lfs makes of it. No filter runs here: a file that the user's index knows to be unchanged counts as
clean, and so does one whose bytes become those of the commit by git's own conversions.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress

from atomic.git.errors import GitError
from atomic.git.repository import Repository
from atomic.git.scratch import MAX_FILE, Entry, in_groups, split

_INDEXED = re.compile(
    r"(?P<mode>\d+) (?P<blob>[0-9a-f]+) (?P<stage>\d)\t(?P<path>[^\0]+)\0"
    r"  ctime: (?P<ctime>\d+:\d+)\n  mtime: (?P<mtime>\d+:\d+)\n  dev: \d+\tino: (?P<inode>\d+)\n"
    r"  uid: \d+\tgid: \d+\n  size: (?P<size>\d+)\tflags: [0-9a-f]+\n"
)
_NUMBER = 0xFFFFFFFF  # the index keeps the lower 32 bits of numbers


async def clean_files(repository: Repository, commit: str, paths: Iterable[str]) -> set[str]:
    """Return those of the files that are as the commit has them. Raises GitError."""
    looks_at_modes = (await repository.settings()).get("core.filemode", "true") != "false"
    clean: set[str] = set()
    for group in in_groups(list(paths)):
        committed = await _committed(repository, commit, group)
        unchanged = await _unchanged(repository, group)
        unsure: dict[str, str] = {}
        for path, (mode, blob) in committed.items():
            status = _status(repository, path)
            if status is None or (looks_at_modes and (mode == "100755") != bool(status.st_mode & stat.S_IXUSR)):
                continue
            if unchanged.get(path) == (mode, blob):
                clean.add(path)
            elif status.st_size <= MAX_FILE:
                unsure[path] = blob
        blobs = await _converted(repository, list(unsure)) if unsure else {}
        clean |= {path for path, blob in unsure.items() if blobs.get(path) == blob}
    return clean


def _status(repository: Repository, path: str) -> os.stat_result | None:
    """Return the status of a regular file; None for anything else."""
    try:
        status = os.lstat(repository.root / path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


async def _committed(repository: Repository, commit: str, paths: Sequence[str]) -> dict[str, Entry]:
    """Return mode and blob of the regular files that the commit has."""
    found: dict[str, Entry] = {}
    for line in split(await repository.git("ls-tree", "-z", "--full-tree", commit, "--", *paths)):
        facts, _, path = line.partition("\t")
        mode, _, blob = facts.split(" ")
        if mode in ("100644", "100755"):
            found[path] = mode, blob
    return found


async def _unchanged(repository: Repository, paths: Sequence[str]) -> dict[str, Entry]:
    """Return mode and blob of the files that nobody has written since git put them into the user's index.

    The times are compared to the nanosecond, and the flags "assume unchanged" and "skip worktree" do not count.
    """
    found: dict[str, Entry] = {}
    for entry in _INDEXED.finditer(await repository.git("ls-files", "-z", "--stage", "--debug", "--", *paths)):
        path, status = entry["path"], _status(repository, entry["path"])
        if status is None or entry["stage"] != "0":
            continue
        now = (_time(status.st_ctime_ns), _time(status.st_mtime_ns), status.st_ino & _NUMBER, status.st_size & _NUMBER)
        if now == (entry["ctime"], entry["mtime"], int(entry["inode"]), int(entry["size"])):
            found[path] = entry["mode"], entry["blob"]
    return found


def _time(nanoseconds: int) -> str:
    return f"{nanoseconds // 10**9 & _NUMBER}:{nanoseconds % 10**9}"


async def _converted(repository: Repository, paths: Sequence[str]) -> dict[str, str]:
    """Return the blobs that git would make of files, with its own conversions and with no filter."""
    plain = [path for path in paths if "\n" not in path]  # git reads one name per line
    try:
        listed = await repository.git("hash-object", "--stdin-paths", input="".join(f"{path}\n" for path in plain))
        found = dict(zip(plain, listed.split(), strict=True))
    except GitError:  # one of them is gone by now, or is not in the encoding that the attributes name
        found = {}
    for path in paths:
        if path not in found:
            with suppress(GitError):
                found[path] = (await repository.git("hash-object", "--", path)).strip()
    return found
