"""Files that git ignores and that can still decide whether a check passes.

A worker could write a `conftest.py` into an ignored folder, or replace
`.venv/bin/pytest` or a script that a check names. These files are listed before and after each turn; the evidence
names those that a turn has changed. Ignored files that a turn deletes (`git clean -x`)
cannot be restored; the report names them. Compiled Python that a turn leaves in a
`__pycache__` is removed, because Python would run it instead of the source.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from atomic.git import find_repository
from atomic.ralph.changed_tests import named_files
from atomic.ralph.file_copies import content_of
from atomic.ralph.file_names import shown
from atomic.sessions.facts import Facts

FACT = "hidden_files"
REVIEW = "review "  # prefix of a review's name, in place of a task
MAX_ENTRIES = 300_000  # of folders that are read
MAX_FILES = 5_000
SLACK = 2.0  # seconds: file times may be coarse
_STEERING = (
    *("conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth", "pytest.ini", ".pytest.ini", "pytest.toml"),
    *("tox.ini", ".coveragerc", ".npmrc", ".gitignore", ".gitattributes", "*.pyc"),
)
_PACKAGES = ("node_modules", "site-packages")  # third-party code: only its top level counts
_TOOL_FOLDERS = (".bin", "bin", "Scripts")
_RUNNERS = {"npm", "npx", "pnpm", "yarn", "bun", "bunx"}  # run whatever is in node_modules/.bin
MAX_IGNORED = 1_000  # whose deletion is noticed
_OUTPUTS = ("*.pyc", "__pycache__", "*_cache", "node_modules", "target", "dist", "build", "*.o", "*.log")
_OF_GIT = ("info/exclude", "info/attributes")


class Listing(msgspec.Struct, frozen=True):
    """The files that count, and where the walk stopped, if it did."""

    # Path and digest of each file. Not a mapping: redaction would replace the value
    # under a name such as `token.pth`. A digest covers the path too, because redaction
    # may change the path itself.
    digests: list[tuple[str, str]] = []
    cut: str = ""  # the first folder beyond the limit

    def differing(self, other: Listing) -> set[str]:
        """Return the files that differ and that both listings cover."""
        differing = {digest for _, digest in self.digests} ^ {digest for _, digest in other.digests}
        paths = {path for path, digest in (*self.digests, *other.digests) if digest in differing}
        return {path for path in paths if self._has_seen(path) and other._has_seen(path)}

    def _has_seen(self, path: str) -> bool:
        if not self.cut or path.startswith(".git/"):
            return True
        return Path(path).parent.parts < Path(self.cut).parts  # the walk is in the order of names


class Hidden(msgspec.Struct, frozen=True):
    """The last listing and the changes by task; a fact of the run."""

    listing: Listing = Listing()
    changed: dict[str, list[str]] = {}  # by task: the files that its turns have changed
    since: float = 0.0  # when the first open turn began
    deleted: list[str] = []  # ignored files and folders that are gone after a turn


_open_turns: Counter[Path] = Counter()  # by session folder, in this process


def hidden_changes_of(facts: Mapping[str, Any], prefix: str) -> list[str]:
    """Return the files that turns under names with this prefix have changed."""
    changed = msgspec.convert(facts.get(FACT, {}), Hidden).changed
    return sorted({path for name, paths in changed.items() if name.startswith(prefix) for path in paths})


def deleted_ignored(facts: Mapping[str, Any]) -> list[str]:
    """Return the ignored files and folders that were gone after a turn."""
    return msgspec.convert(facts.get(FACT, {}), Hidden).deleted


class HiddenFiles:
    """The files of a checkout that git does not show.

    `commands` are the checks, which run in `cwd`.
    """

    def __init__(self, facts: Facts, session: Path, root: Path, cwd: Path, commands: Sequence[str]) -> None:
        self._facts = facts
        self._session = session
        self._root = root
        self._cwd = cwd
        self._commands = commands
        self._ignored: list[str] = []  # before the turn

    @property
    def _known(self) -> Hidden:
        found: Any = self._facts.get(FACT, {})
        return msgspec.convert(found, Hidden)

    def changed_by(self, task: str) -> list[str]:
        return self._known.changed.get(task, [])

    async def begin_turn(self) -> str:
        """List the files, unless another turn is running or was cut off.

        Return the first folder that is not watched, if that is new.
        """
        cut = ""
        repository = find_repository(self._root)
        ignored = [] if repository is None else await repository.ignored()
        self._ignored = [path for path in ignored if not _is_output(path)][:MAX_IGNORED]
        if not self._known.since:
            since = time.time()
            found = await asyncio.to_thread(list_files, self._root, self._cwd, self._commands)
            known = self._known
            if not known.since:  # no other turn has begun during the listing
                cut = "" if known.listing.cut else found.cut
                self._facts.set(FACT, msgspec.structs.replace(known, listing=found, since=since))
        _open_turns[self._session] += 1
        return cut

    async def end_turn(self, task: str) -> None:
        """Record the files that the turn has changed, and remove caches that it has
        left.
        """
        try:
            if since := self._known.since:
                await self._remove_caches(since - SLACK)
            found = await asyncio.to_thread(list_files, self._root, self._cwd, self._commands)
        finally:
            _open_turns[self._session] -= 1
        known = self._known  # another turn may have ended during the listing
        since = known.since if _open_turns[self._session] else 0.0
        deleted = sorted({*known.deleted, *_missing(self._root, self._ignored)})
        now = msgspec.structs.replace(known, listing=found, since=since, deleted=deleted)
        if now != known:
            self._facts.set(FACT, now)
        self.note(task, known.listing.differing(found))

    def note(self, task: str, paths: Collection[str]) -> None:
        """Record files that a turn has changed."""
        known = self._known
        if new := {*paths}.difference(known.changed.get(task, ())):
            changed = {**known.changed, task: sorted({*known.changed.get(task, ()), *new})}
            self._facts.set(FACT, msgspec.structs.replace(known, changed=changed))

    async def _remove_caches(self, since: float) -> None:
        """Remove compiled Python that was written since then; Python compiles it again.

        Tracked files are kept.
        """
        caches = await asyncio.to_thread(lambda: list(_caches(self._root, since)))
        repository = find_repository(self._root)
        if caches and repository is not None:
            tracked = set((await repository.git("ls-files", "-z")).split("\0"))
            caches = [path for path in caches if path.removeprefix(f"{repository.root}/") not in tracked]
        for path in caches:
            with suppress(OSError):
                os.unlink(path)


def _missing(root: Path, paths: Sequence[str]) -> set[str]:
    return {shown(path) for path in paths if not os.path.lexists(root / path)}


def _is_output(path: str) -> bool:
    name = os.path.basename(path.rstrip("/"))
    return any(fnmatchcase(name, pattern) for pattern in _OUTPUTS)


def list_files(root: Path, cwd: Path, commands: Sequence[str]) -> Listing:
    """Return the files that count, each with a digest of path and content."""
    paths, cut = _paths(root, commands)
    named = _named_by(commands, root, cwd)
    places = {**{path: root / path for path in (*paths, *named)}, **_files_of_git(root)}
    contents = {path: content_of(places[path]) for path in sorted(places)}
    digests = [(shown(path), sha256(os.fsencode(f"{path}\0{text}")).hexdigest()) for path, text in contents.items()]
    return Listing(digests, cut)


def _paths(root: Path, commands: Sequence[str]) -> tuple[list[str], str]:
    """Return configuration files and tools, and the first folder beyond the limit, if
    any.
    """
    words = {word for command in commands for word in re.split(r"[\s;|&()<>\"'`=,:]+", command)}
    tools = {os.path.basename(word) for word in words if word}
    found: list[str] = []
    left = MAX_ENTRIES
    for folder, names, entries in _walk(root):
        is_tools = os.path.basename(folder) in _TOOL_FOLDERS and _is_tool_folder(folder)
        runs_all = is_tools and folder.endswith("node_modules/.bin") and not tools.isdisjoint(_RUNNERS)
        chosen = [name for name in names if _is_steering(folder, name) or (is_tools and (runs_all or name in tools))]
        left -= entries
        if left < 0 or len(found) + len(chosen) > MAX_FILES:
            return found, shown(os.path.relpath(folder, root))
        found += (os.path.relpath(os.path.join(folder, name), root) for name in chosen)
    return found, ""


def _named_by(commands: Sequence[str], root: Path, cwd: Path) -> list[str]:
    """Return the files of the project that checks name by their path."""
    words = {word for command in commands for word in named_files(command)}
    places = (os.path.normpath(cwd / os.path.expanduser(word)) for word in words)
    return [
        os.path.relpath(place, root) for place in places if Path(place).is_relative_to(root) and os.path.isfile(place)
    ]


def _is_steering(folder: str, name: str) -> bool:
    if name == ".gitignore" and folder.endswith("_cache"):  # pytest, ruff and mypy write it, and it hides only a cache
        return False
    return any(fnmatchcase(name, pattern) for pattern in _STEERING)


def _is_tool_folder(folder: str) -> bool:
    """Return whether the folder has the programs of npm or of a Python virtual
    environment.
    """
    parent = os.path.dirname(folder)
    return os.path.basename(parent) == "node_modules" or os.path.exists(os.path.join(parent, "pyvenv.cfg"))


def _files_of_git(root: Path) -> dict[str, Path]:
    """Return the rules and hooks of git.

    A linked worktree shares them with its repository.
    """
    repository = find_repository(root)
    if repository is None:
        return {}
    names = [*_OF_GIT]
    with suppress(OSError):
        hooks = sorted(os.listdir(repository.common_dir / "hooks"))
        names += (f"hooks/{name}" for name in hooks if not name.endswith(".sample"))
    places = {name: repository.common_dir / name for name in names}
    return {f".git/{name}": place for name, place in places.items() if os.path.lexists(place)}


def _walk(root: Path) -> Iterator[tuple[str, list[str], int]]:
    """Yield the folders that may contain such files, sorted by name, with their files
    and number of entries.

    Caches, `.git` and the inside of packages are left out.
    """
    for folder, folders, names in os.walk(root):
        entries = len(folders) + len(names)
        inside = os.path.basename(folder)
        if inside == "node_modules":
            folders[:] = [name for name in folders if name == ".bin"]
        elif inside == "site-packages":
            folders.clear()
        folders[:] = sorted(name for name in folders if name not in (".git", "__pycache__"))
        yield folder, names, entries


def _caches(root: Path, since: float) -> Iterator[str]:
    """Yield compiled Python that was written since then."""
    left = MAX_ENTRIES
    for folder, folders, names in os.walk(root):
        left -= len(folders) + len(names)
        if left < 0:
            return
        folders[:] = [name for name in folders if name not in (".git", "node_modules")]
        if os.path.basename(folder) != "__pycache__":
            continue
        for path in (os.path.join(folder, name) for name in names if name.endswith(".pyc")):
            with suppress(OSError):
                if os.lstat(path).st_ctime >= since:
                    yield path
