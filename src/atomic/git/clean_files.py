"""Find tracked files that equal a commit although their bytes differ.

Git may store a file in other bytes than the working tree has: with other line ends, in
another encoding, or as the output of a filter such as git-lfs. No filter runs here. A
file is clean if the user's index knows it as unchanged, or if git's own conversions
turn its bytes into those of the commit.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Sequence
from contextlib import suppress

from atomic.git.calls import GitError, split
from atomic.git.repository import Repository
from atomic.git.scratch import MAX_FILE, Entry, in_groups

# One entry of `git ls-files --stage --debug -z`.
_INDEXED = re.compile(
    r"(?P<mode>\d+) (?P<blob>[0-9a-f]+) (?P<stage>\d)\t(?P<path>[^\0]+)\0"
    r"  ctime: (?P<ctime>\d+:\d+)\n  mtime: (?P<mtime>\d+:\d+)\n  dev: \d+\tino: (?P<inode>\d+)\n"
    r"  uid: \d+\tgid: \d+\n  size: (?P<size>\d+)\tflags: [0-9a-f]+\n"
)
# The index keeps the lower 32 bits of numbers.
_NUMBER = 0xFFFFFFFF


async def clean_files(repository: Repository, commit: str, paths: Iterable[str]) -> set[str]:
    """Return the files that equal the commit. Raises GitError."""
    compares_modes = (await repository.settings()).get("core.filemode", "true") != "false"
    clean: set[str] = set()
    for group in in_groups(list(paths)):
        committed = await _committed_files(repository, commit, group)
        unchanged = await _unchanged_files(repository, group)
        unsure: dict[str, str] = {}
        for path, (mode, blob) in committed.items():
            status = _find_status(repository, path)
            if status is None:
                continue
            if compares_modes and (mode == "100755") != bool(status.st_mode & stat.S_IXUSR):
                continue
            if unchanged.get(path) == (mode, blob):
                clean.add(path)
            elif status.st_size <= MAX_FILE:
                unsure[path] = blob
        if unsure:
            blobs = await _converted_blobs(repository, list(unsure))
            clean |= {path for path, blob in unsure.items() if blobs.get(path) == blob}
    return clean


def _find_status(repository: Repository, path: str) -> os.stat_result | None:
    """Return the status of a regular file; None for anything else."""
    try:
        status = os.lstat(repository.root / path)
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


async def _committed_files(repository: Repository, commit: str, paths: Sequence[str]) -> dict[str, Entry]:
    """Return mode and blob of the regular files that the commit has."""
    found: dict[str, Entry] = {}
    for line in split(await repository.git("ls-tree", "-z", "--full-tree", commit, "--", *paths)):
        facts, _, path = line.partition("\t")
        mode, _, blob = facts.split(" ")
        if mode in ("100644", "100755"):
            found[path] = mode, blob
    return found


async def _unchanged_files(repository: Repository, paths: Sequence[str]) -> dict[str, Entry]:
    """Return mode and blob of the files not written since git added them to the index.

    Times are compared to the nanosecond. The flags "assume unchanged" and "skip
    worktree" are ignored.
    """
    found: dict[str, Entry] = {}
    for entry in _INDEXED.finditer(await repository.git("ls-files", "-z", "--stage", "--debug", "--", *paths)):
        status = _find_status(repository, entry["path"])
        if status is None or entry["stage"] != "0":
            continue
        now = (
            _index_time(status.st_ctime_ns),
            _index_time(status.st_mtime_ns),
            status.st_ino & _NUMBER,
            status.st_size & _NUMBER,
        )
        if now == (entry["ctime"], entry["mtime"], int(entry["inode"]), int(entry["size"])):
            found[entry["path"]] = entry["mode"], entry["blob"]
    return found


def _index_time(nanoseconds: int) -> str:
    return f"{nanoseconds // 10**9 & _NUMBER}:{nanoseconds % 10**9}"


async def _converted_blobs(repository: Repository, paths: Sequence[str]) -> dict[str, str]:
    """Return the blobs that git makes of files with its own conversions and no filter."""
    # Git reads one name per line.
    listed = [path for path in paths if "\n" not in path]
    try:
        blobs = await repository.git("hash-object", "--stdin-paths", input="".join(f"{path}\n" for path in listed))
        found = dict(zip(listed, blobs.split(), strict=True))
    except GitError:
        # A file vanished, or is not in the encoding that the attributes name.
        found = {}
    for path in paths:
        if path not in found:
            with suppress(GitError):
                found[path] = (await repository.git("hash-object", "--", path)).strip()
    return found
