"""Run a program to its end and keep its output.

A task of its own supervises the program. A cancellation only asks that task to stop: a
second one cannot cut the cleanup short, and the caller gets its `CancelledError` after
the group has ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

import msgspec

from atomic.processes.groups import GRACE, ExitWatch, end_group, end_marked, mark_in, send_signal
from atomic.processes.start import ExecError, guard, shared_guard, start

MAX_OUTPUT = 64 * 1024 * 1024


class ExecResult(msgspec.Struct, frozen=True):
    """The output and exit code of a program.

    A negative code is the signal that ended it.
    """

    exit_code: int
    stdout: str
    stderr: str
    seconds: float


class ExecTimeoutError(ExecError):
    """A program took too long and was ended. Its output until then is kept."""

    def __init__(
        self, argv: Sequence[str], *, timeout: float, stdout: str, stderr: str, survivors: Sequence[str]
    ) -> None:
        self.timeout = timeout
        self.stdout = stdout
        self.stderr = stderr
        self.survivors = tuple(survivors)
        message = f'Program took longer than {timeout:g} s and was ended: "{argv[0]}" (give it a longer timeout)'
        if survivors:
            message += f"; still alive after SIGKILL: {', '.join(survivors)}"
        super().__init__(message, argv)


class ExecOutputError(ExecError):
    """A program wrote more than can be kept and was ended."""

    def __init__(self, argv: Sequence[str], *, max_output: int) -> None:
        self.max_output = max_output
        hint = "let it write to a file, or raise max_output"
        super().__init__(f'Program wrote more than {max_output} bytes and was ended: "{argv[0]}" ({hint})', argv)


class _Order(msgspec.Struct, frozen=True):
    """The arguments of `execute`."""

    argv: list[str]
    cwd: str | None
    env: Mapping[str, str] | None
    input: bytes | None
    timeout: float | None
    max_output: int
    errors: str
    on_output: Callable[[bytes], None] | None
    is_short: bool
    mark: Mapping[str, str] | None


async def execute(
    *argv: str | os.PathLike[str],
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,
    timeout: float | None = None,
    max_output: int = MAX_OUTPUT,
    errors: str = "replace",
    on_output: Callable[[bytes], None] | None = None,
    is_short: bool = False,
    mark: dict[str, str] | None = None,
) -> ExecResult:
    """Run a program to its end, never through a shell. A nonzero exit code is a result.

    Processes that the program leaves in its group are ended when it exits.

    Args:
        env: replaces the whole environment.
        input: without it the program reads an empty stdin, never the terminal.
        errors: how bytes that are not UTF-8 are decoded, as for `bytes.decode`.
        on_output: gets the output as it arrives, stdout and stderr as one stream. The
            output is not kept then and has no limit.
        is_short: the program starts no others and ends by itself, as most of git does.
            It then takes a third of the time to start.
        mark: a variable of `new_mark` that is part of `env`. It finds and ends children
            that have moved to a session of their own (on Linux).

    Raises:
        ProgramNotFoundError: the program does not exist.
        ExecError: it exists but cannot be started.
        ExecTimeoutError: it took longer than `timeout` seconds.
        ExecOutputError: stdout and stderr together are longer than `max_output` bytes.
    """
    order = _Order(
        argv=[os.fspath(word) for word in argv],
        cwd=None if cwd is None else os.fspath(cwd),
        env=env,
        input=input.encode() if isinstance(input, str) else input,
        timeout=timeout,
        max_output=max_output,
        errors=errors,
        on_output=on_output,
        is_short=is_short,
        mark=mark,
    )
    stop = asyncio.get_running_loop().create_future()
    supervision = asyncio.create_task(_supervise(order, stop))
    cancellation: asyncio.CancelledError | None = None
    while not supervision.done():
        try:
            await asyncio.wait({supervision})
        except asyncio.CancelledError as error:
            cancellation = error
            if not stop.done():
                stop.set_result(None)
    if cancellation is not None:
        if not supervision.cancelled():
            supervision.exception()  # retrieved, so that asyncio does not log it
        raise cancellation
    return supervision.result()


async def _supervise(order: _Order, stop: asyncio.Future[None]) -> ExecResult:
    """Run the program, wait for its end or for `stop`, and clean up."""
    with _running(order) as child:
        await _first_of(child.over, stop, timeout=order.timeout)
        timed_out = not (child.over.done() or stop.done())
        if child.exit_code is not None:
            # A child of the program may hold the pipes. It gets time to finish its
            # output.
            await _first_of(child.drained, stop, timeout=GRACE)
        survivors = await end_group(child.group)
        if order.mark is not None:
            survivors += [str(pid) for pid in await end_marked(order.mark)]
        child.poll()
    stdout = child.text(1, order.errors)
    stderr = child.text(2, order.errors)
    if timed_out and order.timeout is not None:
        raise ExecTimeoutError(order.argv, timeout=order.timeout, stdout=stdout, stderr=stderr, survivors=survivors)
    if child.overflowed:
        raise ExecOutputError(order.argv, max_output=order.max_output)
    exit_code = -signal.SIGKILL if child.exit_code is None else child.exit_code
    return ExecResult(exit_code, stdout, stderr, child.seconds)


async def _first_of(*futures: asyncio.Future[None], timeout: float | None) -> None:
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


@contextmanager
def _running(order: _Order) -> Generator[_Child]:
    """Start the program under a guard; leaving the context closes its pipes."""
    with ExitStack() as stack:
        announcements = None
        if not order.is_short:
            announcements = stack.enter_context(guard(mark_in(order.mark or {})))
        process = start(
            order.argv,
            cwd=order.cwd,
            env=order.env,
            has_input=order.input is not None,
            announcements=announcements,
            one_pipe=order.on_output is not None,
        )
        try:
            if order.is_short:
                stack.enter_context(shared_guard(process.pid))
            child = _Child(process, order)
            stack.callback(child.close)
            yield child
        except BaseException:
            # The event loop is being torn down, so there is no time for a grace period.
            send_signal(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            raise


class _Child:
    """One running program: its pipes and its exit in the event loop.

    asyncio's own subprocess is not used. In some versions its `wait()` also waits for
    the pipes, and so for a grandchild that holds them, and a cancellation while it
    connects the pipes hangs. Here the start awaits nothing.
    """

    def __init__(self, process: subprocess.Popen[bytes], order: _Order) -> None:
        loop = asyncio.get_running_loop()
        self.over: asyncio.Future[None] = loop.create_future()  # it exited, or wrote too much
        self.drained: asyncio.Future[None] = loop.create_future()  # no process has the pipes open
        self.group = process.pid
        self.overflowed = False
        self.seconds = 0.0
        self._loop = loop
        self._process = process
        self._started = loop.time()
        self._room = order.max_output
        self._on_output = order.on_output
        self._input = memoryview(order.input or b"")
        self._output: dict[int, list[bytes]] = {1: [], 2: []}
        self._pipes: dict[int, IO[bytes]] = {}
        self._has_exited = False
        if process.stdin is not None:
            self._attach(0, process.stdin)
            loop.add_writer(process.stdin, self._write)
        for number, pipe in ((1, process.stdout), (2, process.stderr)):
            if pipe is not None:
                self._attach(number, pipe)
                loop.add_reader(pipe, self._read, number)
        self._watch = ExitWatch(process.pid, self.poll)

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def text(self, number: int, errors: str) -> str:
        return b"".join(self._output[number]).decode("utf-8", errors)

    def poll(self) -> None:
        """Check whether it has exited."""
        if self._has_exited or self._process.poll() is None:
            return
        self._has_exited = True
        self.seconds = self._loop.time() - self._started
        if not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        self.poll()
        self._watch.close()
        for number in list(self._pipes):
            self._detach(number)

    def _attach(self, number: int, pipe: IO[bytes]) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipes[number] = pipe

    def _detach(self, number: int) -> None:
        pipe = self._pipes.pop(number)
        self._loop.remove_reader(pipe)
        self._loop.remove_writer(pipe)
        pipe.close()
        if not self._pipes.keys() & self._output.keys() and not self.drained.done():
            self.drained.set_result(None)

    def _read(self, number: int) -> None:
        try:
            data = os.read(self._pipes[number].fileno(), 256 * 1024)
        except BlockingIOError:
            return
        if data and self._on_output is not None:
            self._on_output(data)
            return
        self._room -= len(data)
        if self._room < 0 or not data:
            self._detach(number)
        else:
            self._output[number].append(data)
        if self._room < 0:
            self.overflowed = True
            if not self.over.done():
                self.over.set_result(None)

    def _write(self) -> None:
        try:
            self._input = self._input[os.write(self._pipes[0].fileno(), self._input[: 64 * 1024]) :]
        except BlockingIOError:
            return
        except BrokenPipeError:  # it does not read the rest
            self._input = self._input[:0]
        if not self._input:
            self._detach(0)
