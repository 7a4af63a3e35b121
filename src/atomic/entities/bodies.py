"""Read entity files: the head when a file is found, the prompt when it is first used."""

from __future__ import annotations

import codecs
import os

from atomic.base.untrusted_files import MAX_BYTES, open_file, reason_of, require_regular
from atomic.entities.frontmatter import LIMIT, split
from atomic.entities.model import BodyError, FormatError

# The front matter, its markers and a BOM.
HEAD_BYTES = LIMIT + 64

# Device, inode, size and times of a file: different when the file has changed.
Stamp = tuple[int, ...]


def stamp_of(status: os.stat_result) -> Stamp:
    """Return the stamp of a file."""
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def read_head(file: int, path: str) -> tuple[str, bool, Stamp]:
    """Return the head of an open file, whether that is all of it, and its stamp.

    Closes the file. Raises FormatError or OSError.
    """
    data, status = _read_and_close(file, path, HEAD_BYTES)
    is_complete = len(data) >= status.st_size
    return _decode(data, is_complete=is_complete), is_complete, stamp_of(status)


def read_text(root: str, path: str) -> tuple[str, Stamp]:
    """Return the text of a file inside a root, and its stamp.

    Raises FormatError or OSError.
    """
    data, status = _read_and_close(open_file(root, path), path, MAX_BYTES)
    return _decode(data, is_complete=True), stamp_of(status)


def _read_and_close(file: int, path: str, limit: int) -> tuple[bytes, os.stat_result]:
    try:
        status = require_regular(os.fstat(file), path, MAX_BYTES)
        size = min(status.st_size, limit)
        data = os.read(file, size)
        while len(data) < size:
            more = os.read(file, size - len(data))
            if not more:
                break
            data += more
    finally:
        os.close(file)
    return data, status


def _decode(data: bytes, *, is_complete: bool) -> str:
    """Decode UTF-8; a head may end inside a character.

    Raises FormatError, with the line.
    """
    try:
        text = codecs.utf_8_decode(data, "strict", is_complete)[0]
    except UnicodeDecodeError as error:
        problem = "the text is UTF-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "the text is not UTF-8"
        raise FormatError(problem, data.count(b"\n", 0, error.start) + 1) from error
    if "\0" in text:
        raise FormatError("there is a NUL character", text.count("\n", 0, text.index("\0")) + 1)
    return text


class FileBody:
    """The prompt in a file, read when it is first needed."""

    __slots__ = ("has_front_matter", "is_skill", "path", "root", "stamp")

    def __init__(
        self, root: str, path: str, stamp: Stamp, *, is_skill: bool = False, has_front_matter: bool = True
    ) -> None:
        self.root = root
        self.path = path
        self.stamp = stamp
        self.is_skill = is_skill
        self.has_front_matter = has_front_matter

    def read(self) -> str:
        """Return the text after the front matter. Raises BodyError."""
        try:
            text = read_text(self.root, self.path)[0]
        except FormatError as error:
            raise BodyError(self.path, error.reason) from error
        except OSError as error:
            raise BodyError(self.path, reason_of(error)) from error
        return split(text).body.strip() if self.has_front_matter else text

    def base_directory(self) -> str | None:
        """Return the folder of a skill that has more files than its `SKILL.md`, else
        None.
        """
        if not self.is_skill:
            return None
        folder = os.path.dirname(self.path)
        try:
            with os.scandir(folder) as entries:
                has_more = any(entry.name != "SKILL.md" and entry.name[0] != "." for entry in entries)
        except OSError as error:
            raise BodyError(folder, reason_of(error)) from error
        return folder if has_more else None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileBody) and (self.path, self.stamp) == (other.path, other.stamp)

    def __hash__(self) -> int:
        return hash((self.path, self.stamp))

    def __repr__(self) -> str:
        return f"FileBody({self.path!r}, {self.stamp})"
