"""Where configuration is kept: the user's folder and the project's."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from atomic.config.errors import HomeError, NoCurrentFolderError
from atomic.config.repositories import git_folder


def config_files(project: Path | None = None, home: Path | None = None) -> tuple[Path, Path | None]:
    """The user's file and the project's, whether they exist or not; in the home folder there is only the user's."""
    user_file = (home or atomic_home()) / "config.toml"
    folder = project or find_project()
    if folder is None:
        return user_file, None
    project_file = folder / ".atomic" / "config.toml"
    return user_file, None if os.path.realpath(project_file) == os.path.realpath(user_file) else project_file


def atomic_home() -> Path:
    """The folder with all that Atomic keeps for the user: `$ATOMIC_HOME`, else `~/.atomic`. Raises HomeError."""
    chosen = os.environ.get("ATOMIC_HOME")
    home = Path(chosen).expanduser().absolute() if chosen else Path.home() / ".atomic"
    _check_home(home)
    return home


def _check_home(home: Path) -> None:
    """Raise HomeError where others could write what Atomic obeys: programs, servers, workflows."""
    try:
        status = os.stat(home)
    except OSError:  # there is none yet
        return
    if not is_ours(status):
        raise HomeError(f"{home} belongs to another user: set ATOMIC_HOME to a folder of your own")
    by_group = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid)
    if by_group or status.st_mode & stat.S_IWOTH:
        raise HomeError(f"{home} can be written by other users: run chmod go-w {shlex.quote(str(home))}")


def _is_private_group(gid: int) -> bool:
    """Return whether the user is the only member of a group: many systems give each user one, and a umask of 002."""
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.getuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def is_ours(status: os.stat_result) -> bool:
    """Return whether a file belongs to the user or to the system."""
    return status.st_uid in (os.getuid(), 0)


def find_project(start: Path | None = None) -> Path | None:
    """The project that a folder belongs to: the nearest upwards with a repository or `.atomic`, else the folder itself.

    The home folder, the root and folders of other people hold many projects and are none. None: the current folder
    does not exist any more.
    """
    try:
        start = (start or Path.cwd()).resolve()
    except FileNotFoundError:
        return None
    home = Path.home().resolve()
    for folder in (start, *start.parents):
        if folder not in (home, Path(folder.anchor)) and _is_project(folder):
            return folder
    return start


def current_folder() -> Path:
    """Return the current folder. Raises NoCurrentFolderError if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise NoCurrentFolderError from None


def _is_project(folder: Path) -> bool:
    is_marked = os.path.isdir(folder / ".atomic") or git_folder(folder) is not None
    return is_marked and folder.stat().st_uid == os.getuid()
