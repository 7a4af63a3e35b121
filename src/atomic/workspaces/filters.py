"""Find the filters that decide what git writes to files, as git-lfs and git-crypt do.

A filter that the user's own settings define is used in workspaces too. Its settings are
copied when a run begins, so a worker that changes files in the user's home changes
nothing. A filter that only the repository's configuration defines is not run: Atomic
starts no program that a repository names.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from atomic.git import Repository
from atomic.git.calls import run_git, settings_in, split
from atomic.processes.temporary_folders import temporary_prefix

_KEYS = (".clean", ".smudge", ".process", ".required")
# Values of the attribute `filter` that name no filter.
_NONE = ("unspecified", "unset", "set")


class Filters(msgspec.Struct, frozen=True):
    """The filters of the files of a commit.

    `settings` configure the user's filters. `foreign` are filters that only the
    repository defines, each with one of its files.
    """

    settings: tuple[tuple[str, str], ...] = ()
    foreign: Mapping[str, str] = {}


async def find_filters(repository: Repository, commit: str) -> Filters:
    """Return the filters of the files of a commit. Raises GitError."""
    users = await _users_filters(repository)
    own = await _repository_filters(repository)
    if not users and not own:
        return Filters()
    used = await _used(repository, commit)
    settings = [setting for name in sorted(used) for setting in users.get(name, ())]
    foreign = {name: path for name, path in used.items() if name in own and name not in users}
    return Filters(tuple(settings), foreign)


_Settings = dict[str, list[tuple[str, str]]]


async def _users_filters(repository: Repository) -> _Settings:
    """Return the settings of filters in the user's and the system's files, by filter."""
    names = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_NOSYSTEM")
    env = {name: os.environ.get(name) for name in names}
    # No repository's file is read.
    listed = await run_git("config", "--list", "-z", cwd=repository.root, env={**env, "GIT_DIR": os.devnull})
    return _filters_in(listed)


async def _repository_filters(repository: Repository) -> _Settings:
    found: _Settings = {}
    for file in (repository.common_dir / "config", repository.git_dir / "config.worktree"):
        if file.is_file():
            words = ("config", "--file", str(file), "--no-includes", "-z", "--list")
            found |= _filters_in(await run_git(*words, cwd=repository.root, env={}))
    return found


def _filters_in(listed: str) -> _Settings:
    found: _Settings = {}
    for key, value in settings_in(listed):
        if key.startswith("filter.") and key.endswith(_KEYS):
            name = key.removeprefix("filter.").rpartition(".")[0]
            found.setdefault(name, []).append((key, value))
    return found


async def _used(repository: Repository, commit: str) -> dict[str, str]:
    """Return the filters that attributes of a commit name, each with a file."""
    with tempfile.TemporaryDirectory(prefix=temporary_prefix("index")) as folder:
        env = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        await repository.git("read-tree", commit, env=env)
        names = await repository.git("ls-files", "-z", env=env)
        # `--cached`: the attributes of the commit, not of the user's unfinished work.
        words = ("check-attr", "--cached", "--stdin", "-z", "filter")
        found = split(await repository.git(*words, env=env, input=names))
    used: dict[str, str] = {}
    for path, value in zip(found[::3], found[2::3], strict=True):
        if value not in _NONE:
            used.setdefault(value, path)
    return used
