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
from atomic.processes.temporary_folders import find_leftovers, temporary_prefix
from atomic.workspaces.folders import remove_tree

_POINTER = re.compile(
    r"^version https://git-lfs\.github\.com/spec/v1\n(?:[\w.-]+ .*\n)*?oid sha256:([0-9a-f]{64})$", re.M
)
_MAX_POINTER = 1024  # bytes
_NAME = re.compile(r"[0-9a-f]{64}")


def objects_in(git_folder: Path) -> Path:
    """Return the folder with the content of big files."""
    return git_folder / "lfs" / "objects"


async def keep_objects(repository: Repository, stores: Sequence[Path]) -> None:
    """Copy content that the user's repository lacks from stores of a workspace.

    A worker may have written anything there: a file counts if its content fits its
    name. Raises OSError.
    """
    await asyncio.to_thread(remove_unfinished, repository.common_dir)
    for store in stores:
        await asyncio.to_thread(_copy_new, store, repository.common_dir)


def remove_unfinished(common_dir: Path) -> None:
    """Remove the copies that killed processes have begun. Raises OSError."""
    for folder in _places(common_dir):
        for left in find_leftovers(str(folder)):
            remove_tree(Path(left))


def _places(common_dir: Path) -> list[Path]:
    """Return the folders above an object that may have an unfinished copy in them."""
    return [common_dir, common_dir / "lfs", objects_in(common_dir)]


def _copy_new(store: Path, common_dir: Path) -> None:
    target = objects_in(common_dir)
    for path in _regular_files(store):
        copy = target / path.name[:2] / path.name[2:4] / path.name
        # Nothing is written for a file with a false name, which may be huge.
        if _NAME.fullmatch(path.name) and not copy.exists() and _has_its_name(path):
            _copy(path, copy, common_dir)


def _regular_files(store: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(store):
        for name in names:
            path = Path(folder, name)
            if path.is_file() and not path.is_symlink():
                yield path


def _has_its_name(path: Path) -> bool:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == path.name


def _copy(path: Path, copy: Path, common_dir: Path) -> None:
    """Copy a file. It and its new folders get their names when it is complete."""
    place = next(folder for folder in reversed(_places(common_dir)) if folder.is_dir())
    made = Path(tempfile.mkdtemp(prefix=temporary_prefix("lfs"), dir=place))
    try:
        way = copy.relative_to(place)
        (made / way).parent.mkdir(parents=True)
        shutil.copyfile(path, made / way)
        if _has_its_name(made / way):
            os.chmod(made / way, 0o444)
            _move_in(made, place, way)
    finally:
        remove_tree(made)


def _move_in(source: Path, target: Path, way: Path) -> None:
    """Move the first part of a path that the target does not have."""
    for part in way.parts:
        source = source / part
        target = target / part
        try:
            if not target.exists():
                source.rename(target)
                return
        except OSError:
            if not target.exists():  # else another process has just made it
                raise


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
        copy = _make_place(path, folder)
        try:
            os.link(path, copy)
        except OSError:
            shutil.copyfile(path, copy)


def copy_objects(objects: Sequence[Path], folder: Path) -> None:
    """Put copies of content in a folder, in which programs can change them. Raises
    OSError.
    """
    for path in objects:
        shutil.copyfile(path, _make_place(path, folder))


def _make_place(path: Path, folder: Path) -> Path:
    place = folder / path.name[:2] / path.name[2:4] / path.name
    place.parent.mkdir(parents=True, exist_ok=True)
    return place
