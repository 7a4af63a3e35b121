"""The log file of a program, as it grows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from atomic.providers.acp.known import LogPlace

_PIECE = 1024 * 1024


class LogFile:
    """A file that a program may write, or may not have begun yet."""

    def __init__(self, folder: Path, pattern: str) -> None:
        self._folder, self._pattern = folder, pattern
        self._file: Path | None = None
        self._place = 0

    def news(self) -> bytes:
        """What was written since the last time."""
        if self._file is None:
            self._file = next(iter(self._folder.glob(self._pattern)), None)
        if self._file is None:
            return b""
        try:
            with self._file.open("rb") as stream:
                stream.seek(self._place)
                data = stream.read(_PIECE)
        except OSError:  # somebody tidies up
            return b""
        self._place += len(data)
        return data


def log_of(place: LogPlace | None, env: Mapping[str, str], pid: int) -> LogFile | None:
    """Where a program with that environment writes its log."""
    if place is None:
        return None
    home = env.get(place.variable) or Path(env.get("HOME") or Path.home()) / place.folder
    return LogFile(Path(home) / "logs", place.name.format(pid=pid))
