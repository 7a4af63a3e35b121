"""Correct absolute paths in copied dependencies.

A virtual environment, `node_modules` or a build folder names the folder that it was
made in: editable installs, first lines of scripts, links. In a copy at another path a
check would run the code of the original. Such paths in small text files and in links
are replaced by paths in the copy. Other files that contain one are only found, so that
a user can be warned.
"""

from __future__ import annotations

import asyncio
import json
import mmap
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec

from atomic.base.files import replace_file
from atomic.git import find_repository
from atomic.workspaces.base import Base, unfinished_name

MAX_TEXT = 4_000_000  # bytes of a file that is changed
# Python corrects the paths in compiled files when it loads them.
_HARMLESS = (".pyc",)


class CopiedPaths(msgspec.Struct, frozen=True):
    """Files of a folder with paths that are wrong in a copy, by their relative paths.

    `unchangeable` are binary or very big.
    """

    texts: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    unchangeable: tuple[str, ...] = ()


async def foreign_paths(base: Base) -> tuple[str, ...]:
    """Return ignored files of a base that name its place and cannot be corrected.

    In a `clone` they may lead a program to the user's checkout. Raises GitError,
    OSError.
    """
    return (await copied_paths_of(base)).unchangeable


async def copied_paths_of(base: Base) -> CopiedPaths:
    """Return the files of a base that a clone must correct.

    They are searched once: a base does not change. Raises GitError, OSError.
    """
    known = base.folder.with_name(f"{base.folder.name}.paths.json")
    if await asyncio.to_thread(known.is_file):
        return msgspec.json.decode(await asyncio.to_thread(known.read_bytes), type=CopiedPaths)
    found = await find_copied_paths(base.folder, places_of(base))
    await asyncio.to_thread(replace_file, known, msgspec.json.encode(found))
    return found


def places_of(base: Base) -> tuple[Path, ...]:
    """Return the folders where the ignored files of a base were made."""
    return base.root, base.folder, unfinished_name(base.folder)


async def find_copied_paths(folder: Path, places: Sequence[Path]) -> CopiedPaths:
    """Search the ignored files of a checkout for paths. Raises GitError, OSError."""
    repository = find_repository(folder)
    if repository is None:
        return CopiedPaths()
    ignored = await repository.ignored()
    return await asyncio.to_thread(_find, folder, [path.rstrip("/") for path in ignored], places)


def _find(root: Path, names: Sequence[str], places: Sequence[Path]) -> CopiedPaths:
    forms = {form for place in places for form in _forms(place)}
    pattern = _pattern(forms)
    texts: list[str] = []
    links: list[str] = []
    others: list[str] = []
    for path in _files(root, names):
        status = path.lstat()
        name = str(path.relative_to(root))
        if stat.S_ISLNK(status.st_mode):
            if pattern.match(os.fsencode(os.readlink(path))):
                links.append(name)
        elif stat.S_ISREG(status.st_mode) and status.st_size and not name.endswith(_HARMLESS):
            kind = _kind(path, status.st_size, forms, pattern)
            if kind is not None:
                (texts if kind == "text" else others).append(name)
    return CopiedPaths(tuple(sorted(texts)), tuple(sorted(links)), tuple(sorted(others)))


def _files(root: Path, names: Sequence[str]) -> Iterator[Path]:
    for name in names:
        top = root / name
        if top.is_symlink() or not top.is_dir():
            yield top
            continue
        for folder, folders, files in os.walk(top):
            links = [one for one in folders if os.path.islink(os.path.join(folder, one))]
            for one in (*files, *links):
                yield Path(folder, one)


def _kind(path: Path, size: int, forms: Collection[bytes], pattern: re.Pattern[bytes]) -> str | None:
    """Return "text" or "other" for a file that has one of the paths, else None."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as data:
        # A plain search is many times faster than the pattern.
        if all(data.find(form) < 0 for form in forms) or not pattern.search(data):
            return None
        return "text" if size <= MAX_TEXT and data.find(b"\0") < 0 else "other"


def correct_paths(folder: Path, found: CopiedPaths, places: Sequence[Path]) -> None:
    """Let the files of a copy name the copy instead of `places`. Raises OSError."""
    old = [form for place in places for form in _forms(place)]
    new = _forms(folder) * len(places)
    replacements = dict(zip(old, new, strict=True))
    pattern = _pattern(old)

    def replaced(text: bytes) -> bytes:
        return pattern.sub(lambda match: replacements[match.group()], text)

    for name in found.texts:
        path = folder / name
        _replace(path, replaced(path.read_bytes()))
    for name in found.links:
        path = folder / name
        target = replaced(os.fsencode(os.readlink(path)))
        path.unlink()
        os.symlink(target, os.fsencode(path))


def _replace(path: Path, text: bytes) -> None:
    """Replace a file, with its mode and time: build tools compare times."""
    status = path.stat()
    path.chmod(stat.S_IMODE(status.st_mode) | stat.S_IWUSR)
    path.write_bytes(text)
    path.chmod(stat.S_IMODE(status.st_mode))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _forms(place: Path) -> list[bytes]:
    """Return a path as files have it: plain, in an address, and in JSON."""
    text = str(place)
    return [os.fsencode(text), quote(os.fsencode(text)).encode(), json.dumps(text)[1:-1].encode()]


def _pattern(forms: Collection[bytes]) -> re.Pattern[bytes]:
    """Return a pattern of whole paths: not a part of a longer name.

    A path may follow an option of one letter, as in `-I/home/ada/project`.
    """
    longest_first = sorted(set(forms), key=len, reverse=True)
    paths = b"|".join(re.escape(form) for form in longest_first)
    return re.compile(rb"(?:(?<![\w.~-])|(?<=-[A-Za-z]))(?:" + paths + rb")(?![\w.~%\x80-\xff-])")
