"""Carry big files of git-lfs between the user's repository and workspaces.

Git has only pointers to them. The content is in `lfs/objects` of the git folder, in
files that are named by their SHA-256. Nothing here needs git-lfs itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from atomic.git import Repository
from atomic.git.calls import split

_POINTER = re.compile(
    r"^version https://git-lfs\.github\.com/spec/v1\n(?:[\w.-]+ .*\n)*?oid sha256:([0-9a-f]{64})$", re.M
)
_MAX_POINTER = 1024  # bytes
_NAME = re.compile(r"[0-9a-f]{64}")
_BLOCK = 1 << 20


def objects_in(git_folder: Path) -> Path:
    """Return the folder with the content of big files."""
    return git_folder / "lfs" / "objects"


async def keep_objects(repository: Repository, stores: Sequence[Path]) -> None:
    """Copy content that the user's repository lacks from stores of a workspace.

    A worker may have written anything there: a file counts if its content fits its
    name. Raises OSError.
    """
    target = objects_in(repository.common_dir)
    for store in stores:
        await asyncio.to_thread(_copy_new, store, target)


def _copy_new(store: Path, target: Path) -> None:
    for path in _regular_files(store):
        copy = target / path.name[:2] / path.name[2:4] / path.name
        if _NAME.fullmatch(path.name) and not copy.exists():
            _copy_checked(path, copy)


def _regular_files(store: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(store):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _copy_checked(path: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with path.open("rb") as source, tempfile.NamedTemporaryFile(dir=copy.parent, delete=False) as file:
        while block := source.read(_BLOCK):
            digest.update(block)
            file.write(block)
    if digest.hexdigest() == path.name:
        os.chmod(file.name, 0o444)
        os.replace(file.name, copy)
    else:
        os.unlink(file.name)


async def find_objects(repository: Repository, old: str, new: str, known: Path) -> list[Path]:
    """Return the files with content that `new` has and `old` has not, except those in
    the store `known`. Raises GitError.
    """
    store = objects_in(repository.common_dir)
    if not await asyncio.to_thread(store.is_dir):
        return []
    entries = split(await repository.git("diff-tree", "-r", "-z", "--no-renames", "--raw", old, new))
    blobs = [entry.split(" ")[3] for entry in entries[::2] if not entry.split(" ")[4].startswith("D")]
    sizes = await repository.git(
        "cat-file", "--batch-check=%(objectname) %(objecttype) %(objectsize)", input=_lines(blobs)
    )
    small = [line.split(" ")[0] for line in sizes.splitlines() if _may_be_pointer(line)]
    texts = await repository.git("cat-file", "--batch=", input=_lines(list(dict.fromkeys(small))))
    names = [Path(oid[:2], oid[2:4], oid) for oid in _POINTER.findall(texts)]
    return [store / name for name in names if (store / name).is_file() and not (known / name).exists()]


def _may_be_pointer(line: str) -> bool:
    words = line.split(" ")
    return words[1:2] == ["blob"] and int(words[2]) < _MAX_POINTER


def _lines(words: Sequence[str]) -> str:
    return "".join(f"{word}\n" for word in words)


def stage_objects(objects: Sequence[Path], folder: Path) -> None:
    """Put content in a folder, in the order of a store. Raises OSError."""
    for path in objects:
        copy = folder / path.name[:2] / path.name[2:4] / path.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, copy)
        except OSError:
            shutil.copyfile(path, copy)
