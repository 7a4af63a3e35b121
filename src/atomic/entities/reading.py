"""Read files of strangers: only regular ones, only inside a folder, only so much.

A folder is opened step by step from its root (a path without links), and no step follows a link. A link is resolved
first, checked, and then opened the same way. So whoever swaps a folder for a link in between gets an error, not our
eyes. A pipe or a device is never opened: that alone can hang, or do something.
"""

from __future__ import annotations

import codecs
import os
import stat

from atomic.entities.errors import BodyError, FormatError
from atomic.entities.frontmatter import LIMIT, split

HEAD = LIMIT + 64  # the front matter, its markers and a BOM
FILE_LIMIT = 1024 * 1024  # bytes of a whole file

_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

Stamp = tuple[int, ...]
"""Changes when a file does: its device, inode, size and times."""


def stamp_of(status: os.stat_result) -> Stamp:
    """The stamp of a file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def regular(status: os.stat_result) -> os.stat_result:
    """The state, if it is that of a file that may be read. Raises FormatError."""
    if not stat.S_ISREG(status.st_mode):
        raise FormatError("it is a folder" if stat.S_ISDIR(status.st_mode) else "it is no regular file")
    if status.st_size > FILE_LIMIT:
        raise FormatError("it is larger than 1 MB")
    return status


def open_folder(root: str, folder: str) -> int:
    """A descriptor of a folder inside a root. Raises FormatError if it leads out, OSError if it cannot be opened."""
    return _open(root, _inside(root, folder), _FOLDER)


def open_inner(folder: int, name: str) -> int:
    """A descriptor of a folder in an open one. Raises OSError, also for a link."""
    return os.open(name, _FOLDER, dir_fd=folder)


def find_file(root: str, path: str) -> os.stat_result:
    """The state of the regular file that a path leads to. Raises FormatError or OSError."""
    return regular(os.stat(_inside(root, path), follow_symlinks=False))


def open_file(root: str, path: str) -> int:
    """A descriptor of a regular file inside a root. Raises FormatError or OSError."""
    real = _inside(root, path)
    regular(os.stat(real, follow_symlinks=False))
    return _open(root, real, _FILE)


def open_entry(folder: int, name: str) -> int:
    """A descriptor of a file in an open folder. Raises OSError, also for a link."""
    return os.open(name, _FILE, dir_fd=folder)


def read_head(file: int) -> tuple[str, bool, Stamp]:
    """The head of a file as text, whether that is all, and its stamp; closes it. Raises FormatError or OSError."""
    try:
        status = regular(os.fstat(file))
        data = _read(file, min(status.st_size, HEAD))
    finally:
        os.close(file)
    complete = len(data) >= status.st_size
    return decode(data, complete), complete, stamp_of(status)


def read_text(root: str, path: str) -> tuple[str, Stamp]:
    """All of a file as text, and its stamp. Raises FormatError or OSError."""
    file = open_file(root, path)
    try:
        status = regular(os.fstat(file))
        data = _read(file, status.st_size)
    finally:
        os.close(file)
    return decode(data, complete=True), stamp_of(status)


def decode(data: bytes, complete: bool) -> str:
    """UTF-8; the last character of a head may be cut. Raises FormatError with the line."""
    try:
        text = codecs.utf_8_decode(data, "strict", complete)[0]
    except UnicodeDecodeError as error:
        kind = "UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "no UTF-8"
        raise FormatError(f"the text is {kind}", data.count(b"\n", 0, error.start) + 1) from error
    if "\0" in text:
        raise FormatError("there is a NUL character", text.count("\n", 0, text.index("\0")) + 1)
    return text


def says(error: OSError) -> str:
    """What an error of the system means for somebody who wonders about a file."""
    return f"it cannot be read: {error.strerror or error}"


class FileBody:
    """The prompt in a file; whoever reads it first gets what is there then."""

    __slots__ = ("path", "root", "skill", "stamp", "whole")

    def __init__(self, root: str, path: str, stamp: Stamp, *, skill: bool = False, whole: bool = False) -> None:
        self.root, self.path, self.stamp = root, path, stamp
        self.skill = skill  # the folder around it is its own
        self.whole = whole  # there is no front matter in it

    def read(self) -> str:
        """The text after the front matter. Raises BodyError."""
        try:
            text = read_text(self.root, self.path)[0]
        except FormatError as error:
            raise BodyError(self.path, error.reason) from error
        except OSError as error:
            raise BodyError(self.path, says(error)) from error
        return text if self.whole else split(text).body.strip()

    def base_directory(self) -> str | None:
        """The folder of a skill that has more files than its `SKILL.md`."""
        if not self.skill:
            return None
        folder = os.path.dirname(self.path)
        try:
            with os.scandir(folder) as entries:
                more = any(entry.name != "SKILL.md" and entry.name[0] != "." for entry in entries)
                return folder if more else None
        except OSError as error:
            raise BodyError(folder, says(error)) from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileBody) and (self.path, self.stamp) == (other.path, other.stamp)

    def __hash__(self) -> int:
        return hash((self.path, self.stamp))

    def __repr__(self) -> str:
        return f"FileBody({self.path!r}, {self.stamp})"


def _inside(root: str, path: str) -> str:
    """The path without links. Raises FormatError if it is not inside, OSError if it is not there."""
    real = os.path.realpath(path, strict=True)
    if real != root and not real.startswith(f"{root.rstrip('/')}/"):
        raise FormatError("it leads out of the folder that may be read")
    return real


def _open(root: str, real: str, flags: int) -> int:
    """Open what `_inside` gave, step by step from the root."""
    steps = [step for step in real[len(root) :].split("/") if step]
    folder = os.open(root, _STEP if steps else flags)
    for index, step in enumerate(steps):
        try:
            inner = os.open(step, flags if index == len(steps) - 1 else _STEP, dir_fd=folder)
        finally:
            os.close(folder)
        folder = inner
    return folder


def _read(file: int, size: int) -> bytes:
    data = os.read(file, size)
    while len(data) < size and (more := os.read(file, size - len(data))):
        data += more
    return data
