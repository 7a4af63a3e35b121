"""Read the log file of a program while it grows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from atomic.providers.acp.agents import LogPlace

_PIECE = 1024 * 1024


class LogFile:
    """A log file that may not exist yet."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder = folder
        self._pattern = pattern
        self._file: Path | None = None
        self._place = 0

    def read(self) -> bytes:
        """Return the bytes that were written since the last call."""
        if self._file is None:
            self._file = next(iter(self._folder.glob(self._pattern)), None)
        if self._file is None:
            return b""
        try:
            with self._file.open("rb") as stream:
                stream.seek(self._place)
                data = stream.read(_PIECE)
        except OSError:  # the file was removed
            return b""
        self._place += len(data)
        return data


def log_of(place: LogPlace | None, env: Mapping[str, str], pid: int) -> LogFile | None:
    """Return the log file of a program with that environment."""
    if place is None:
        return None
    home = env.get(place.variable) or Path(env.get("HOME") or Path.home()) / place.folder
    return LogFile(Path(home) / "logs", place.name.format(pid=pid))
