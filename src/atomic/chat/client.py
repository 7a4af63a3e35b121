"""The client of the engine, for the screen and `--plain`.

The engine is another process. If it hangs or dies, the client itself ends each active
run, and the next intent starts a new engine, which resumes the conversation.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, suppress
from time import perf_counter
from typing import Protocol

from atomic.base.errors import signal_name
from atomic.chat.protocol import (
    ChatEvent,
    ChatNotice,
    Cleared,
    Intent,
    Interrupt,
    Leave,
    Left,
    Level,
    RunEnded,
    RunKind,
    RunStarted,
    ScreenSize,
    Shell,
    StatusChanged,
    Submit,
    Watch,
    decode_event,
    encode,
)
from atomic.processes import ExitWatch, end_group, guard

SLICE = 0.005  # seconds of events before other tasks, such as keys, get a turn
FORCE_AFTER = 1.0  # seconds until an engine must react to a forced stop
KILL_AFTER = 5.0  # seconds until it must have ended the run
START_LIMIT = 30.0  # seconds until an engine must send anything after a prompt
LEAVE_GRACE = 2.0  # seconds for an engine to end by itself

_PIECE = 256 * 1024  # bytes read at once
_MOST_WAITING = 8 * 1024 * 1024  # unread bytes; the rest stays in the socket
_TAIL = 4 * 1024  # bytes of standard error that are kept
_EXIT_GRACE = 0.5  # seconds from the end of the socket to the end of the process
_ORPHAN_GRACE = 5  # seconds for an engine whose screen has died
_STARTS_ENGINE = (Submit, Shell, Watch)  # intents that restart a dead engine


class ChatClient(Protocol):
    """Sends intents to an engine and receives its events."""

    def send(self, intent: Intent) -> None:
        """Send an intent without waiting. A dead engine is started again."""
        ...

    def events(self) -> AsyncIterator[ChatEvent]:
        """Yield all events in order until `close`.

        If the engine dies, each active run ends.
        """
        ...

    async def close(self) -> None:
        """End the engine, by force if necessary. Returns when it has ended."""
        ...


class ProcessClient:
    """Starts engine processes, one at a time. Belongs to one event loop."""

    def __init__(
        self, arguments: Sequence[str] = (), *, session: str = "", program: Sequence[str] | None = None
    ) -> None:
        self._program = tuple(program or (sys.executable, "-P", "-m", "atomic.chat"))
        self._arguments = tuple(arguments)
        self._session = session
        self._engine: _Engine | None = None
        self._active: dict[str, RunStarted | None] = {}  # None: sent and not started
        self._limits: dict[str, asyncio.TimerHandle] = {}  # of runs that have not started
        self._inbox: deque[bytes | ChatEvent] = deque()
        self._waiting = 0  # bytes in the inbox
        self._wake = asyncio.Event()
        self._width: ScreenSize | None = None
        self._starts = 0
        self._is_closed = False

    def send(self, intent: Intent) -> None:
        """Send an intent."""
        if isinstance(intent, ScreenSize):
            self._width = intent
        if isinstance(intent, Submit | Shell):
            self._active[intent.run] = None
        if self._is_closed or not self._has_engine_for(intent):
            return
        engine = self._engine
        assert engine is not None
        loop = asyncio.get_running_loop()
        engine.write(encode(intent))
        count = engine.message_count

        def kill_if_silent(run: str) -> None:
            """Kill an engine that has sent nothing since it got a prompt."""
            self._limits.pop(run, None)
            if run in self._active and engine is self._engine and engine.message_count == count:
                self._kill(engine)

        if isinstance(intent, Submit | Shell):
            self._limits[intent.run] = loop.call_later(START_LIMIT, kill_if_silent, intent.run)
        if isinstance(intent, Interrupt) and intent.force:
            loop.call_later(FORCE_AFTER, self._force, intent.run, engine, count)

    async def events(self) -> AsyncIterator[ChatEvent]:
        """Yield all events in order until `close`."""
        while True:
            began = perf_counter()
            while self._inbox:
                event = self._next()
                if event is not None:
                    yield event
                if perf_counter() - began > SLICE:
                    await asyncio.sleep(0)
                    began = perf_counter()
            if self._is_closed:
                return
            self._wake.clear()
            await self._wake.wait()

    async def close(self) -> None:
        """Close the socket, which asks the engine to end.

        After 2 s kill its process group.
        """
        if self._is_closed:
            return
        self._is_closed = True
        for run in tuple(self._limits):
            self._within_limit(run)
        engine = self._engine
        if engine is not None:
            await engine.end(LEAVE_GRACE)
            self._gone(engine)
        self._wake.set()

    def _has_engine_for(self, intent: Intent) -> bool:
        """Return whether an engine is running.

        The first intent and prompts start one.
        """
        if self._engine is not None:
            return True
        if self._starts and not isinstance(intent, _STARTS_ENGINE):
            if isinstance(intent, Leave):
                self._put(Left())
            return False
        return self._start()

    def _start(self) -> bool:
        self._starts += 1
        arguments = (*self._arguments, *(("--resume", self._session) if self._session else ()))
        try:
            self._engine = _Engine((*self._program, *arguments), self)
        except OSError as error:
            self._end_runs(f"The engine could not be started: {error.strerror or error}")
            return False
        if self._starts > 1 and self._width is not None:
            self._engine.write(encode(self._width))
        return True

    def receive(self, lines: Sequence[bytes]) -> None:
        """Take lines of the engine."""
        self._inbox.extend(lines)
        self._waiting += sum(map(len, lines))
        self._wake.set()

    @property
    def is_full(self) -> bool:
        """Return whether many bytes are unread."""
        return self._waiting > _MOST_WAITING

    def died(self, engine: _Engine) -> None:
        """Note the end of an engine, which ends its active runs."""
        if engine is not self._engine or self._is_closed:
            return
        self._gone(engine)
        # Earlier lines are read first: only then it is known which runs are active.
        self._inbox.append(_DIED + engine.how_it_died.encode("utf-8", "replace"))
        self._wake.set()

    def _gone(self, engine: _Engine) -> None:
        engine.close()
        self._engine = None

    def _kill(self, engine: _Engine) -> None:
        engine.kill()
        self.died(engine)

    def _within_limit(self, run: str) -> None:
        limit = self._limits.pop(run, None)
        if limit is not None:
            limit.cancel()

    def _force(self, run: str, engine: _Engine, message_count: int) -> None:
        """End a run that was stopped by force a second ago.

        Kill the engine if it is silent.
        """
        if run not in self._active or engine is not self._engine:
            return
        if engine.message_count == message_count:
            self._kill(engine)
            return
        self._put(RunEnded(run=run, status="interrupted", message="Stopped without waiting for the agent."))

        def kill() -> None:
            if engine is self._engine and run not in engine.ended_runs:
                self._kill(engine)

        asyncio.get_running_loop().call_later(KILL_AFTER, kill)

    def _put(self, *events: ChatEvent) -> None:
        self._inbox.extend(events)
        self._wake.set()

    def _next(self) -> ChatEvent | None:
        """Return the next event, or None if the next entry of the inbox is not one."""
        item = self._inbox.popleft()
        if not isinstance(item, bytes):
            self._note(item)
            return item
        if item.startswith(_DIED):
            self._end_runs(item[len(_DIED) :].decode())
            return None
        self._waiting -= len(item)
        if self._engine is not None:
            self._engine.read_on()
        try:
            event = decode_event(item)
        except ValueError as error:  # also raised by msgspec, and for invalid UTF-8
            return ChatNotice(text=f"A message of the engine cannot be read: {error}", level=Level.ERROR)
        if isinstance(event, RunEnded) and self._engine is not None:
            self._engine.ended_runs.add(event.run)
        self._note(event)
        return event

    def _note(self, event: ChatEvent) -> None:
        """Track the active runs and the conversation to resume."""
        match event:
            case RunStarted(run=run):
                self._active[run] = event
                self._within_limit(run)
            case RunEnded(run=run):
                self._active.pop(run, None)
                self._within_limit(run)
            case StatusChanged(session=session) | Cleared(session=session) if session:
                self._session = session
            case Left():
                self._end_runs("")
            case _:
                pass

    def _end_runs(self, why: str) -> None:
        """End all active runs, before all other events."""
        ends: list[ChatEvent] = [_end_of(run, started, why) for run, started in self._active.items()]
        if why and not ends:
            ends.append(ChatNotice(text=why, level=Level.ERROR))
        self._active.clear()
        self._inbox.extendleft(reversed(ends))
        self._wake.set()


_DIED = b"\0died "  # JSON cannot begin like this


def _end_of(run: str, started: RunStarted | None, why: str) -> RunEnded:
    if started is not None and started.kind is RunKind.WORKFLOW:
        resume = f"/resume {started.session}" if started.session else ""
        return RunEnded(
            run=run, status="detached", message=f"{why} The run continues in its own process.".strip(), resume=resume
        )
    return RunEnded(run=run, status="failed" if why else "interrupted", message=why)


class _Engine:
    """One engine: its process, its guard, and the socket to it."""

    def __init__(self, argv: Sequence[str], owner: ProcessClient) -> None:
        self.message_count = 0  # reads with data
        self.ended_runs: set[str] = set()  # reported by the engine
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._out = bytearray()
        self._line = bytearray()  # incomplete
        self._tail = b""
        self._is_paused = False
        self._over = asyncio.Event()
        with ExitStack() as stack:
            self._socket, theirs = socket.socketpair()
            stack.callback(self._socket.close)
            self._socket.setblocking(False)
            with theirs:
                announcements = stack.enter_context(guard(grace=_ORPHAN_GRACE))
                self._process = _popen((*argv, "--fd", str(theirs.fileno())), theirs.fileno())
            os.write(announcements, b"%d\n" % self._process.pid)
            assert self._process.stderr is not None
            self._stderr = stack.enter_context(self._process.stderr)
            os.set_blocking(self._stderr.fileno(), False)
            self._watch = ExitWatch(self._process.pid, self._exited)
            stack.callback(self._watch.close)
            self._loop.add_reader(self._socket, self._read)
            self._loop.add_reader(self._stderr, self._read_stderr)
            self._stack = stack.pop_all()

    def write(self, line: bytes) -> None:
        """Send a line. The rest follows when the socket is ready."""
        if not self._out:
            self._loop.add_writer(self._socket, self._write)
        self._out += line
        self._write()

    def read_on(self) -> None:
        """Continue reading after a pause."""
        if self._is_paused and not self._owner.is_full:
            self._is_paused = False
            self._loop.add_reader(self._socket, self._read)

    @property
    def how_it_died(self) -> str:
        """Return a sentence for the user, or an empty string if it ended normally."""
        self._read_stderr()
        code = self._process.poll()
        if code == 0:
            return ""
        if code is None:
            how = "did not answer"
        elif code > 0:
            how = f"exit code {code}"
        else:
            how = signal_name(-code)
        last = self._tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"The engine died ({how}){': ' + last if last else '.'}"

    async def end(self, grace: float) -> None:
        """Close our half of the socket, wait, then kill the process group."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._over.wait()
        await end_group(self._process.pid, grace=0.5)

    def kill(self) -> None:
        """Kill the process group."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._loop.remove_reader(self._stderr)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        self._stack.close()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._out)
        except BlockingIOError:
            return
        except OSError:  # it has ended, which ExitWatch reports
            sent = len(self._out)
        del self._out[:sent]
        if not self._out:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        """Read from the socket. Lines are decoded later."""
        try:
            piece = self._socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if piece:
            self._take(piece)
            return
        self._loop.remove_reader(self._socket)  # wait for the exit code
        self._loop.call_later(_EXIT_GRACE, self._owner.died, self)

    def _take(self, piece: bytes) -> None:
        self.message_count += 1
        *lines, rest = (self._line + piece).split(b"\n")
        self._line = bytearray(rest)
        self._owner.receive([bytes(line) for line in lines if line])
        if self._owner.is_full and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._socket)

    def _exited(self) -> None:
        """Read the rest of the socket, which a child process may keep open."""
        self._over.set()
        with suppress(OSError):  # there is no more
            while piece := self._socket.recv(_PIECE):
                self._take(piece)
        self._owner.died(self)

    def _read_stderr(self) -> None:
        try:
            text = os.read(self._stderr.fileno(), _PIECE)
        except (BlockingIOError, ValueError):
            return
        if not text:
            self._loop.remove_reader(self._stderr)
        self._tail = (self._tail + text)[-_TAIL:]


def _popen(argv: Sequence[str], fd: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        argv,
        bufsize=0,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=(fd,),
        start_new_session=True,
    )
