"""Which files git ignores, by the rules that held at one moment.

Git reads its rules from the working tree whenever it looks, so that whoever writes a `.gitignore`, or a line in
`.git/info/exclude`, hides files from it. Here all rules of a moment are put into one file of patterns that begin at the
root, which git is then told to use alone.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from atomic.git.repository import Repository

NAME = ".gitignore"
MOST_BYTES = 1024 * 1024  # of one file of rules
# Folders that tools fill by the thousand. A rule for one of them counts also if it is new: else the first build of a
# new project would be taken for work.
_OUTPUTS = """
target node_modules .venv venv env __pycache__ dist build out obj bin .next .nuxt .svelte-kit .turbo .parcel-cache
.gradle .tox .nox .eggs _build .mypy_cache .pytest_cache .ruff_cache .hypothesis .cache coverage htmlcov .terraform
.dart_tool Pods DerivedData .build .stack-work dist-newstyle zig-out .zig-cache
"""
OUTPUT_FOLDERS = frozenset(_OUTPUTS.split())
_SPECIAL = re.compile(r"([\\*?\[\]!#])")


def rules_of(repository: Repository | None, root: Path, settings: dict[str, str], files: Iterable[str]) -> list[str]:
    """All rules that hold now, the weakest first; `files` are the paths of `.gitignore` files below the root."""
    rules: list[str] = []
    if repository is not None:
        rules += _lines(_users_file(settings))
        rules += _lines(repository.common_dir / "info" / "exclude")
    for path in sorted(set(files), key=lambda path: (path.count("/"), path)):
        folder = os.path.dirname(path)
        rules += [_below(folder, line) for line in _lines(root / path)]
    return rules


def output_rules(rules: Iterable[str]) -> list[str]:
    """Those of the rules that are about a folder which tools fill: `/target`, or the `*` in `.venv/.gitignore`."""
    return [rule for rule in rules if rule[0] != "!" and not OUTPUT_FOLDERS.isdisjoint(rule.strip("/").split("/"))]


def _users_file(settings: dict[str, str]) -> Path:
    """The user's own file of rules, for all repositories."""
    named = settings.get("core.excludesfile")
    if named:
        return Path(os.path.expanduser(named))
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME", "/"), ".config")
    return Path(home, "git", "ignore")


def _lines(path: Path) -> Iterator[str]:
    for line in _text(path).splitlines():
        if line and not line.startswith("#"):
            yield line


def _text(path: Path) -> str:
    """What a file of rules says; nothing if it is none, or too big to be one."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return ""
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_size > MOST_BYTES:
            return ""  # `open` itself would refuse a folder
        with open(file, "rb", closefd=False) as opened:
            return opened.read(MOST_BYTES).decode("utf-8", "surrogateescape")
    finally:
        os.close(file)


def _below(folder: str, line: str) -> str:
    """A rule of a folder's `.gitignore` as one that begins at the root."""
    if not folder:
        return line
    negated, pattern = ("!", line[1:]) if line.startswith("!") else ("", line)
    place = "/" + _SPECIAL.sub(r"\\\1", folder)
    is_anchored = "/" in pattern.rstrip().rstrip("/")
    return f"{negated}{place}/{pattern.lstrip('/')}" if is_anchored else f"{negated}{place}/**/{pattern}"
