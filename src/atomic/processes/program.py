"""Run a program as long as a context: pipes as streams, its exit observed, its group
ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress

from atomic.processes.groups import GRACE, ExitWatch, end_group, finish, mark_in, send_signal
from atomic.processes.start import guard, start

LINE_LIMIT = 64 * 1024 * 1024  # bytes of one line of stdout
_TAIL = 64 * 1024  # bytes of stderr that are kept


class Program:
    """A running program. The caller must read `stdout`, or the program blocks.

    stderr is read here, and its end is kept.
    """

    def __init__(self, process: subprocess.Popen[bytes], stdout: asyncio.StreamReader) -> None:
        self.pid = process.pid
        self.stdout = stdout
        self.stdin: asyncio.StreamWriter | None = None
        self.on_stderr: Callable[[bytes], None] | None = None
        self.survivors: list[str] = []  # processes that were still alive after SIGKILL
        self._process = process
        self._tail: deque[bytes] = deque()
        self._exited = asyncio.Event()

    @property
    def exit_code(self) -> int | None:
        """Return the exit code.

        None while it runs, negative for the signal that ended it.
        """
        return self._process.returncode

    @property
    def stderr_tail(self) -> str:
        """Return the end of stderr."""
        return b"".join(self._tail).decode("utf-8", "replace")[-_TAIL:].strip()

    async def wait(self) -> int:
        """Wait for the exit and return the exit code."""
        await self._exited.wait()
        return -signal.SIGKILL if self._process.returncode is None else self._process.returncode

    async def stop(self, *, grace: float = GRACE) -> list[str]:
        """End it and its group: TERM, after `grace` seconds KILL.

        Return the survivors.
        """
        self.survivors = await end_group(self.pid, grace=grace)
        if not self.survivors:
            # A zombie whose other threads are still ending has no exit code yet.
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE):
                    await self._exited.wait()
        self.poll()
        return self.survivors

    def poll(self) -> None:
        """Check whether it has exited."""
        if not self._exited.is_set() and self._process.poll() is not None:
            self._exited.set()

    def receive_stderr(self, data: bytes) -> None:
        if self.on_stderr is not None:
            self.on_stderr(data)
        self._tail.append(data)
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
    """Run a program as long as the context.

    Leaving it ends the whole group, also on cancellation.

    `env` replaces the whole environment. Without `stdin` the program reads an empty
    one, never the terminal.

    Raises:
        ProgramNotFoundError: the program does not exist.
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
                    await finish(ending)
        except BaseException:
            # The event loop is being torn down, so there is no time for a grace period.
            if ending is None or not ending.done():
                send_signal(process.pid, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)
            raise


async def _end(program: Program, grace: float) -> None:
    if program.stdin is not None:
        program.stdin.close()
    await program.stop(grace=grace)


@asynccontextmanager
async def _connected(process: subprocess.Popen[bytes], limit: int) -> AsyncGenerator[Program]:
    """Connect the pipes as streams; leaving the context closes them."""
    loop = asyncio.get_running_loop()
    stdout = asyncio.StreamReader(limit)
    program = Program(process, stdout)
    transports: list[asyncio.BaseTransport] = []
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        protocol = asyncio.StreamReaderProtocol(stdout)
        transports.append((await loop.connect_read_pipe(lambda: protocol, process.stdout))[0])
        transports.append((await loop.connect_read_pipe(lambda: _StderrReader(program), process.stderr))[0])
        if process.stdin is not None:
            writing, flow = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, process.stdin)
            program.stdin = asyncio.StreamWriter(writing, flow, None, loop)
            transports.append(writing)
        with closing(ExitWatch(process.pid, program.poll)):
            yield program
    finally:
        for transport in transports:
            transport.close()
        for pipe in (process.stdout, process.stderr, process.stdin)[len(transports) :]:
            if pipe is not None:
                pipe.close()  # it was not connected
        await asyncio.sleep(0)  # transports close in the next round of the loop


class _StderrReader(asyncio.Protocol):
    def __init__(self, program: Program) -> None:
        self._program = program

    def data_received(self, data: bytes) -> None:
        self._program.receive_stderr(data)
