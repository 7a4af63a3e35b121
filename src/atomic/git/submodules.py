"""Uncommitted work inside of submodules, which the repository around them shows only as a changed commit."""

from __future__ import annotations

import msgspec

from atomic.git.errors import GitError
from atomic.git.repository import Repository, find_repository

_STATUS = ("status", "--porcelain=v1", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=all")
_MOST_DEEP = 10  # submodules within submodules


class InnerFiles(msgspec.Struct, frozen=True):
    """Files that differ from the commits of their submodules: path and submodule; and submodules that git cannot read.

    Paths begin at the root of the repository around them.
    """

    files: dict[str, str]
    unreadable: list[str]


async def uncommitted_in_submodules(repository: Repository, *, depth: int = 0) -> InnerFiles:
    """Look into all submodules that are checked out. Raises GitError for the repository itself."""
    found = InnerFiles({}, [])
    if depth > _MOST_DEEP or not (repository.root / ".gitmodules").is_file():
        return found
    listed = (await repository.git("ls-files", "--stage", "-z")).split("\0")[:-1]
    for folder in (entry.partition("\t")[2] for entry in listed if entry.startswith("160000 ")):
        inner = find_repository(repository.root / folder)
        if inner is None or inner.root != (repository.root / folder).resolve():
            continue
        try:
            status = (await inner.git(*_STATUS)).split("\0")[:-1]
            deeper = await uncommitted_in_submodules(inner, depth=depth + 1)
        except GitError:
            found.unreadable.append(folder)
            continue
        found.files.update((f"{folder}/{entry[3:]}", folder) for entry in status)
        found.files.update((f"{folder}/{path}", f"{folder}/{name}") for path, name in deeper.files.items())
        found.unreadable.extend(f"{folder}/{name}" for name in deeper.unreadable)
    return found
