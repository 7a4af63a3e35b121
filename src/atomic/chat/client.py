"""The screen's end of the wire to the engine.

The engine is a process of its own. It may be stuck or die: whoever waits here is told the end of each run all the
same, and what is sent next starts another engine, which goes on with the conversation.
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

SLICE = 0.005  # seconds of news in one go: keys come in between
FORCE_AFTER = 1.0  # seconds that an engine has to say something after it was told to stop at once
KILL_AFTER = 5.0  # seconds after which one that only talks is ended
START_LIMIT = 30.0  # seconds in which an engine must have begun with what was sent, or at least said something
LEAVE_GRACE = 2.0  # seconds for an engine to end by itself

_PIECE = 256 * 1024  # bytes read at once
_MOST_WAITING = 8 * 1024 * 1024  # bytes that nobody has looked at yet; more stay with the engine
_TAIL = 4 * 1024  # bytes of its last words
_EXIT_GRACE = 0.5  # seconds between the end of the wire and the end of the process
_ORPHAN_GRACE = 5  # seconds for an engine whose screen has died
_WANTING = (Submit, Shell, Watch)  # what is worth another engine


class ChatClient(Protocol):
    """Carries intents to an engine and brings its news."""

    def send(self, intent: Intent) -> None:
        """Hand over an intent. It never waits; an engine that has died is started again by what is sent next."""
        ...

    def events(self) -> AsyncIterator[ChatEvent]:
        """All news in their order until `close`; if the engine dies, the end of each active run is among them."""
        ...

    async def close(self) -> None:
        """End the engine: asked, then by its process group. Returns when it has gone."""
        ...


class ProcessClient:
    """Starts engines and speaks with the one that lives. It belongs to one event loop."""

    def __init__(
        self, arguments: Sequence[str] = (), *, session: str = "", program: Sequence[str] | None = None
    ) -> None:
        self._program = tuple(program or (sys.executable, "-P", "-m", "atomic.chat"))
        self._arguments, self._session = tuple(arguments), session
        self._engine: _Engine | None = None
        self._active: dict[str, RunStarted | None] = {}  # None: it was sent, and nobody has begun with it
        self._limits: dict[str, asyncio.TimerHandle] = {}  # of runs that nobody has begun with
        self._inbox: deque[bytes | ChatEvent] = deque()
        self._waiting = 0  # bytes in the inbox
        self._wake = asyncio.Event()
        self._width: ScreenSize | None = None
        self._starts = 0
        self._is_closed = False

    def send(self, intent: Intent) -> None:
        """Hand over an intent."""
        if isinstance(intent, ScreenSize):
            self._width = intent
        if isinstance(intent, Submit | Shell):
            self._active[intent.run] = None
        if self._is_closed or not self._is_there(intent):
            return
        engine, loop = self._engine, asyncio.get_running_loop()
        assert engine is not None
        engine.write(encode(intent))
        if isinstance(intent, Submit | Shell):
            limit = loop.call_later(START_LIMIT, self._look_at_start, intent.run, engine, engine.said)
            self._limits[intent.run] = limit
        if isinstance(intent, Interrupt) and intent.force:
            loop.call_later(FORCE_AFTER, self._force, intent.run, engine, engine.said)

    async def events(self) -> AsyncIterator[ChatEvent]:
        """All news in their order until `close`."""
        while True:
            began = perf_counter()
            while self._inbox:
                news = self._next()
                if news is not None:
                    yield news
                if perf_counter() - began > SLICE:
                    await asyncio.sleep(0)
                    began = perf_counter()
            if self._is_closed:
                return
            self._wake.clear()
            await self._wake.wait()

    async def close(self) -> None:
        """End the engine: the end of the wire asks it to; then by its process group."""
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

    # -- the engine's life

    def _is_there(self, intent: Intent) -> bool:
        """Whether there is an engine for an intent; one that is worth it, and the first, start one."""
        if self._engine is not None:
            return True
        if self._starts and not isinstance(intent, _WANTING):
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

    def heard(self, lines: Sequence[bytes]) -> None:
        """An engine has said something."""
        self._inbox.extend(lines)
        self._waiting += sum(map(len, lines))
        self._wake.set()

    @property
    def is_full(self) -> bool:
        """Whether nobody has had time for what was said already."""
        return self._waiting > _MOST_WAITING

    def died(self, engine: _Engine) -> None:
        """An engine has ended; if it has not said goodbye, that is the end of all that it did."""
        if engine is not self._engine or self._is_closed:
            return
        self._gone(engine)
        # All that it has said is looked at before: only then is it known which runs are active.
        self._inbox.append(_DIED + engine.how_it_died.encode("utf-8", "replace"))
        self._wake.set()

    def _gone(self, engine: _Engine) -> None:
        engine.close()
        self._engine = None

    def _look_at_start(self, run: str, engine: _Engine, said: int) -> None:
        """It was sent something long ago. If it has not said a word since, it never will."""
        self._limits.pop(run, None)
        if run in self._active and engine is self._engine and engine.said == said:
            engine.kill()
            self.died(engine)

    def _within_limit(self, run: str) -> None:
        limit = self._limits.pop(run, None)
        if limit is not None:
            limit.cancel()

    def _force(self, run: str, engine: _Engine, said: int) -> None:
        """It was told to stop a run at once, a second ago."""
        if run not in self._active or engine is not self._engine:
            return
        if engine.said == said:
            engine.kill()
            self.died(engine)
            return
        self._put(RunEnded(run=run, status="interrupted", message="Stopped without waiting for the agent."))
        asyncio.get_running_loop().call_later(KILL_AFTER, self._force_once_more, run, engine)

    def _force_once_more(self, run: str, engine: _Engine) -> None:
        if engine is self._engine and not engine.has_ended(run):
            engine.kill()
            self.died(engine)

    # -- news

    def _put(self, *news: ChatEvent) -> None:
        self._inbox.extend(news)
        self._wake.set()

    def _next(self) -> ChatEvent | None:
        """The next piece of news; None for what is none."""
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
            news = decode_event(item)
        except ValueError as error:  # msgspec's own is one; also bytes that are no text
            return ChatNotice(text=f"The engine said something that cannot be read: {error}", level=Level.ERROR)
        if isinstance(news, RunEnded) and self._engine is not None:
            self._engine.ended(news.run)
        self._note(news)
        return news

    def _note(self, news: ChatEvent) -> None:
        """Know which runs are active, and which conversation to go on with."""
        match news:
            case RunStarted(run=run):
                self._active[run] = news
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
        """End what nobody will end any more, before all other news."""
        ends: list[ChatEvent] = [_end_of(run, started, why) for run, started in self._active.items()]
        if why and not ends:
            ends.append(ChatNotice(text=why, level=Level.ERROR))
        self._active.clear()
        self._inbox.extendleft(reversed(ends))
        self._wake.set()


_DIED = b"\0died "  # no line of JSON begins so


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
        self.said = 0  # how often
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._out = bytearray()
        self._line = bytearray()  # the beginning of a line
        self._tail = b""
        self._ended: set[str] = set()
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
            self._words = stack.enter_context(self._process.stderr)
            os.set_blocking(self._words.fileno(), False)
            self._watch = ExitWatch(self._process.pid, self._exited)
            stack.callback(self._watch.close)
            self._loop.add_reader(self._socket, self._read)
            self._loop.add_reader(self._words, self._hear)
            self._stack = stack.pop_all()

    def write(self, line: bytes) -> None:
        """Send a line; what the socket does not take at once follows when it does."""
        if not self._out:
            self._loop.add_writer(self._socket, self._write)
        self._out += line
        self._write()

    def read_on(self) -> None:
        """Read again if it was too much before."""
        if self._is_paused and not self._owner.is_full:
            self._is_paused = False
            self._loop.add_reader(self._socket, self._read)

    def ended(self, run: str) -> None:
        self._ended.add(run)

    def has_ended(self, run: str) -> bool:
        """Whether it has said itself that a run is over."""
        return run in self._ended

    @property
    def how_it_died(self) -> str:
        """For people; empty if it left in order."""
        self._hear()
        code = self._process.poll()
        if code == 0:
            return ""
        how = "did not answer" if code is None else f"exit code {code}" if code > 0 else _name_of(-code)
        last = self._tail.decode("utf-8", "replace").strip().rpartition("\n")[2]
        return f"The engine died ({how}){': ' + last if last else '.'}"

    async def end(self, grace: float) -> None:
        """Ask it to end by closing our half of the wire, wait, then end its group."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        with suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._over.wait()
        await end_group(self._process.pid, grace=0.5)

    def kill(self) -> None:
        """End its whole group, now."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        self._loop.remove_reader(self._words)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(0.2)
        self._stack.close()

    def _write(self) -> None:
        try:
            sent = self._socket.send(self._out)
        except BlockingIOError:
            return
        except OSError:  # it has gone, which is seen elsewhere
            sent = len(self._out)
        del self._out[:sent]
        if not self._out:
            self._loop.remove_writer(self._socket)

    def _read(self) -> None:
        """Take one piece; its lines are looked at elsewhere."""
        try:
            piece = self._socket.recv(_PIECE)
        except BlockingIOError:
            return
        except OSError:
            piece = b""
        if piece:
            self._take(piece)
            return
        self._loop.remove_reader(self._socket)  # it will exit in a moment, and then it is known how
        self._loop.call_later(_EXIT_GRACE, self._owner.died, self)

    def _take(self, piece: bytes) -> None:
        self.said += 1
        *lines, rest = (self._line + piece).split(b"\n")
        self._line = bytearray(rest)
        self._owner.heard([bytes(line) for line in lines if line])
        if self._owner.is_full and not self._is_paused:
            self._is_paused = True
            self._loop.remove_reader(self._socket)

    def _exited(self) -> None:
        """Its process has ended: what it still said is in the socket, which its children may hold open."""
        self._over.set()
        with suppress(OSError):  # there is no more
            while piece := self._socket.recv(_PIECE):
                self._take(piece)
        self._owner.died(self)

    def _hear(self) -> None:
        try:
            words = os.read(self._words.fileno(), _PIECE)
        except (BlockingIOError, ValueError):
            return
        if not words:
            self._loop.remove_reader(self._words)
        self._tail = (self._tail + words)[-_TAIL:]


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


def _name_of(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
