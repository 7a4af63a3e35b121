"""A program that stays: its pipes as streams, its end known, its group ended with the context."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from typing import IO

from atomic.processes.exit_watch import ExitWatch
from atomic.processes.groups import GRACE, end_group, send_signal
from atomic.processes.start import guard, start
from atomic.processes.stray_children import mark_in

LINE_LIMIT = 64 * 1024 * 1024  # of one line that is read from it
_TAIL = 64 * 1024  # of what it says on stderr


class Program:
    """A running program. `stdout` is to be read, or it will stand still; stderr is read here, its end is kept."""

    def __init__(self, process: subprocess.Popen[bytes], stdout: asyncio.StreamReader) -> None:
        self.pid = process.pid
        self.stdout = stdout
        self.survivors: list[str] = []  # what lived on after it was killed
        self.stdin: asyncio.StreamWriter | None = None
        self.listener: Callable[[bytes], None] | None = None  # hears stderr as it comes
        self._process = process
        self._tail: deque[bytes] = deque()
        self._exited = asyncio.Event()

    @property
    def exit_code(self) -> int | None:
        """None while it runs; below zero the signal that ended it."""
        return self._process.returncode

    @property
    def last_words(self) -> str:
        """The end of what it said on stderr."""
        return b"".join(self._tail).decode("utf-8", "replace")[-_TAIL:].strip()

    async def wait(self) -> int:
        """Its exit code, when it has ended."""
        await self._exited.wait()
        return -signal.SIGKILL if self._process.returncode is None else self._process.returncode

    async def stop(self, *, grace: float = GRACE) -> list[str]:
        """End it and its group: TERM, after `grace` seconds KILL; name what lives on all the same."""
        self.survivors = await end_group(self.pid, grace=grace)
        if not self.survivors:
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):  # a zombie whose other threads still end has no exit code yet
                    await self._exited.wait()
        self.look()
        return self.survivors

    def look(self) -> None:
        """See whether it has exited."""
        if not self._exited.is_set() and self._process.poll() is not None:
            self._exited.set()

    def hear(self, words: bytes) -> None:
        if self.listener is not None:
            self.listener(words)
        self._tail.append(words)
        while sum(map(len, self._tail)) - len(self._tail[0]) > _TAIL:
            self._tail.popleft()


@asynccontextmanager
async def running(
    *argv: str | os.PathLike[str],
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    stdin: bool = True,
    grace: float = GRACE,
    limit: int = LINE_LIMIT,
) -> AsyncGenerator[Program]:
    """A program that runs as long as the context; leaving it ends the whole group, on cancellation too.

    `env` replaces the whole environment. Without `stdin` it reads an empty one, never the terminal.

    Raises:
        ProgramNotFoundError: there is no such program.
        ExecError: it exists but cannot be started.
    """
    words = [os.fspath(word) for word in argv]
    with guard(mark_in(env or {})) as announcements:
        folder = None if cwd is None else os.fspath(cwd)
        process = start(words, cwd=folder, env=env, has_input=stdin, announcements=announcements)
        ending: asyncio.Task[None] | None = None
        try:
            async with _connected(process, limit) as program:
                try:
                    yield program
                finally:
                    ending = asyncio.create_task(_end(program, grace))
                    await _to_the_end(ending)
        except BaseException:
            if ending is None or not ending.done():  # the loop is being torn down: there is no time for a grace
                send_signal(process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)
            raise


async def _end(program: Program, grace: float) -> None:
    if program.stdin is not None:
        program.stdin.close()
    await program.stop(grace=grace)


async def _to_the_end(ending: asyncio.Task[None]) -> None:
    """Wait for the end whatever happens; a cancellation that comes meanwhile is raised behind it."""
    interruption: asyncio.CancelledError | None = None
    while not ending.done():
        try:
            await asyncio.wait({ending})
        except asyncio.CancelledError as error:
            interruption = error
    ending.result()
    if interruption is not None:
        raise interruption


@asynccontextmanager
async def _connected(process: subprocess.Popen[bytes], limit: int) -> AsyncGenerator[Program]:
    """Its pipes as streams; they are closed at the end."""
    loop = asyncio.get_running_loop()
    stdout = asyncio.StreamReader(limit)
    program = Program(process, stdout)
    transports: list[asyncio.BaseTransport] = []
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        protocol = asyncio.StreamReaderProtocol(stdout)
        transports.append((await loop.connect_read_pipe(lambda: protocol, process.stdout))[0])
        transports.append((await loop.connect_read_pipe(lambda: _Listener(program), process.stderr))[0])
        if process.stdin is not None:
            program.stdin = await _writer(loop, process.stdin)
            transports.append(program.stdin.transport)
        with closing(ExitWatch(process.pid, program.look)):
            yield program
    finally:
        for transport in transports:
            transport.close()
        for pipe in (process.stdout, process.stderr, process.stdin)[len(transports) :]:
            if pipe is not None:
                pipe.close()  # nobody got so far as to connect it
        await asyncio.sleep(0)  # transports close in the next round of the loop


async def _writer(loop: asyncio.AbstractEventLoop, pipe: IO[bytes]) -> asyncio.StreamWriter:
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)


class _Listener(asyncio.Protocol):
    """Hears what a program says on stderr."""

    def __init__(self, program: Program) -> None:
        self._program = program

    def data_received(self, data: bytes) -> None:
        self._program.hear(data)
