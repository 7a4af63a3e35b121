"""Find the folders of the user and of the project, and their configuration files."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from atomic.base.errors import AtomicError, ExitCode
from atomic.config.repositories import git_folder


class HomeError(AtomicError):
    """Atomic's own folder is no folder, or other users can write it, so that its content
    cannot be trusted.
    """

    exit_code = ExitCode.USAGE


class NoCurrentFolderError(AtomicError):
    """The current folder was deleted."""

    def __init__(self) -> None:
        super().__init__("the current folder no longer exists (change to another one)")


def config_files(project: Path | None = None, home: Path | None = None) -> tuple[Path, Path | None]:
    """Return the configuration files of the user and of the project, which may not
    exist.

    In the home folder there is no project's file.
    """
    user_file = (home or config_home()) / "config.toml"
    folder = project or find_project()
    if folder is None:
        return user_file, None
    project_file = folder / ".atomic" / "config.toml"
    return user_file, None if os.path.realpath(project_file) == os.path.realpath(user_file) else project_file


def atomic_home() -> Path:
    """Return the user's folder for what Atomic writes: runs, approvals, history.

    Raise HomeError.
    """
    _, state = _homes()
    _check_home(state)
    return state


def config_home() -> Path:
    """Return the user's folder for what the user writes: settings, servers, workflows,
    tools, commands, skills and agents.

    It is the same as `atomic_home`, unless the XDG directories are used. Raise
    HomeError.
    """
    config, _ = _homes()
    _check_home(config)
    return config


def _homes() -> tuple[Path, Path]:
    """Return the folders for configuration and for state.

    Both are `$ATOMIC_HOME`, else `~/.atomic`. Without either, and if the user has
    chosen XDG directories, they are `atomic` below those. Then also a cron job, which
    has no such variables, finds the state that is in the default place.
    """
    chosen = os.environ.get("ATOMIC_HOME")
    home = Path.home()
    common = Path(chosen).expanduser().absolute() if chosen else home / ".atomic"
    if chosen or os.path.lexists(common):
        return common, common
    config = _xdg_folder("XDG_CONFIG_HOME")
    state = _xdg_folder("XDG_STATE_HOME")
    default = home / ".local" / "state"
    if config is None and state is None and not (default / "atomic").is_dir():
        return common, common
    return (config or home / ".config") / "atomic", (state or default) / "atomic"


def _xdg_folder(variable: str) -> Path | None:
    """Return the folder of a variable; a relative one is invalid and ignored."""
    value = os.environ.get(variable, "")
    return Path(value) if os.path.isabs(value) else None


def _check_home(home: Path) -> None:
    """Raise HomeError if it is no folder, or if other users could change programs,
    servers or workflows in it.
    """
    try:
        status = os.stat(home)
    except NotADirectoryError:  # a part of its path is a file
        raise HomeError(f"{home} cannot be a folder: set ATOMIC_HOME to another one") from None
    except OSError:  # it does not exist yet
        return
    if not stat.S_ISDIR(status.st_mode):
        raise HomeError(f"{home} is not a folder: set ATOMIC_HOME to one")
    if not is_ours(status):
        raise HomeError(f"{home} belongs to another user: set ATOMIC_HOME to a folder of your own")
    if status.st_mode & stat.S_ISVTX:  # a folder for everyone, such as /tmp
        raise HomeError(f"{home} is shared with other users: set ATOMIC_HOME to a folder of your own")
    by_group = status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid)
    if by_group or status.st_mode & stat.S_IWOTH:
        raise HomeError(f"{home} can be written by other users: run chmod go-w {shlex.quote(str(home))}")


def _is_private_group(gid: int) -> bool:
    """Return whether the user is the only member of a group.

    Many systems give each user such a group and a umask of 002.
    """
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.getuid())
        group = grp.getgrgid(gid)
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


def is_ours(status: os.stat_result) -> bool:
    """Return whether a file belongs to the user or to the system."""
    return status.st_uid in (os.getuid(), 0)


def find_project(start: Path | None = None) -> Path | None:
    """Return the project of a folder: the nearest parent with a repository or
    `.atomic`.

    Without one it is the folder itself. The home folder, the root and folders of other
    users are never found that way. Returns None if the current folder was deleted.
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
    """Return the current folder. Raise NoCurrentFolderError if it was deleted."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        raise NoCurrentFolderError from None


def _is_project(folder: Path) -> bool:
    is_marked = os.path.isdir(folder / ".atomic") or git_folder(folder) is not None
    return is_marked and folder.stat().st_uid == os.getuid()
