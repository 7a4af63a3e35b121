"""The operations of a child process on the files in some folders, in order.

A file is identified by a number and not by its name: names are given, changed and
removed, and each of these changes reaches the disk separately. A call that changes files
in a way this module does not follow is an error, not a gap.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from tests.disk.tracer import End, Entry, Exit, run_traced

_AT_FDCWD = -100
_AT_REMOVEDIR = 0x200
_PROT_WRITE = 2
_MAP_SHARED = 1
_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class Op:
    """One successful call. `began` is the number of operations that had ended before."""

    began: int


@dataclass(frozen=True, slots=True)
class Wrote(Op):
    file: int
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Resized(Op):
    file: int
    size: int


@dataclass(frozen=True, slots=True)
class Synced(Op):
    """fsync or fdatasync of a file; both make its bytes and its size durable."""

    file: int


@dataclass(frozen=True, slots=True)
class FolderSynced(Op):
    folder: str


@dataclass(frozen=True, slots=True)
class Created(Op):
    path: str
    file: int


@dataclass(frozen=True, slots=True)
class Renamed(Op):
    path: str
    target: str
    file: int


@dataclass(frozen=True, slots=True)
class Unlinked(Op):
    path: str


@dataclass(frozen=True, slots=True)
class FolderMade(Op):
    path: str


AnyOp = Wrote | Resized | Synced | FolderSynced | Created | Renamed | Unlinked | FolderMade


@dataclass(slots=True)
class Trace:
    """The files at the beginning, assumed durable, and all later operations."""

    folders: tuple[str, ...]
    inner_folders: list[str] = field(default_factory=list[str])
    files: dict[str, int] = field(default_factory=dict[str, int])
    contents: dict[int, bytes] = field(default_factory=dict[int, bytes])
    ops: list[AnyOp] = field(default_factory=list["AnyOp"])
    threads: set[int] = field(default_factory=set[int])
    code: int = 0


def record(script: str, arguments: Sequence[str], folders: Sequence[Path], *, seconds: float = 60.0) -> Trace:
    """Run a script under the tracer and record what it does in these existing folders."""
    recorder = _Recorder([os.path.realpath(folder) for folder in folders])
    with closing(run_traced(script, arguments, seconds=seconds)) as stops:
        for stop in stops:
            match stop:
                case Entry():
                    recorder.enter(stop)
                case Exit(tid, value):
                    recorder.leave(tid, value)
                case End(code):
                    recorder.trace.code = code
    return recorder.trace


# The part before `yield` runs at the entry of a call, the rest at its exit.
_Steps = Generator[None, int, None]


class _Recorder:
    def __init__(self, folders: Sequence[str]) -> None:
        self.trace = Trace(tuple(folders))
        self._numbers = count(1)
        self._names: dict[str, int] = {}
        self._inodes: dict[tuple[int, int], int] = {}
        self._folders: set[str] = set()
        self._open: dict[int, _Steps] = {}
        for folder in folders:
            self._take_stock(folder)
        self.trace.files = dict(self._names)
        self.trace.inner_folders = sorted(self._folders.difference(folders))

    def _take_stock(self, folder: str) -> None:
        for path, _, names in os.walk(folder):
            self._folders.add(path)
            for name in names:
                file = self._new_file(os.path.join(path, name), os.stat(os.path.join(path, name)))
                self.trace.contents[file] = Path(path, name).read_bytes()

    def _new_file(self, path: str, info: os.stat_result) -> int:
        file = next(self._numbers)  # a new number even if the inode is reused
        self._names[path] = self._inodes[info.st_dev, info.st_ino] = file
        return file

    def enter(self, call: Entry) -> None:
        steps = _HANDLERS[call.call](self, call)
        with suppress(StopIteration):  # not a traced file
            next(steps)
            self._open[call.tid] = steps

    def leave(self, tid: int, value: int) -> None:
        steps = self._open.pop(tid, None)
        if steps is None:
            return
        if value < 0:
            steps.close()  # the call failed and changed nothing
            return
        with suppress(StopIteration):
            self.trace.threads.add(tid)
            steps.send(value)

    def _add(self, op: AnyOp) -> None:
        self.trace.ops.append(op)

    @property
    def _now(self) -> int:
        return len(self.trace.ops)

    # Arguments of calls

    def _path(self, call: Entry, at: int, folder_at: int | None = None) -> str | None:
        """Return the path in an argument, or None if it is outside of the traced folders."""
        name = os.fsdecode(_memory(call.tid, call.args[at], _LONGEST_PATH, until_zero=True))
        base = _AT_FDCWD if folder_at is None else _signed(call.args[folder_at])
        place = f"/proc/{call.tid}/cwd" if base == _AT_FDCWD else f"/proc/{call.tid}/fd/{base}"
        folder, name = os.path.split(os.path.join(place, name))
        path = os.path.join(os.path.realpath(folder), name)
        return path if self._is_ours(path) else None

    def _is_ours(self, path: str) -> bool:
        return any(path == folder or path.startswith(f"{folder}/") for folder in self.trace.folders)

    def _file(self, call: Entry, at: int = 0) -> int | None:
        """Return the file of a descriptor, or None if it is outside of the traced folders."""
        link = f"/proc/{call.tid}/fd/{_signed(call.args[at])}"
        try:
            path = os.readlink(link)
            info = os.stat(link)
        except OSError:
            return None  # a bad descriptor: the call will fail
        if not self._is_ours(path):
            return None
        if (info.st_dev, info.st_ino) not in self._inodes:
            raise NotImplementedError(f"{path} was made in a way that is not followed")
        return self._inodes[info.st_dev, info.st_ino]

    def _folder(self, call: Entry) -> str | None:
        with suppress(OSError):
            path = os.readlink(f"/proc/{call.tid}/fd/{_signed(call.args[0])}")
            return path if path in self._folders else None
        return None

    # Bytes

    def write(self, call: Entry) -> _Steps:
        if (file := self._file(call)) is not None:
            began = self._now
            data = _memory(call.tid, call.args[1], call.args[2])
            yield from self._wrote(call, began, file, data)

    def writev(self, call: Entry) -> _Steps:
        if (file := self._file(call)) is not None:
            began = self._now
            data = _vector(call)
            yield from self._wrote(call, began, file, data)

    def _wrote(self, call: Entry, began: int, file: int, data: bytes) -> _Steps:
        written = yield
        # The write began at the current offset minus its length, also when it appends.
        self._add(Wrote(began, file, _position(call) - written, data[:written]))

    def pwrite(self, call: Entry) -> _Steps:
        if (file := self._file(call)) is not None:
            began = self._now
            data = _memory(call.tid, call.args[1], call.args[2])
            written = yield
            self._add(Wrote(began, file, call.args[3], data[:written]))

    def pwritev(self, call: Entry) -> _Steps:
        if (file := self._file(call)) is not None:
            began = self._now
            data = _vector(call)
            written = yield
            self._add(Wrote(began, file, call.args[3], data[:written]))

    def ftruncate(self, call: Entry) -> _Steps:
        if (file := self._file(call)) is not None:
            began = self._now
            yield
            self._add(Resized(began, file, call.args[1]))

    def sync(self, call: Entry) -> _Steps:
        began = self._now
        if (folder := self._folder(call)) is not None:
            yield
            self._add(FolderSynced(began, folder))
        elif (file := self._file(call)) is not None:
            yield
            self._add(Synced(began, file))

    # Names

    def open(self, call: Entry) -> _Steps:
        yield from self._opened(call, self._path(call, 0), call.args[1])

    def openat(self, call: Entry) -> _Steps:
        yield from self._opened(call, self._path(call, 1, 0), call.args[2])

    def _opened(self, call: Entry, path: str | None, flags: int) -> _Steps:
        began = self._now
        if path is None or not flags & (os.O_CREAT | os.O_TRUNC):
            return
        fd = yield
        info = os.stat(f"/proc/{call.tid}/fd/{fd}")
        if not stat.S_ISREG(info.st_mode):
            raise NotImplementedError(f"{path} is not a regular file")
        if path not in self._names:
            self._add(Created(began, path, self._new_file(path, info)))
        elif flags & os.O_TRUNC:
            self._add(Resized(began, self._names[path], 0))

    def rename(self, call: Entry) -> _Steps:
        yield from self._renamed(self._path(call, 0), self._path(call, 1))

    def renameat(self, call: Entry) -> _Steps:
        yield from self._renamed(self._path(call, 1, 0), self._path(call, 3, 2))

    def _renamed(self, path: str | None, target: str | None) -> _Steps:
        began = self._now
        if path is None and target is None:
            return
        if path is None or target is None or path not in self._names:
            raise NotImplementedError(f"{path} became {target}: only files inside of the folders are followed")
        yield
        file = self._names[target] = self._names.pop(path)
        self._add(Renamed(began, path, target, file))

    def unlink(self, call: Entry) -> _Steps:
        yield from self._unlinked(self._path(call, 0))

    def unlinkat(self, call: Entry) -> _Steps:
        path = self._path(call, 1, 0)
        yield from self._folder_removed(path) if call.args[2] & _AT_REMOVEDIR else self._unlinked(path)

    def rmdir(self, call: Entry) -> _Steps:
        yield from self._folder_removed(self._path(call, 0))

    def _unlinked(self, path: str | None) -> _Steps:
        began = self._now
        if path is not None:
            yield
            self._names.pop(path, None)
            self._add(Unlinked(began, path))

    def _folder_removed(self, path: str | None) -> _Steps:
        began = self._now
        if path is not None:
            yield
            self._folders.discard(path)
            self._add(Unlinked(began, path))

    def mkdir(self, call: Entry) -> _Steps:
        yield from self._made(self._path(call, 0))

    def mkdirat(self, call: Entry) -> _Steps:
        yield from self._made(self._path(call, 1, 0))

    def _made(self, path: str | None) -> _Steps:
        began = self._now
        if path is not None:
            yield
            self._folders.add(path)
            self._add(FolderMade(began, path))

    # Calls that are not followed

    def mmap(self, call: Entry) -> _Steps:
        """Refuse a shared mapping, whose writes are invisible; SQLite's index is exempt."""
        writable = call.args[2] & _PROT_WRITE and call.args[3] & _MAP_SHARED
        if writable and _signed(call.args[4]) >= 0 and self._file(call, 4) is not None:
            path = os.readlink(f"/proc/{call.tid}/fd/{_signed(call.args[4])}")
            if not path.endswith("-shm"):
                raise NotImplementedError(f"{path} is written through a mapping")
        yield from ()

    def unknown_for_file(self, call: Entry) -> _Steps:
        """Refuse an unknown call whose first or third argument is a traced file."""
        if any(self._file(call, at) is not None for at in (0, 2)):
            raise NotImplementedError(f"{call.call} of a file in our folders")
        yield from ()

    def unknown(self, call: Entry) -> _Steps:
        raise NotImplementedError(f"the child uses {call.call}")


_HANDLERS: dict[str, Callable[[_Recorder, Entry], _Steps]] = {
    "write": _Recorder.write,
    "writev": _Recorder.writev,
    "pwrite64": _Recorder.pwrite,
    "pwritev": _Recorder.pwritev,
    "ftruncate": _Recorder.ftruncate,
    "fsync": _Recorder.sync,
    "fdatasync": _Recorder.sync,
    "open": _Recorder.open,
    "openat": _Recorder.openat,
    "rename": _Recorder.rename,
    "renameat": _Recorder.renameat,
    "renameat2": _Recorder.renameat,
    "unlink": _Recorder.unlink,
    "unlinkat": _Recorder.unlinkat,
    "mkdir": _Recorder.mkdir,
    "mkdirat": _Recorder.mkdirat,
    "rmdir": _Recorder.rmdir,
    "mmap": _Recorder.mmap,
    "fallocate": _Recorder.unknown_for_file,
    "copy_file_range": _Recorder.unknown_for_file,
    "sendfile": _Recorder.unknown_for_file,
    "splice": _Recorder.unknown_for_file,
    **dict.fromkeys(
        ("creat", "truncate", "link", "linkat", "symlink", "symlinkat", "pwritev2", "openat2", "io_uring_setup"),
        _Recorder.unknown,
    ),
}


def _signed(value: int) -> int:
    """Convert a register to the C int that a descriptor is."""
    return (value & 0xFFFFFFFF) - (1 << 32) * bool(value & 0x80000000)


def _memory(tid: int, address: int, size: int, *, until_zero: bool = False) -> bytes:
    with open(f"/proc/{tid}/mem", "rb", buffering=0) as memory:
        if not until_zero:
            data = os.pread(memory.fileno(), size, address)
            assert len(data) == size, "the child's memory cannot be read"
            return data
        data = b""
        while b"\0" not in data and len(data) < size:  # the next page may not be mapped
            data += os.pread(memory.fileno(), 256 - (address + len(data)) % 256, address + len(data))
        return data.partition(b"\0")[0]


def _vector(call: Entry) -> bytes:
    parts = struct.iter_unpack("QQ", _memory(call.tid, call.args[1], 16 * call.args[2]))
    return b"".join(_memory(call.tid, base, length) for base, length in parts)


def _position(call: Entry) -> int:
    with open(f"/proc/{call.tid}/fdinfo/{_signed(call.args[0])}") as lines:
        return int(lines.readline().removeprefix("pos:"))
