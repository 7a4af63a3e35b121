"""Record every call of a provider as a line of JSON: prompt, options, events, file
changes.

The first line is `{"atomic_recording": 1, "command": [...]}`. Several sessions, also in
several processes, may write to one file: a finished call is written as one line under a
lock. Secrets are redacted first.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from atomic.base.errors import AtomicError
from atomic.base.redaction import Redactor
from atomic.base.untrusted_files import read_bounded
from atomic.providers.base import CustomTool, SessionOptions
from atomic.providers.errors import ProviderError
from atomic.providers.events import AgentEvent, Notice, TextDelta, ThinkingDelta, ToolOutput
from atomic.providers.prompt_title import role_and_task

if TYPE_CHECKING:  # imported on demand: many recordings change no files
    from atomic.git import Changes, FileWatch, WatchElsewhere

VERSION = 1
MAX_BYTES = 1024 * 1024 * 1024  # of a recording
GIT_SECONDS = 10.0  # for finding changed files, before a turn and after it

_BINARY_PATCH = "\nGIT binary patch\n"

# msgspec inspects a type when it is first decoded. Two threads doing that at the same
# time crash the interpreter.
_decode_lock = threading.Lock()

_log = logging.getLogger(__name__)


class RecordingError(ProviderError):
    """A file is not a recording or is damaged.

    The text gives the place and the reason.
    """

    def __init__(self, path: Path, reason: str, *, line: int | None = None) -> None:
        self.path = path
        self.reason = reason
        self.line = line
        place = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {reason}", provider="replay")


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One recorded call of a provider. Only `events` is needed to play it."""

    role: str | None = None
    task: str | int | None = None
    prompt: str = ""
    match: str | None = None  # a regular expression that the prompt must contain
    events: Sequence[tuple[float, AgentEvent]]
    commits: Sequence[str] = ()
    patch: str | None = None
    provider: str = ""
    model: str | None = None
    session: str = ""
    options: dict[str, Any] = {}
    folder: str = ""
    rewind: int = 0
    branch: str | None = None
    dirty: dict[str, str | None] = {}
    left_out: Sequence[str] = ()

    @property
    def has_changed_files(self) -> bool:
        """Return whether `changes` contains anything to apply."""
        return bool(self.commits or (self.patch or "").strip() or self.rewind or self.branch is not None)

    @property
    def changes(self) -> Changes:
        """Return the changes of files that the call made."""
        from atomic.git import Changes

        return Changes(
            commits=tuple(self.commits),
            patch=self.patch or "",
            folder=self.folder,
            rewind=self.rewind,
            branch=self.branch,
            dirty=self.dirty,
        )


class Recording(msgspec.Struct, frozen=True):
    """A whole file. `cut_off` is the number of an incomplete last line, which is
    ignored.
    """

    calls: Sequence[RecordedCall]
    command: Sequence[str] = ()
    cut_off: int | None = None


class RecordingHeader(msgspec.Struct, frozen=True):
    """The first line of a recording."""

    atomic_recording: int
    command: Sequence[str] = ()


def read_recording(path: Path) -> Recording:
    """Read a file. Raise RecordingError with the line and the reason."""
    try:
        lines = read_bounded(path, MAX_BYTES).split(b"\n")
    except OSError as error:
        raise RecordingError(path, error.strerror or str(error)) from error
    with _decode_lock:
        return _decoded(path, lines)


def _decoded(path: Path, lines: Sequence[bytes]) -> Recording:
    header = _header(path, lines[0])
    calls: list[RecordedCall] = []
    cut_off: int | None = None
    for number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        try:
            # Not strict: recordings written by hand may give a time in whole seconds.
            call = msgspec.json.decode(line, type=RecordedCall, strict=False)
            re.compile(call.match or "")
            calls.append(call)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, re.error) as error:
            if number < len(lines) or isinstance(error, (msgspec.ValidationError, re.error)):
                raise RecordingError(path, str(error), line=number) from error
            cut_off = number  # without a line end: its writer was killed
    return Recording(calls, header.command, cut_off)


def _header(path: Path, line: bytes) -> RecordingHeader:
    try:
        header = msgspec.json.decode(line, type=RecordingHeader)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(path, f"this is not a recording of Atomic: {error}", line=1) from error
    if header.atomic_recording != VERSION:
        reason = f"this is a recording of version {header.atomic_recording}; this Atomic reads version {VERSION}"
        raise RecordingError(path, reason, line=1)
    return header


class Recorder:
    """Records the calls of one session.

    A problem is reported once and never ends a turn.
    """

    def __init__(self, provider: str, options: SessionOptions) -> None:
        assert options.record is not None
        self.path = Path(options.record).absolute()
        self.provider = provider
        self.options = options
        self._environments = [options.env, *(server.env for server in options.mcp_servers)]
        self._headers = [server.headers for server in options.mcp_servers]
        self.redactor = Redactor.of_environment(*self._environments, headers=self._headers)
        self._reported: set[str] = set()

    def learn(self, *environments: Mapping[str, str]) -> None:
        """Redact the secrets in these environments, too."""
        self._environments += environments
        self.redactor = Redactor.of_environment(*self._environments, headers=self._headers)

    def call(self, prompt: str) -> CallRecorder:
        return CallRecorder(self, prompt)

    def notices(self, problems: Sequence[str]) -> list[Notice]:
        """Return notices for the problems that were not reported yet."""
        new = [problem for problem in dict.fromkeys(problems) if problem not in self._reported]
        self._reported.update(new)
        return [Notice(f"{self.path.name}: {problem}") for problem in new]


class CallRecorder:
    """Records one call: `start` before it, `add` for each event, `finish` after it."""

    def __init__(self, recorder: Recorder, prompt: str) -> None:
        self._recorder = recorder
        self._prompt = prompt
        self._events: list[tuple[float, AgentEvent]] = []
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._stack = AsyncExitStack()
        self._watch: FileWatch | WatchElsewhere | None = None
        self._problems: list[str] = []
        self._writing: asyncio.Task[list[Notice]] | None = None

    async def start(self) -> None:
        """Note the state of the files before the turn."""
        from atomic.git import watch_folder, watch_folder_in

        options = self._recorder.options
        folder = Path(options.cwd or Path.cwd())
        ignored = [self._recorder.path]
        try:
            async with asyncio.timeout(GIT_SECONDS):
                if options.launcher:
                    watching = watch_folder_in(options.launcher, folder, ignored=ignored)
                    self._watch = await self._stack.enter_async_context(watching)
                else:
                    self._watch = await self._stack.enter_async_context(watch_folder(folder, ignored=ignored))
        except (AtomicError, OSError) as error:
            self._problems.append(_files_unknown(error))
        if self._writing is not None:  # the turn has already ended, so clean up here
            await self._stack.aclose()
        self._began = self._clock()

    def add(self, event: AgentEvent) -> None:
        """Keep an event with its time."""
        self._events.append((round(self._clock() - self._began, 3), event))

    async def finish(self, session: str) -> list[Notice]:
        """Write the call, once, and return its notices. Continue if the caller is
        cancelled.
        """
        if self._writing is None:
            self._writing = asyncio.create_task(self._finish(session))
        return await asyncio.shield(self._writing)

    async def _finish(self, session: str) -> list[Notice]:
        changes = await self._changes()
        try:
            await asyncio.to_thread(self._write, session, changes)
        except (AtomicError, OSError, ValueError) as error:
            _log.warning("%s: the call could not be recorded: %s", self._recorder.path, error)
            self._problems.append(f"the recording could not be written: {error}")
        return self._recorder.notices(self._problems)

    async def _changes(self) -> Changes:
        from atomic.git import Changes

        changes = Changes()
        try:
            async with asyncio.timeout(GIT_SECONDS):
                if self._watch is not None:
                    changes = await self._watch.changes(is_secret=self._recorder.redactor.finds)
        except (AtomicError, OSError) as error:
            self._problems.append(_files_unknown(error))
        finally:
            await self._stack.aclose()
        if changes.left_out:
            names = ", ".join(_storable(name) for name in changes.left_out[:5])
            more = f" and {len(changes.left_out) - 5} more" if len(changes.left_out) > 5 else ""
            self._problems.append(f"left out (too large, unreadable, or binary with a secret): {names}{more}")
        return changes

    def _write(self, session: str, changes: Changes) -> None:
        redactor = self._recorder.redactor
        role, task = role_and_task(self._prompt)
        record = {
            "role": role,
            "task": task,
            "prompt": redactor.text(self._prompt),
            "match": None,
            "events": _redacted_events(redactor, self._events),
            "commits": [_redacted_mail(redactor, mail) for mail in changes.commits],
            "patch": _redacted_patch(redactor, changes.patch),
            "provider": self._recorder.provider,
            "session": session,
            **redactor.data(_shape(self._recorder.options)),
            **_but_for_defaults(changes),
        }
        append(self._recorder.path, _mapped(record, _storable))


def append(path: Path, record: Any, *, command: Sequence[str] | None = None) -> None:
    """Append a line to a recording and create the file if needed.

    Raise RecordingError or OSError.
    """
    line = msgspec.json.encode(record) + b"\n"
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = _repair(path, file.fileno())
        if size == 0:
            if command is None:
                command = [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv else []
            header = {"atomic_recording": VERSION, "command": Redactor.of_environment().data(list(command))}
            line = msgspec.json.encode(header) + b"\n" + line
        try:
            _write_all(file.fileno(), line)
        except OSError:
            os.ftruncate(file.fileno(), size)  # the disk is full: leave no partial line
            raise


def _repair(path: Path, file: int) -> int:
    """Check the header, remove an incomplete last line and return the new size."""
    size = os.fstat(file).st_size
    if size == 0:
        return 0
    _header(path, os.pread(file, 1024 * 1024, 0).partition(b"\n")[0])
    if os.pread(file, 1, size - 1) == b"\n":
        return size
    content = os.pread(file, size, 0)
    start = content.rfind(b"\n") + 1
    try:
        msgspec.json.decode(content[start:])
    except (msgspec.DecodeError, UnicodeDecodeError):
        os.ftruncate(file, start)
        return start
    _write_all(file, b"\n")
    return size + 1


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _files_unknown(error: Exception) -> str:
    reason = f"git took longer than {GIT_SECONDS:g} s" if isinstance(error, TimeoutError) else str(error)
    return f"file changes are not recorded: {reason}"


def _shape(options: SessionOptions) -> dict[str, Any]:
    """Return the session's options as far as they are useful on another machine."""
    shape: dict[str, Any] = {
        "system_prompt": options.system_prompt,
        "tools": None if options.tools is None else list(options.tools),
        "denied_tools": list(options.denied_tools),
        "agents": [agent.name for agent in options.agents],
        "mcp_servers": [server.name for server in options.mcp_servers],
        "disabled_mcp_servers": list(options.disabled_mcp_servers),
        "custom_tools": [
            tool.name if isinstance(tool, CustomTool) else getattr(tool, "__name__", type(tool).__name__)
            for tool in options.custom_tools
        ],
        "max_turns": options.max_turns,
        "resume": options.resume,
        "fork": options.fork,
        "trusted": options.trusted,
    }
    return {"model": options.model, "options": {name: value for name, value in shape.items() if value}}


def _but_for_defaults(changes: Changes) -> dict[str, Any]:
    plain = {"folder": changes.folder, "rewind": changes.rewind, "dirty": changes.dirty, "left_out": changes.left_out}
    given = {name: value for name, value in plain.items() if value}
    return given if changes.branch is None else {**given, "branch": changes.branch}


def _redacted_events(redactor: Redactor, events: Sequence[tuple[float, AgentEvent]]) -> list[Any]:
    """Return the events as plain data.

    Deltas of one text are redacted together: a secret may be split between them.
    """
    plain = [(seconds, msgspec.to_builtins(event)) for seconds, event in events]
    streams: defaultdict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for (_, event), (_, data) in zip(events, plain, strict=True):
        if isinstance(event, (TextDelta, ThinkingDelta, ToolOutput)):
            streams[type(event), event.agent, getattr(event, "id", None)].append(data)
    for stream in streams.values():
        for data, text in zip(stream, redactor.pieces([data["text"] for data in stream]), strict=True):
            data["text"] = text
    return [[seconds, redactor.data(data)] for seconds, data in plain]


def _redacted_mail(redactor: Redactor, mail: str) -> str:
    from atomic.git import split_mail

    head, patch = split_mail(mail)
    return redactor.text(head) + _redacted_patch(redactor, patch)


def _redacted_patch(redactor: Redactor, patch: str) -> str:
    """Redact a patch, except its binary parts, which would become unreadable."""
    from atomic.git import split_patch

    return "".join(part if _BINARY_PATCH in part else redactor.text(part, code=True) for part in split_patch(patch))


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            items = cast("dict[str, Any]", value).items()
            return {change(name): _mapped(inner, change) for name, inner in items}
        case list() | tuple():
            return [_mapped(inner, change) for inner in cast("Sequence[Any]", value)]
        case _:
            return value


def _storable(text: str) -> str:
    """Return text that JSON can represent: invalid UTF-8 in a file name becomes "?"."""
    with suppress(UnicodeEncodeError):
        text.encode()
        return text
    return text.encode("utf-8", "replace").decode()
