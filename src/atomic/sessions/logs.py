"""The logs of a session, without secrets.

`events.jsonl` has the events of the run, one object per line; `attach` follows it. The
text of an agent comes in pieces, and a secret may span two of them. So pieces are
joined, and written line by line once no later piece can complete a secret.
"""

from __future__ import annotations

import errno
import os
import stat
import traceback
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import msgspec

from atomic.base.redaction import Redactor
from atomic.base.terminal import harmless, one_line

_DELTAS = ("text_delta", "thinking_delta", "tool_output")
_ENDS_MESSAGE = ("tool_started", "tool_ended", "turn_ended", "subagent_ended", "question_asked")
_LONG = 64 * 1024  # characters of a line after which it is written in parts
_HELD = 8 * 1024  # of these, the last ones are held back: no secret is longer
_KEY = "PRIVATE KEY"

Line = Mapping[str, Any]
Key = tuple[Any, ...]


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


class EventRedactor:
    """Removes secrets from the events of a run.

    The text of an agent comes in pieces, and a secret may span two of them. So pieces
    are joined, and released line by line once no later piece can complete a secret.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._streams: dict[Key, _Stream] = {}

    def add(self, line: Line) -> Iterator[Line]:
        """Add an event, and yield the events that are ready."""
        inner: Any = line.get("event")
        if isinstance(inner, Mapping):
            inner = cast("Line", inner)
            if inner["type"] in _DELTAS:
                stream = self._streams.setdefault(_key(line, inner), _Stream(line))
                yield from self._released(stream, stream.add(str(inner["text"]), self._redactor))
                return
            if inner["type"] in _ENDS_MESSAGE:
                yield from self._end_streams(line, inner)
        yield self._redactor.data(line)

    def rest(self) -> Iterator[Line]:
        """Yield the text that is held back."""
        for stream in self._streams.values():
            yield from self._released(stream, stream.rest())
        self._streams.clear()

    def _end_streams(self, line: Line, inner: Line) -> Iterator[Line]:
        """Yield the held text of the agents whose message this event ends."""
        *place, agent, type, id = _key(line, inner)
        ended = {agent, id} if type == "subagent_ended" else {agent}
        is_turn_over = type == "turn_ended" and agent is None  # which also ends the sub-agents of the turn
        for key in [key for key in self._streams if key[:3] == (*place,)]:
            if is_turn_over or key[3] in ended:
                stream = self._streams.pop(key)
                yield from self._released(stream, stream.rest())

    def _released(self, stream: _Stream, text: str) -> Iterator[Line]:
        if text:
            event = {**stream.line["event"], "text": text}
            yield self._redactor.data({**stream.line, "event": event})


class _Stream:
    """The pieces of one text that are not written yet."""

    def __init__(self, line: Line) -> None:
        self.line = line  # of the first piece
        self._text = ""

    def add(self, piece: str, redactor: Redactor) -> str:
        """Add a piece, and return the text that can be written now."""
        self._text += piece
        cut = self._cut(redactor)
        ready = self._text[:cut]
        self._text = self._text[cut:]
        return ready

    def rest(self) -> str:
        ready = self._text
        self._text = ""
        return ready

    def _cut(self, redactor: Redactor) -> int:
        text = self._text
        if _KEY in text and len(text) < 16 * _LONG:
            begin = text.rfind("-----BEGIN")
            end = text.find("-----END", begin) if begin >= 0 else 0
            if end < 0 or (begin >= 0 and text.find("\n", end) < 0):
                return text.rfind("\n", 0, begin) + 1  # inside a private key
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
