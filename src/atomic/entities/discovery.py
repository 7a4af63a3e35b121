"""Walk the folders of entities and parse their files; later only files that changed.

The walk ends whatever a repository contains: depth and number of entries are limited,
links back to an outer folder are found, and a file that cannot be read becomes a
diagnostic.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from atomic.base.untrusted_files import (
    MAX_BYTES,
    find_file,
    open_entry,
    open_file,
    open_folder,
    open_inner_folder,
    reason_of,
    require_regular,
)
from atomic.entities import opencode
from atomic.entities.bodies import FileBody, Stamp, read_head, read_text, stamp_of
from atomic.entities.config_folders import AnyPlace, ConfigPlace, Pattern, Place
from atomic.entities.model import Body, Diagnostic, Entity, EntityKind, FormatError, Provider, Source
from atomic.entities.parsers import Document, parse_copilot, parse_markdown

MAX_DEPTH = 10
# Files and folders in all places together.
MAX_ENTRIES = 20_000
SKILL = "SKILL.md"

_PARSERS: dict[Provider, Callable[[Document], Entity | None]] = {
    Provider.ATOMIC: parse_markdown,
    Provider.CLAUDE: parse_markdown,
    Provider.OPENCODE: opencode.parse,
    Provider.COPILOT: parse_copilot,
}
_DEEP = (Pattern.TREE, Pattern.SKILL_TREE)
_SKILLS = (Pattern.SKILLS, Pattern.SKILL_TREE)
_ENDING = {Pattern.FILES: ".md", Pattern.TREE: ".md", Pattern.PROMPTS: ".prompt.md"}
_SKIPPED = frozenset({"node_modules", ".git", "__pycache__", ".venv"})
_MISSING = (errno.ENOENT, errno.ENOTDIR)


class Record(NamedTuple):
    """The results of a file and its stamp; without a stamp it is read every time."""

    stamp: Stamp | None
    results: tuple[Entity | Diagnostic, ...]


# By path. Each place has its own, because two places may lead to the same file.
Records = dict[str, Record]


class Discovery:
    """The entities and problems found in some places."""

    def __init__(self, places: Iterable[AnyPlace]) -> None:
        self._found: dict[AnyPlace, Records] = {place: {} for place in places}
        self.entities: list[Entity] = []
        self.diagnostics: list[Diagnostic] = []

    def scan(self) -> bool:
        """Read again what has changed; return whether anything did."""
        budget = _Budget(MAX_ENTRIES)
        found: dict[AnyPlace, Records] = {}
        for place, known in self._found.items():
            if isinstance(place, ConfigPlace):
                found[place] = _read_config(place)
            else:
                walk = _Walk(place, known, budget)
                walk.enter(place.folder, "", ())
                found[place] = walk.records
        if found == self._found:
            return False
        self._found = found
        results = [result for records in found.values() for record in records.values() for result in record.results]
        self.entities = [result for result in results if isinstance(result, Entity)]
        diagnostics = (result for result in results if isinstance(result, Diagnostic))
        self.diagnostics = sorted(diagnostics, key=lambda diagnostic: (str(diagnostic.path), diagnostic.line))
        return True


class _Budget:
    """The number of entries that may still be read."""

    def __init__(self, left: int) -> None:
        self.left = left


def _read_config(place: ConfigPlace) -> Records:
    """Read a configuration file, every time: files that it names may change without it."""
    results: list[Entity | Diagnostic] = []
    path = Path(place.path)
    try:
        text = read_text(place.root, place.path)[0]
        for result in opencode.parse_config(Source(place.provider, place.location, path), text, _resolver(place)):
            results.append(Diagnostic(path, result.line, result.reason) if isinstance(result, FormatError) else result)
    except FormatError as error:
        results.append(Diagnostic(path, error.line, error.reason))
    except OSError as error:
        if error.errno not in _MISSING:
            results.append(Diagnostic(path, 1, reason_of(error)))
    return {place.path: Record(None, tuple(results))} if results else {}


def _resolver(place: ConfigPlace) -> opencode.Resolve:
    def resolve(reference: str) -> Body:
        path = os.path.join(os.path.dirname(place.path), os.path.expanduser(reference))
        try:
            return FileBody(place.files, path, stamp_of(find_file(place.files, path)), has_front_matter=False)
        except OSError as error:
            raise FormatError(f"{{file:{reference}}}: {reason_of(error)}") from error

    return resolve


# Device and inode of a folder.
Folder = tuple[int, int]


class _Walk:
    """One walk through a place; `known` has the results of the last one."""

    def __init__(self, place: Place, known: Records, budget: _Budget) -> None:
        self._place = place
        self._known = known
        self._budget = budget
        self._parse = _PARSERS[place.provider]
        self.records: Records = {}

    def enter(self, path: str, relative: str, above: tuple[Folder, ...]) -> None:
        """Walk a folder whose path may contain links. `relative` ends with a slash."""
        try:
            descriptor = open_folder(self._place.root, path)
        except OSError as error:
            if relative or error.errno not in _MISSING:
                self._complain(path, reason_of(error))
        else:
            self._folder(descriptor, path, relative, above)

    def _folder(self, descriptor: int, path: str, relative: str, above: tuple[Folder, ...]) -> None:
        """Walk an open folder and close it."""
        try:
            status = os.fstat(descriptor)
            here = (status.st_dev, status.st_ino)
            if here in above:
                self._complain(path, "a link leads back to a folder around it")
            elif len(above) > MAX_DEPTH:
                self._complain(path, f"the folders are nested deeper than {MAX_DEPTH}")
            elif above and self._place.pattern is Pattern.SKILLS:
                # The other files belong to the skill.
                self._file(descriptor, SKILL, relative)
            else:
                self._entries(descriptor, path, relative, (*above, here))
        except OSError as error:
            self._complain(path, reason_of(error))
        finally:
            os.close(descriptor)

    def _entries(self, descriptor: int, path: str, relative: str, above: tuple[Folder, ...]) -> None:
        with os.scandir(descriptor) as found:
            entries = sorted(islice(found, self._budget.left + 1), key=lambda entry: entry.name)
        for entry in entries:
            if self._budget.left == 0:
                self._complain(path, f"there are more than {MAX_ENTRIES} files and folders: the rest is not read")
                return
            self._budget.left -= 1
            if self._is_wanted(entry.name):
                self._file(descriptor, entry.name, relative)
            elif self._is_entered(entry, above):
                self._inner(descriptor, entry, f"{path}/{entry.name}", f"{relative}{entry.name}/", above)

    def _inner(
        self, descriptor: int, entry: os.DirEntry[str], path: str, relative: str, above: tuple[Folder, ...]
    ) -> None:
        if entry.is_symlink():
            self.enter(path, relative, above)
            return
        try:
            inner = open_inner_folder(descriptor, entry.name)
        except OSError as error:
            self._complain(path, reason_of(error))
        else:
            self._folder(inner, path, relative, above)

    def _is_wanted(self, name: str) -> bool:
        if name[0] == ".":
            return False
        pattern = self._place.pattern
        if pattern in _SKILLS:
            return name == SKILL and pattern is Pattern.SKILL_TREE
        return name.endswith(_ENDING[pattern]) and name.lower() != "readme.md"

    def _is_entered(self, entry: os.DirEntry[str], above: tuple[Folder, ...]) -> bool:
        if entry.name[0] == "." or entry.name in _SKIPPED or not entry.is_dir():
            return False
        return self._place.pattern in _DEEP or (self._place.pattern is Pattern.SKILLS and len(above) == 1)

    def _file(self, folder: int, name: str, relative: str) -> None:
        """Parse a file, or keep the last result if the file has not changed."""
        path = f"{self._place.folder}/{relative}{name}"
        try:
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            # A folder without a skill.
            return
        stamp: Stamp | None = None
        try:
            linked = stat.S_ISLNK(status.st_mode)
            stamp = stamp_of(find_file(self._place.root, path) if linked else require_regular(status, path, MAX_BYTES))
            known = self._known.get(path)
            if known is None or known.stamp != stamp:
                file = open_file(self._place.root, path) if linked else open_entry(folder, name)
                text, complete, stamp = read_head(file, path)
                known = Record(stamp, self._parsed(path, relative + name, text, complete, stamp))
            self.records[path] = known
        except FormatError as error:
            self._complain(path, error.reason, error.line, stamp)
        except OSError as error:
            self._complain(path, reason_of(error), 1, stamp)

    def _parsed(
        self, path: str, relative: str, text: str, complete: bool, stamp: Stamp
    ) -> tuple[Entity | Diagnostic, ...]:
        place = self._place
        body = FileBody(place.root, path, stamp, is_skill=place.kind is EntityKind.SKILL)
        source = Source(place.provider, place.location, Path(path))
        try:
            entity = self._parse(Document(place.kind, source, relative, text, complete, body, place.prefix))
        except FormatError as error:
            return (Diagnostic(source.path, error.line, error.reason),)
        return () if entity is None else (entity,)

    def _complain(self, path: str, reason: str, line: int = 1, stamp: Stamp | None = None) -> None:
        self.records[path] = Record(stamp, (Diagnostic(Path(path), line, reason),))
