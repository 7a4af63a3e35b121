"""Every call of a provider as a line of JSON: prompt, options, events with their timing, and what it left in the files.

The first line is `{"atomic_recording": 1, "command": [...]}`. Several sessions, also of several processes, may write to
one file: a call is written when it is over, as one line under a lock. Secrets are redacted before.
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

from atomic.errors import AtomicError
from atomic.providers.base import CustomTool, SessionOptions
from atomic.providers.errors import ProviderError
from atomic.providers.events import AgentEvent, Notice, TextDelta, ThinkingDelta, ToolOutput
from atomic.providers.heading import role_and_task
from atomic.redact import Redactor

if TYPE_CHECKING:  # git is for those who change files: many a recording is only words
    from atomic.git import Changes, FileWatch

VERSION = 1
PATIENCE = 10.0  # seconds that looking at the files may take, before a turn and after it

_BYTES = "\nGIT binary patch\n"

# msgspec looks at a type when it is first decoded, and two threads that do so at once crash the interpreter.
_decoding = threading.Lock()

_log = logging.getLogger(__name__)


class RecordingError(ProviderError):
    """A file is no recording, or a damaged one; the text says where and why."""

    def __init__(self, path: Path, reason: str, *, line: int | None = None) -> None:
        self.path, self.reason, self.line = path, reason, line
        place = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{place}: {reason}", provider="replay")


class RecordedCall(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a provider, as it is read. Only `events` is needed to play it."""

    role: str | None = None
    task: str | int | None = None
    prompt: str = ""
    match: str | None = None  # regular expression: it answers only a prompt in which that is found
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
        """Whether there is anything in `changes` that could be made again."""
        return bool(self.commits or (self.patch or "").strip() or self.rewind or self.branch is not None)

    @property
    def changes(self) -> Changes:
        """What the call left in the files."""
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
    """All of a file. `cut_off` is the number of a last line that was not written to its end; it is passed over."""

    calls: Sequence[RecordedCall]
    command: Sequence[str] = ()
    cut_off: int | None = None


# -- reading ---------------------------------------------------------------------------------------------------------


class _Header(msgspec.Struct, frozen=True):
    atomic_recording: int
    command: Sequence[str] = ()


def read_recording(path: Path) -> Recording:
    """Read a file. Raises RecordingError with the line and the reason."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RecordingError(path, error.strerror or str(error)) from error
    with _decoding:
        return _decoded(path, lines)


def _decoded(path: Path, lines: Sequence[bytes]) -> Recording:
    header = _header(path, lines[0])
    calls: list[RecordedCall] = []
    cut_off: int | None = None
    for number, line in enumerate(lines[1:], start=2):
        try:
            if line.strip():
                calls.append(_call(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, re.error) as error:
            if number < len(lines) or isinstance(error, (msgspec.ValidationError, re.error)):
                raise RecordingError(path, str(error), line=number) from error
            cut_off = number  # no line end behind it: whoever wrote it was stopped
    return Recording(calls, header.command, cut_off)


def _header(path: Path, line: bytes) -> _Header:
    try:
        header = msgspec.json.decode(line, type=_Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RecordingError(path, f"this is no recording of Atomic: {error}", line=1) from error
    if header.atomic_recording != VERSION:
        reason = f"this is a recording of version {header.atomic_recording}; this Atomic reads version {VERSION}"
        raise RecordingError(path, reason, line=1)
    return header


def _call(line: bytes) -> RecordedCall:
    call = msgspec.json.decode(line, type=RecordedCall, strict=False)  # who writes one by hand gives a time as seconds
    re.compile(call.match or "")
    return call


# -- writing ---------------------------------------------------------------------------------------------------------


class Recorder:
    """Records the calls of one session. What goes wrong with it is told once and never ends a turn."""

    def __init__(self, provider: str, options: SessionOptions) -> None:
        assert options.record is not None
        self.path = Path(options.record).absolute()
        self.provider, self.options = provider, options
        self._environments = [options.env, *(server.env for server in options.mcp_servers)]
        self._headers = [server.headers for server in options.mcp_servers]
        self.redactor = Redactor.of_environment(*self._environments, headers=self._headers)
        self._told: set[str] = set()

    def learn(self, *environments: Mapping[str, str]) -> None:
        """There are secrets in these too."""
        self._environments += environments
        self.redactor = Redactor.of_environment(*self._environments, headers=self._headers)

    def call(self, prompt: str) -> CallRecorder:
        return CallRecorder(self, prompt)

    def notices(self, problems: Sequence[str]) -> list[Notice]:
        """The problems that nobody was told of yet."""
        new = [problem for problem in dict.fromkeys(problems) if problem not in self._told]
        self._told.update(new)
        return [Notice(f"{self.path.name}: {problem}") for problem in new]


class CallRecorder:
    """Records one call: `start` before it, `hear` each event, `finish` when it is over."""

    def __init__(self, recorder: Recorder, prompt: str) -> None:
        self._recorder, self._prompt = recorder, prompt
        self._events: list[tuple[float, AgentEvent]] = []
        self._clock = asyncio.get_running_loop().time
        self._began = self._clock()
        self._stack = AsyncExitStack()
        self._watch: FileWatch | None = None
        self._problems: list[str] = []
        self._writing: asyncio.Task[list[Notice]] | None = None

    async def start(self) -> None:
        """See what is in the files before the turn."""
        from atomic.git import watching

        folder = self._recorder.options.cwd or Path.cwd()
        try:
            async with asyncio.timeout(PATIENCE):
                watch = watching(folder, ignored=[self._recorder.path])
                self._watch = await self._stack.enter_async_context(watch)
        except (AtomicError, OSError) as error:
            self._problems.append(_files_unknown(error))
        if self._writing is not None:  # the turn was over before it began: nobody else would tidy up
            await self._stack.aclose()
        self._began = self._clock()

    def hear(self, event: AgentEvent) -> None:
        self._events.append((round(self._clock() - self._began, 3), event))

    async def finish(self, session: str) -> list[Notice]:
        """Write the call down, once; what to tell about it. It goes on if the one who waits is cancelled."""
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
            async with asyncio.timeout(PATIENCE):
                if self._watch is not None:
                    changes = await self._watch.changes(is_secret=self._recorder.redactor.finds)
        except (AtomicError, OSError) as error:
            self._problems.append(_files_unknown(error))
        finally:
            await self._stack.aclose()
        if changes.left_out:
            names = ", ".join(_storable(name) for name in changes.left_out[:5])
            more = f" and {len(changes.left_out) - 5} more" if len(changes.left_out) > 5 else ""
            self._problems.append(f"left out, because too big, not readable or with a secret in bytes: {names}{more}")
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
    """Add a line to a recording, which is begun if need be. Raises RecordingError, OSError."""
    line = msgspec.json.encode(record) + b"\n"
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "r+b", buffering=0) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        size = _mend(path, file.fileno())
        if size == 0:
            words = _command() if command is None else command
            header = {"atomic_recording": VERSION, "command": Redactor.of_environment().data(list(words))}
            line = msgspec.json.encode(header) + b"\n" + line
        try:
            _write_all(file.fileno(), line)
        except OSError:
            os.ftruncate(file.fileno(), size)  # the disk is full: no half line
            raise


def _mend(path: Path, file: int) -> int:
    """See that it is a recording and ends with a line end; a line that was cut off is taken away. Its size then."""
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


def _command() -> list[str]:
    return [Path(sys.argv[0]).name, *sys.argv[1:]] if sys.argv else []


def _files_unknown(error: Exception) -> str:
    why = f"git took longer than {PATIENCE:g} s" if isinstance(error, TimeoutError) else str(error)
    return f"the changes of files are not recorded: {why}"


def _shape(options: SessionOptions) -> dict[str, Any]:
    """What a session was like, as far as it says something to a reader on another machine."""
    shape: dict[str, Any] = {
        "system_prompt": options.system_prompt,
        "tools": None if options.tools is None else list(options.tools),
        "denied_tools": list(options.denied_tools),
        "agents": [agent.name for agent in options.agents],
        "mcp_servers": [server.name for server in options.mcp_servers],
        "disabled_mcp_servers": list(options.disabled_mcp_servers),
        "custom_tools": [_name_of(tool) for tool in options.custom_tools],
        "max_turns": options.max_turns,
        "resume": options.resume,
        "fork": options.fork,
        "trusted": options.trusted,
    }
    return {"model": options.model, "options": {name: value for name, value in shape.items() if value}}


def _name_of(tool: CustomTool | Callable[..., Any]) -> str:
    return tool.name if isinstance(tool, CustomTool) else getattr(tool, "__name__", type(tool).__name__)


def _but_for_defaults(changes: Changes) -> dict[str, Any]:
    plain = {"folder": changes.folder, "rewind": changes.rewind, "dirty": changes.dirty, "left_out": changes.left_out}
    given = {name: value for name, value in plain.items() if value}
    return given if changes.branch is None else {**given, "branch": changes.branch}


# -- without secrets -------------------------------------------------------------------------------------------------


def _redacted_events(redactor: Redactor, events: Sequence[tuple[float, AgentEvent]]) -> list[Any]:
    """The events as plain data. A text that comes in pieces is looked at as a whole: a secret may lie across them."""
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
    """A patch without secrets; what it says in bytes stays, or it would not be one any more."""
    from atomic.git import split_patch

    return "".join(part if _BYTES in part else redactor.text(part, code=True) for part in split_patch(patch))


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
    """A text that JSON can carry: half a character (a name of a file that is no UTF-8) becomes a question mark."""
    with suppress(UnicodeEncodeError):
        text.encode()
        return text
    return text.encode("utf-8", "replace").decode()
