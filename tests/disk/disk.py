"""A model of a disk that replays a trace and can lose power at any point.

Synced bytes stay. Each sector of 512 bytes that was written since the last sync may hold
any of its contents, independent of its neighbours: writes are lost, torn and reordered.
Sizes and names behave like sectors: old or new. The model assumes nothing about the file
system; a real one keeps more order than this.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random

from tests.disk.trace import (
    AnyOp,
    Created,
    FolderMade,
    FolderSynced,
    Renamed,
    Resized,
    Synced,
    Trace,
    Unlinked,
    Wrote,
)

SECTOR = 512
_FOLDER = -1  # used in place of a file's number

Image = dict[str, bytes | None]  # path -> content, None for a folder


class Fate(StrEnum):
    """The fate of unsynced data when the power fails."""

    DROPPED = "dropped"
    KEPT = "kept"
    TORN = "torn"


@dataclass(slots=True)
class _File:
    durable: bytearray
    pending: list[tuple[int, Wrote | Resized]] = field(default_factory=list[tuple[int, Wrote | Resized]])

    def sync(self, began: int) -> None:
        covered = [op for position, op in self.pending if position < began]
        for op in covered:
            _apply(self.durable, op)
        del self.pending[: len(covered)]

    def newest(self) -> bytes:
        data = bytearray(self.durable)
        for _, op in self.pending:
            _apply(data, op)
        return bytes(data)

    def torn(self, choose: Random) -> bytes:
        """Return one of the contents that the file may have."""
        newest = choose.choice((0.5, 0.9, 0.99))  # probability that a sector is the newest
        data = bytearray(self.durable)
        sizes = [len(self.durable)]
        versions: dict[int, list[bytes]] = {}
        for _, op in self.pending:
            touched = _sectors(data, op)
            for sector in touched:
                versions.setdefault(sector, [_sector(data, sector)])
            _apply(data, op)
            for sector in touched:
                versions[sector].append(_sector(data, sector))
            sizes.append(len(data))
        size = sizes[-1] if choose.random() < newest else choose.choice(sizes)
        data = bytearray(self.durable)
        data.extend(bytes(max(0, max(sizes) - len(data)) + SECTOR))
        for sector, contents in versions.items():
            content = contents[-1] if choose.random() < newest else choose.choice(contents)
            data[sector * SECTOR : (sector + 1) * SECTOR] = content
        return bytes(data[:size])


def _apply(data: bytearray, op: Wrote | Resized) -> None:
    if isinstance(op, Resized):
        del data[op.size :]
        data.extend(bytes(op.size - len(data)))
        return
    data.extend(bytes(max(0, op.offset - len(data))))
    data[op.offset : op.offset + len(op.data)] = op.data


def _sectors(data: bytearray, op: Wrote | Resized) -> range:
    if isinstance(op, Wrote):
        return range(op.offset // SECTOR, -(-(op.offset + len(op.data)) // SECTOR))
    return range(op.size // SECTOR, -(-len(data) // SECTOR))


def _sector(data: bytearray, number: int) -> bytes:
    return bytes(data[number * SECTOR : (number + 1) * SECTOR]).ljust(SECTOR, b"\0")


# Names that get or lose their file in one step.
_Change = tuple[tuple[str, int | None], ...]


@dataclass(slots=True)
class _Folder:
    durable: dict[str, int] = field(default_factory=dict[str, int])
    pending: list[tuple[int, _Change]] = field(default_factory=list[tuple[int, _Change]])

    def sync(self, began: int) -> None:
        covered = [change for position, change in self.pending if position < began]
        self.durable = _changed(self.durable, covered)
        del self.pending[: len(covered)]

    def names(self, fate: Fate, choose: Random) -> dict[str, int]:
        kept = {Fate.DROPPED: 0.0, Fate.KEPT: 1.0, Fate.TORN: choose.choice((0.2, 0.5, 0.9))}[fate]
        return _changed(self.durable, [change for _, change in self.pending if choose.random() < kept])


def _changed(names: dict[str, int], changes: list[_Change]) -> dict[str, int]:
    names = dict(names)
    for change in changes:
        for name, file in change:
            if file is None:
                names.pop(name, None)
            else:
                names[name] = file
    return names


class Disk:
    """The files of a trace: durable content and changes that are not synced yet."""

    def __init__(self, trace: Trace) -> None:
        self._roots = trace.folders
        self._files = {file: _File(bytearray(content)) for file, content in trace.contents.items()}
        self._folders = {folder: _Folder() for folder in trace.folders}
        for path in trace.inner_folders:
            self._folders[path] = _Folder()
            self._folder_of(path).durable[path] = _FOLDER
        for path, file in trace.files.items():
            self._folder_of(path).durable[path] = file
        self._position = 0

    def _folder_of(self, path: str) -> _Folder:
        return self._folders[os.path.dirname(path)]

    def do(self, op: AnyOp) -> None:
        """Replay the next operation."""
        match op:
            case Wrote(file=file) | Resized(file=file):
                self._files[file].pending.append((self._position, op))
            case Synced(began, file):
                self._files[file].sync(began)
            case FolderSynced(began, folder):
                self._folders[folder].sync(began)
            case Created(_, path, file):
                self._files[file] = _File(bytearray())
                self._name(path, (path, file))
            case FolderMade(_, path):
                self._folders[path] = _Folder()
                self._name(path, (path, _FOLDER))
            case Renamed(_, path, target, file):
                self._rename(path, target, file)
            case Unlinked(_, path):
                self._name(path, (path, None))
        self._position += 1

    def _name(self, path: str, *changes: tuple[str, int | None]) -> None:
        self._folder_of(path).pending.append((self._position, changes))

    def _rename(self, path: str, target: str, file: int) -> None:
        if os.path.dirname(path) == os.path.dirname(target):
            self._name(path, (path, None), (target, file))
            return
        # Two folders are synced separately: for a while the file may have both names, or neither.
        self._name(target, (target, file))
        self._name(path, (path, None))

    def image(self, fate: Fate, choose: Random | None = None) -> Image:
        """Return the files that are on the disk after a power cut here."""
        choose = choose or Random(0)
        image: Image = {}
        for root in self._roots:
            self._add_folder(image, root, fate, choose)
        return image

    def _add_folder(self, image: Image, folder: str, fate: Fate, choose: Random) -> None:
        image[folder] = None
        for path, file in sorted(self._folders[folder].names(fate, choose).items()):
            if file == _FOLDER:
                self._add_folder(image, path, fate, choose)
            else:
                image[path] = self._content(self._files[file], fate, choose)

    def _content(self, file: _File, fate: Fate, choose: Random) -> bytes:
        if fate is Fate.TORN:  # some files may have reached the disk, others not
            fate = choose.choice((Fate.DROPPED, Fate.KEPT, Fate.TORN, Fate.TORN))
        match fate:
            case Fate.DROPPED:
                return bytes(file.durable)
            case Fate.KEPT:
                return file.newest()
            case Fate.TORN:
                return file.torn(choose)


def relative(image: Image, folder: Path) -> Image:
    """Return the part of an image below a folder, with paths relative to it."""
    inside = {path: content for path, content in image.items() if Path(path).is_relative_to(folder)}
    return {str(Path(path).relative_to(folder)): content for path, content in inside.items()}


def write_image(image: Image, folder: Path) -> None:
    """Write an image with relative paths into an existing folder."""
    for path, content in sorted(image.items(), key=lambda item: item[0]):
        if content is None:
            (folder / path).mkdir(exist_ok=True)
        else:
            (folder / path).write_bytes(content)


def files_in(folders: tuple[str, ...]) -> Image:
    """Return the current content of the folders."""
    image: Image = {}
    for root in folders:
        for folder, _, names in os.walk(root):
            image[folder] = None
            image |= {os.path.join(folder, name): Path(folder, name).read_bytes() for name in names}
    return image
