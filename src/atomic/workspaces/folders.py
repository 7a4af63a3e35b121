"""Copy, measure and remove folders."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from atomic.processes import execute

# Blocks are shared with the copy where the file system can.
_COPY = ("cp", "-cRp") if sys.platform == "darwin" else ("cp", "-a", "--reflink=auto")


async def copy_tree(source: Path, target: Path) -> None:
    """Copy a file or folder to a path that does not exist yet.

    Raises ExecError, OSError.
    """
    done = await execute(*_COPY, "--", source, target, timeout=None)
    if done.exit_code != 0:
        raise OSError(f"cannot copy {source}: {done.stderr.strip()}")


async def copy_tree_without(source: Path, target: Path, excluded: Path) -> None:
    """Copy a folder, except one inside of it. The paths have no links in them.

    Raises ExecError, OSError.
    """
    if not excluded.is_relative_to(source):
        await copy_tree(source, target)
        return
    for entry in await asyncio.to_thread(_make_like, source, target):
        if not excluded.is_relative_to(entry):
            await copy_tree(entry, target / entry.name)
        elif entry != excluded:
            await copy_tree_without(entry, target / entry.name, excluded)


def _make_like(source: Path, target: Path) -> list[Path]:
    """Make a folder with the mode and times of another one, and return its entries."""
    target.mkdir()
    shutil.copystat(source, target)
    return sorted(source.iterdir())


def link_tree(source: Path, target: Path) -> int:
    """Link all files of a folder; copy them to another file system.

    Files that the target has are left as they are. Return how many files were new, or
    were removed during the copy.
    """
    changed = 0
    for folder, name in _files(source):
        copy = target / folder.relative_to(source) / name
        if copy.exists():
            continue
        changed += 1
        copy.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(folder / name, copy)
        except FileNotFoundError:
            continue
        except OSError:
            _copy_file(folder / name, copy)
    return changed


def _copy_file(source: Path, target: Path) -> None:
    """Copy a file, unless it is gone."""
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError:
        target.unlink(missing_ok=True)


def _files(source: Path) -> Iterator[tuple[Path, str]]:
    for folder, _, names in os.walk(source):
        for name in names:
            yield Path(folder), name


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder.

    Files that the user's programs remove at the same time do not count.
    """
    if path.is_symlink() or not path.is_dir():
        return _file_size(path)
    total = 0
    for folder, _, names in os.walk(path):
        total += sum(_file_size(os.path.join(folder, name)) for name in names)
    return total


def _file_size(path: str | Path) -> int:
    try:
        return os.lstat(path).st_size
    except FileNotFoundError:
        return 0


def make_readable(folder: Path) -> None:
    """Give the owner the right to read a folder, and all files and folders below it.

    Git leaves out what it cannot read. Raises OSError.
    """
    if folder.is_dir():
        _let_read(folder, 0o700)
    for parent, folders, files in os.walk(folder):
        for names, wanted in ((folders, 0o700), (files, 0o400)):
            for name in names:
                _let_read(os.path.join(parent, name), wanted)


def _let_read(path: str | Path, wanted: int) -> None:
    mode = os.lstat(path).st_mode
    if (stat.S_ISREG(mode) or stat.S_ISDIR(mode)) and mode & wanted != wanted:
        os.chmod(path, stat.S_IMODE(mode) | wanted)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all its content, also read-only folders in it.

    A program that is being killed may still write or remove a file. Raises OSError.
    """
    for last in (False, False, True):
        try:
            _remove_once(folder)
        except OSError as error:
            if last or error.errno not in (errno.ENOTEMPTY, errno.ENOENT):
                raise


def _remove_once(folder: Path) -> None:
    if not folder.is_dir():
        return
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = os.path.join(parent, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(folder)
