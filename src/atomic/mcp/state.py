"""Keep the user's choice of servers for each project, without changing any tool's file."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.files import replace_file
from atomic.base.untrusted_files import read_inside, reason_of
from atomic.config import atomic_home, find_project

_MAX_BYTES = 16 * 1024 * 1024


class McpStateError(AtomicError):
    """The file with the enabled and disabled servers cannot be read or written."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class _State(msgspec.Struct, omit_defaults=False):
    """The file: for each project's real path, server -> on or off."""

    version: int = 1
    projects: dict[str, dict[str, bool]] = {}


def state_file(user: Path | None = None) -> Path:
    """Return the path of the file.

    `user` is a home folder other than the user's own.
    """
    return (atomic_home() if user is None else user / ".atomic") / "mcp-state.json"


def chosen(project: Path | None, file: Path) -> Mapping[str, bool]:
    """Return the user's choices for the servers of a project. Raises McpStateError."""
    return {} if project is None else _read(file).projects.get(_key(project), {})


def set_enabled(name: str, enabled: bool, *, project: Path | None = None, user: Path | None = None) -> None:
    """Switch a server on or off in a project, by default the current one.

    Raises McpStateError.
    """
    file = state_file(user)
    project = project or find_project()
    if project is None:
        raise McpStateError(file, "there is no current folder")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(file):
            state = _read(file)
            state.projects.setdefault(_key(project), {})[name] = enabled
            replace_file(file, msgspec.json.format(msgspec.json.encode(state, order="sorted"), indent=2) + b"\n")
    except OSError as error:
        raise McpStateError(file, f"this file cannot be written: {error.strerror}") from error


def _key(project: Path) -> str:
    return os.path.realpath(project)


def _read(file: Path) -> _State:
    try:
        content = read_inside(file, roots=(file.parent,), limit=_MAX_BYTES)
        return _State() if content is None else msgspec.json.decode(content, type=_State)
    except OSError as error:
        raise McpStateError(file, f"which servers are on and off cannot be read: {reason_of(error)}") from error
    except ValueError as error:
        # msgspec.DecodeError, and bytes that are not UTF-8.
        raise McpStateError(file, f"which servers are on and off cannot be read: {error}") from error


@contextmanager
def _locked(file: Path) -> Generator[None]:
    """Lock the file against other processes; the lock ends with its holder."""
    fd = os.open(file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
