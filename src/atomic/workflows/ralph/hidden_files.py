"""Files that git ignores and that decide all the same whether a check passes.

A worker could write a `conftest.py` into an ignored folder, or replace `.venv/bin/pytest`. These files are listed
before and after each turn; those that a turn has changed stand in its evidence. Compiled Python that a turn has left in
a `__pycache__` is removed: Python would run it instead of the source, and it is only a cache.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from atomic.sessions.facts import Facts
from atomic.workflows.ralph.users_files import content_of

FACT = "hidden_files"
MOST_ENTRIES = 300_000  # of folders that are looked at
MOST_FILES = 5_000
SLACK = 2.0  # seconds: some clocks of files are coarse
_STEERING = (
    *("conftest.py", "sitecustomize.py", "usercustomize.py", "*.pth", "pytest.ini", ".pytest.ini", "pytest.toml"),
    *("tox.ini", ".coveragerc", ".npmrc", ".gitignore", ".gitattributes", "*.pyc"),
)
_PACKAGES = ("node_modules", "site-packages")  # other people's code: only what is at their top counts
_TOOL_FOLDERS = (".bin", "bin", "Scripts")
_RUNNERS = {"npm", "npx", "pnpm", "yarn", "bun", "bunx"}  # run whatever is in node_modules/.bin
_OF_GIT = ("info/exclude", "info/attributes")


class Hidden(msgspec.Struct, frozen=True):
    """What is known of such files; a fact of the run."""

    # The path and the digest of each. Digests are no values under the paths: redaction would replace the value under a
    # name such as `token.pth`. A digest covers the path too, because redaction may change the path itself.
    digests: list[tuple[str, str]] = []
    changed: dict[str, list[str]] = {}  # by task: what its turns have changed
    since: float = 0.0  # when the first turn began whose end was not seen


class HiddenFiles:
    """The files of a checkout that git does not show; `commands` are the checks."""

    def __init__(self, facts: Facts, root: Path, commands: Sequence[str]) -> None:
        self._facts, self._root, self._commands = facts, root, commands

    @property
    def _known(self) -> Hidden:
        found: Any = self._facts.get(FACT, {})
        return msgspec.convert(found, Hidden)

    def changed_by(self, task: str) -> list[str]:
        return self._known.changed.get(task, [])

    async def begin_turn(self) -> None:
        """Note what is there, unless a turn that was cut has left it."""
        known = self._known
        if not known.since:
            digests = await asyncio.to_thread(list_digests, self._root, self._commands)
            self._facts.set(FACT, Hidden(digests, known.changed, time.time()))

    async def end_turn(self, task: str) -> None:
        """Note what the turn has changed, and remove the caches that it has left."""
        digests = await asyncio.to_thread(self._look, self._known.since - SLACK)
        known = self._known  # another turn may have ended meanwhile
        differing = {digest for _, digest in known.digests} ^ {digest for _, digest in digests}
        paths = {path for path, digest in (*known.digests, *digests) if digest in differing}
        new = sorted({*known.changed.get(task, ()), *paths})
        changed = {**known.changed, task: new} if new else known.changed
        self._facts.set(FACT, Hidden(digests, changed))

    def _look(self, since: float) -> list[tuple[str, str]]:
        remove_caches(self._root, since)
        return list_digests(self._root, self._commands)


def list_digests(root: Path, commands: Sequence[str]) -> list[tuple[str, str]]:
    """Return the paths of the files that count, each with a digest of path and content."""
    return [
        (path, sha256(os.fsencode(f"{path}\0{content_of(root / path)}")).hexdigest()) for path in _paths(root, commands)
    ]


def _paths(root: Path, commands: Sequence[str]) -> list[str]:
    words = {word for command in commands for word in re.split(r"[\s;|&()<>\"'`=,:]+", command)}
    tools = {os.path.basename(word) for word in words if word}
    found: list[str] = []
    for folder, names in _walk(root):
        is_tools = os.path.basename(folder) in _TOOL_FOLDERS and _is_tool_folder(folder)
        runs_all = is_tools and folder.endswith("node_modules/.bin") and not tools.isdisjoint(_RUNNERS)
        for name in names:
            is_steering = any(fnmatchcase(name, pattern) for pattern in _STEERING)
            if (is_steering or (is_tools and (runs_all or name in tools))) and len(found) < MOST_FILES:
                found.append(os.path.relpath(os.path.join(folder, name), root))
    for name in (*_OF_GIT, *_hooks(root)):
        if os.path.lexists(root / ".git" / name):
            found.append(f".git/{name}")
    return sorted(path for path in found if path.isprintable())


def _is_tool_folder(folder: str) -> bool:
    """Whether programs of an environment are there: of npm's, or of a virtual one for Python."""
    parent = os.path.dirname(folder)
    return os.path.basename(parent) == "node_modules" or os.path.exists(os.path.join(parent, "pyvenv.cfg"))


def _hooks(root: Path) -> Iterator[str]:
    with suppress(OSError):
        for name in sorted(os.listdir(root / ".git" / "hooks")):
            if not name.endswith(".sample"):
                yield f"hooks/{name}"


def _walk(root: Path) -> Iterator[tuple[str, list[str]]]:
    """The folders that may hold such files, but for caches, what is git's, and the inside of packages."""
    left = MOST_ENTRIES
    for folder, folders, names in os.walk(root):
        left -= len(folders) + len(names)
        if left < 0:
            return
        inside = os.path.basename(folder)
        if inside == "node_modules":
            folders[:] = [name for name in folders if name == ".bin"]
        elif inside == "site-packages":
            folders.clear()
        folders[:] = [name for name in folders if name not in (".git", "__pycache__")]
        yield folder, names


def remove_caches(root: Path, since: float) -> None:
    """Remove compiled Python that was written since then; whoever needs it compiles it again."""
    left = MOST_ENTRIES
    for folder, folders, names in os.walk(root):
        left -= len(folders) + len(names)
        if left < 0:
            return
        folders[:] = [name for name in folders if name not in (".git", "node_modules")]
        if os.path.basename(folder) != "__pycache__":
            continue
        for name in names:
            path = os.path.join(folder, name)
            with suppress(OSError):
                if name.endswith(".pyc") and os.lstat(path).st_ctime >= since:
                    os.unlink(path)
