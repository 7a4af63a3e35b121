"""Ignore files by the rules at the time of the first snapshot.

Git reads `.gitignore` files and `.git/info/exclude` from the working tree at every
call, so an agent could hide files by adding rules. Here all rules of a moment are
written to one file of patterns from the root, and git uses only that file.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from atomic.base.untrusted_files import read_bounded
from atomic.git.calls import split
from atomic.git.repository import Repository
from atomic.git.scratch import Scratch, put_file

_NAME = ".gitignore"
# Folders that tools fill with thousands of files. A new rule for one of them counts, or
# the first build of a new project would count as work.
_OUTPUTS = """
target node_modules .venv venv env __pycache__ dist build out obj bin .next .nuxt .svelte-kit .turbo .parcel-cache
.gradle .tox .nox .eggs _build .mypy_cache .pytest_cache .ruff_cache .hypothesis .cache coverage htmlcov .terraform
.dart_tool Pods DerivedData .build .stack-work dist-newstyle zig-out .zig-cache
"""
OUTPUT_FOLDERS = frozenset(_OUTPUTS.split())
_SPECIAL = re.compile(r"([\\*?\[\]!#])")


class FirstRules(Protocol):
    """Storage for the ignore rules of the first snapshot."""

    def read(self) -> bytes | None: ...

    def write(self, rules: bytes) -> None: ...


class RulesFile:
    """Keep the first rules in a file of the store."""

    def __init__(self, store: Path) -> None:
        self._file = store / "first-rules"

    def read(self) -> bytes | None:
        return self._file.read_bytes() if self._file.is_file() else None

    def write(self, rules: bytes) -> None:
        put_file(self._file, rules)


class IgnoreRules:
    """The rules of the first snapshot, plus new ones for output folders."""

    def __init__(self, store: Path, first: FirstRules) -> None:
        self._file = store / "exclude"
        self._first = first
        self._rules: list[str] | None = None
        # Paths of the `.gitignore` files that were found.
        self._rule_files: set[str] = set()

    async def list_files(self, scratch: Scratch, index: str, *words: str) -> list[str]:
        """Return the output of `git ls-files -t` under the rules.

        List again if a new `.gitignore` appears, because it may name an output folder.
        """
        while True:
            listed = split(
                await scratch.git("ls-files", "-z", "-t", *words, await self.option(scratch, index), index=index)
            )
            found = _rule_files(line[2:] for line in listed)
            if found <= self._rule_files:
                return listed
            self._rule_files |= found

    async def option(self, scratch: Scratch, index: str) -> str:
        """Write the rules to a file and return the option of `git ls-files` for it."""
        if self._rules is None:
            self._rules = await self._read_first(scratch, index)
        new: list[str] = []
        for rule in await self._current(scratch):
            # `/target`, or the `*` in `.venv/.gitignore`.
            names_output = not OUTPUT_FOLDERS.isdisjoint(rule.strip("/").split("/"))
            if names_output and rule[0] != "!" and rule not in self._rules:
                new.append(rule)
        put_file(self._file, _encode_rules([*self._rules, *new]))
        return f"--exclude-from={self._file}"

    async def _read_first(self, scratch: Scratch, index: str) -> list[str]:
        kept = self._first.read()
        if kept is None:
            self._rule_files = _rule_files(
                split(await scratch.git("ls-files", "-z", "-c", "-o", "--exclude-standard", index=index))
            )
            self._first.write(_encode_rules(await self._current(scratch)))
            # Read it back, to use the same rules as a resumed run.
            kept = self._first.read() or b""
        return kept.decode("utf-8", "surrogateescape").splitlines()

    async def _current(self, scratch: Scratch) -> list[str]:
        settings = {} if scratch.repository is None else await scratch.repository.settings()
        files = {_NAME, *self._rule_files}
        return await asyncio.to_thread(_read_rules, scratch.repository, scratch.root, settings, files)


def _rule_files(paths: Iterable[str]) -> set[str]:
    return {path for path in paths if path.rpartition("/")[2] == _NAME}


def _encode_rules(rules: Iterable[str]) -> bytes:
    return "".join(f"{rule}\n" for rule in rules).encode("utf-8", "surrogateescape")


def _read_rules(repository: Repository | None, root: Path, settings: dict[str, str], files: Iterable[str]) -> list[str]:
    """Return all current rules, weakest first.

    `files` are `.gitignore` files below root.
    """
    rules: list[str] = []
    if repository is not None:
        rules += _lines_of(_users_file(settings))
        rules += _lines_of(repository.common_dir / "info" / "exclude")
    for path in sorted(set(files), key=lambda path: (path.count("/"), path)):
        folder = os.path.dirname(path)
        rules += [_from_root(folder, line) for line in _lines_of(root / path)]
    return rules


def _users_file(settings: dict[str, str]) -> Path:
    """Return the path of the user's own rules for all repositories."""
    named = settings.get("core.excludesfile")
    if named:
        return Path(os.path.expanduser(named))
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME", "/"), ".config")
    return Path(home, "git", "ignore")


def _lines_of(path: Path) -> list[str]:
    """Return the rules of a file; none if it is not a regular file or is too big."""
    try:
        text = read_bounded(path).decode("utf-8", "surrogateescape")
    except (OSError, ValueError):
        return []
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def _from_root(folder: str, line: str) -> str:
    """Turn a rule of a folder's `.gitignore` into one that begins at the root."""
    if not folder:
        return line
    pattern = line.removeprefix("!")
    start = "/" + _SPECIAL.sub(r"\\\1", folder)
    if line.startswith("!"):
        start = f"!{start}"
    is_anchored = "/" in pattern.rstrip().rstrip("/")
    return f"{start}/{pattern.lstrip('/')}" if is_anchored else f"{start}/**/{pattern}"
