"""Why a configuration cannot be used."""

from __future__ import annotations

from pathlib import Path

from atomic.base.errors import AtomicError, ExitCode


class ConfigError(AtomicError):
    """A configuration file cannot be used; the message says where and why."""

    def __init__(self, file: Path, line: int, reason: str, *, key: str = "") -> None:
        self.file, self.line, self.key, self.reason = file, line, key, reason
        super().__init__(f"{file}:{line}: {reason}")


class HomeError(AtomicError):
    """Atomic's own folder can be written by others: nothing in it can be believed."""

    exit_code = ExitCode.USAGE


class NoCurrentFolderError(AtomicError):
    """The current folder was deleted."""

    def __init__(self) -> None:
        super().__init__("the current folder no longer exists (change to another one)")
