"""Find the programs that Atomic itself runs in a view.

`PATH` may name folders of the project: an active virtual environment, or an empty entry,
which is the current folder. In a view these have the files of a worker, which must not
run in the place of git.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path


def command_outside(argv: Sequence[str], projects: Iterable[Path], path: str) -> list[str]:
    """Return a command with the absolute path of its program on this machine.

    `path` is a value of `PATH`; programs that are in a project do not count. A program
    that is not found keeps its name.
    """
    name, *arguments = argv
    return [_find(name, tuple(map(str, projects)), path) or name, *arguments]


def environment_outside(env: Mapping[str, str], projects: Iterable[Path]) -> dict[str, str]:
    """Return an environment whose `PATH` has no folder of a project."""
    path = env.get("PATH", os.defpath)
    return {**env, "PATH": os.pathsep.join(_folders(tuple(map(str, projects)), path))}


@lru_cache(maxsize=256)
def _find(name: str, projects: tuple[str, ...], path: str) -> str | None:
    for folder in _folders(projects, path):
        found = shutil.which(name, path=folder)
        if found is not None and not _is_in(found, projects):
            return found
    return None


@lru_cache(maxsize=64)
def _folders(projects: tuple[str, ...], path: str) -> list[str]:
    return [one for one in path.split(os.pathsep) if os.path.isabs(one) and not _is_in(one, projects)]


def _is_in(path: str, projects: Iterable[str]) -> bool:
    """Return whether a path, or the target of its link, is in one of the folders."""
    ways = [Path(os.path.normpath(path)), Path(os.path.realpath(path))]
    roots = [Path(root) for project in projects for root in (os.path.normpath(project), os.path.realpath(project))]
    return any(way.is_relative_to(root) for way in ways for root in roots)
