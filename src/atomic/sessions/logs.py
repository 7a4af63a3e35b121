"""The logs of a session, without secrets.

`events.jsonl` has the events of the run, one object per line; `attach` follows it.
"""

from __future__ import annotations

import errno
import os
import stat
import traceback
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from atomic.base.redaction import EventRedactor, Line, Redactor
from atomic.base.terminal import harmless, one_line


class SessionLogs:
    """The files in `logs/`.

    A failed write never ends a run; `failure` has the first error.
    """

    def __init__(self, session_dir: Path, redactor: Redactor) -> None:
        self.folder = session_dir / "logs"
        self.failure: OSError | None = None
        self._redactor = redactor
        self._files: dict[str, int] = {}
        self._seq = 0
        self._events = EventRedactor(redactor)

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def calls(self) -> Path:
        return self.folder / "agent-calls.jsonl"

    def event(self, line: Line) -> None:
        """Log an event of the run."""
        for ready in self._events.add(line):
            self._event(ready)

    def call(self, line: Line) -> None:
        """Log a finished call of an agent."""
        self._write("agent-calls.jsonl", msgspec.json.encode(self._redactor.data(msgspec.to_builtins(line))))

    def progress(self, what: str) -> None:
        """Add a line to `progress.txt`."""
        text = one_line(self._redactor.text(what))
        self._write("../progress.txt", f"{_now()} {text}".encode("utf-8", "replace"))

    def error(self, what: str, error: BaseException | None = None) -> None:
        """Add a failure to `errors.log`."""
        lines = [f"{_now()} {what}"]
        if error is not None:
            lines += "".join(traceback.format_exception(error)).splitlines()
        text = harmless(self._redactor.text("\n".join(lines)))
        self._write("errors.log", "\n  ".join(text.splitlines()).encode("utf-8", "replace"))

    def close(self) -> None:
        """Write the text that is held back, and close the files."""
        for ready in self._events.rest():
            self._event(ready)
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _event(self, line: Line) -> None:
        self._seq += 1
        self._write("events.jsonl", msgspec.json.encode({**line, "seq": self._seq}))

    def _write(self, name: str, data: bytes) -> None:
        try:
            if name not in self._files:
                self._files[name] = _open(self.folder / name)
            rest = memoryview(data + b"\n")
            while rest:
                rest = rest[os.write(self._files[name], rest) :]
        except OSError as error:
            self.failure = self.failure or error


def _open(path: Path) -> int:
    """Open a log for appending; an incomplete last line is ended first."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):  # a full pipe without a reader would block the run
        os.close(file)
        raise OSError(errno.EINVAL, "this is not a regular file", os.fspath(path))
    size = status.st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.write(file, b"\n")
    return file


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
