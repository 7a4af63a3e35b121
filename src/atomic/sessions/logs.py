"""The logs of a session, without secrets.

`events.jsonl` is what a host was told, one object a line; `attach` follows it. An agent's words come in pieces, and a
secret may lie across two of them: pieces are joined and written line by line of the text, when nothing can follow that
would make a secret of what is written.
"""

from __future__ import annotations

import errno
import os
import stat
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.redact import Redactor
from atomic.terminal import harmless, one_line

_DELTAS = ("text_delta", "thinking_delta", "tool_output")
_ENDS_MESSAGE = ("tool_started", "tool_ended", "turn_ended", "subagent_ended", "question_asked")
_LONG = 64 * 1024  # characters of one line that are not held back any longer
_HELD = 8 * 1024  # of them, the last ones that are: no secret is longer
_KEY = "PRIVATE KEY"

Line = Mapping[str, Any]
Key = tuple[Any, ...]


class SessionLogs:
    """The files in `logs/`. That one cannot be written never ends a run; `failure` says why."""

    def __init__(self, session_dir: Path, redactor: Redactor) -> None:
        self.folder = session_dir / "logs"
        self.failure: OSError | None = None
        self._redactor = redactor
        self._files: dict[str, int] = {}
        self._seq = 0
        self._streams: dict[Key, _Stream] = {}

    @property
    def events(self) -> Path:
        return self.folder / "events.jsonl"

    @property
    def calls(self) -> Path:
        return self.folder / "agent-calls.jsonl"

    def event(self, line: Line) -> None:
        """Note what a host is told."""
        inner: Any = line.get("event")
        if not isinstance(inner, Mapping):
            self._event(line)
            return
        inner = cast("Line", inner)
        if inner["type"] in _DELTAS:
            stream = self._streams.setdefault(_key(line, inner), _Stream(line))
            self._put(stream, stream.add(str(inner["text"]), self._redactor))
            return
        if inner["type"] in _ENDS_MESSAGE:
            self._end_streams(line, inner)
        self._event(line)

    def call(self, line: Line) -> None:
        """Note a finished call of an agent."""
        self._write("agent-calls.jsonl", msgspec.json.encode(self._redactor.data(msgspec.to_builtins(line))))

    def progress(self, what: str) -> None:
        """Note in `progress.txt`, for people, how far the run is."""
        text = one_line(self._redactor.text(what))
        self._write("../progress.txt", f"{_now()} {text}".encode("utf-8", "replace"))

    def error(self, what: str, error: BaseException | None = None) -> None:
        """Note something that failed, for people."""
        lines = [f"{_now()} {what}"]
        if error is not None:
            lines += "".join(traceback.format_exception(error)).splitlines()
        text = harmless(self._redactor.text("\n".join(lines)))
        self._write("errors.log", "\n  ".join(text.splitlines()).encode("utf-8", "replace"))

    def close(self) -> None:
        """Write what is held back, and close the files."""
        for stream in self._streams.values():
            self._put(stream, stream.rest())
        self._streams.clear()
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _end_streams(self, line: Line, inner: Line) -> None:
        for key in [key for key in self._streams if key[:4] == _key(line, inner)[:4]]:
            stream = self._streams.pop(key)
            self._put(stream, stream.rest())

    def _put(self, stream: _Stream, text: str) -> None:
        if text:
            event = {**stream.line["event"], "text": text}
            self._event({**stream.line, "event": event})

    def _event(self, line: Line) -> None:
        self._seq += 1
        self._write("events.jsonl", msgspec.json.encode(self._redactor.data({**line, "seq": self._seq})))

    def _write(self, name: str, data: bytes) -> None:
        try:
            if name not in self._files:
                self._files[name] = _open(self.folder / name)
            rest = memoryview(data + b"\n")
            while rest:
                rest = rest[os.write(self._files[name], rest) :]
        except OSError as error:
            self.failure = self.failure or error


class _Stream:
    """The pieces of one text, until they can be written."""

    def __init__(self, line: Line) -> None:
        self.line = line  # the first one: what is joined is told with its number
        self._text = ""

    def add(self, piece: str, redactor: Redactor) -> str:
        """What can be written now, as it is."""
        self._text += piece
        cut = self._cut(redactor)
        ready, self._text = self._text[:cut], self._text[cut:]
        return ready

    def rest(self) -> str:
        ready, self._text = self._text, ""
        return ready

    def _cut(self, redactor: Redactor) -> int:
        text = self._text
        if _KEY in text and len(text) < 16 * _LONG:
            begin = text.rfind("-----BEGIN")
            end = text.find("-----END", begin) if begin >= 0 else 0
            if end < 0 or (begin >= 0 and text.find("\n", end) < 0):
                return text.rfind("\n", 0, begin) + 1  # in the middle of a key
        end = text.rfind("\n") + 1
        if end or len(text) < _LONG:
            return end
        cut = len(text) - _HELD
        for start, stop in redactor.spans(text):
            if start < cut < stop:
                return start
        return cut


def _key(line: Line, inner: Line) -> Key:
    return (line.get("node"), line.get("task"), line.get("role"), inner.get("agent"), inner["type"], inner.get("id"))


def _open(path: Path) -> int:
    """Open a log to add lines; one that a kill has cut short is ended first."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    file = os.open(path, flags, 0o600)
    status = os.fstat(file)
    if not stat.S_ISREG(status.st_mode):  # a pipe that nobody reads would stop the run once it is full
        os.close(file)
        raise OSError(errno.EINVAL, "this is not a regular file", os.fspath(path))
    size = status.st_size
    if size and os.pread(file, 1, size - 1) != b"\n":
        os.write(file, b"\n")
    return file


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
