"""Run a program to its end and keep what it says.

The program is supervised in a task of its own, which a cancellation only asks to stop: cleaning up is never
cut short by a second one, and the caller gets its `CancelledError` after the group has ended.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import IO

import msgspec

from atomic.processes.errors import ExecOutputError, ExecTimeoutError
from atomic.processes.exit_watch import ExitWatch
from atomic.processes.groups import GRACE, end_group, send_signal
from atomic.processes.start import guard, shared_guard, start
from atomic.processes.stray_children import end_marked, mark_in

MAX_OUTPUT = 64 * 1024 * 1024


class ExecResult(msgspec.Struct, frozen=True):
    """How a program ended and what it said; an exit code below zero is the signal that ended it."""

    exit_code: int
    stdout: str
    stderr: str
    seconds: float


async def execute(
    *argv: str | os.PathLike[str],
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,
    timeout: float | None = None,
    max_output: int = MAX_OUTPUT,
    errors: str = "replace",
    hear: Callable[[bytes], None] | None = None,
    is_short: bool = False,
    mark: dict[str, str] | None = None,
) -> ExecResult:
    """Run a program to its end, never through a shell; an exit code other than 0 is a result, not an error.

    `env` replaces the whole environment. Without `input` the program reads an empty stdin, never the terminal.
    `errors` says what becomes of bytes that are no UTF-8, in the words of `bytes.decode`.
    `hear` is given what the program says, stdout and stderr as one, in order and as it comes: nothing is kept then, and
    there is no limit to it.
    `is_short`: it starts no programs and ends by itself, as most of git does; to start it costs a third then.
    What the program leaves running in its group is ended when it exits. `mark`: a variable of `new_mark` that is part
    of `env`; by it children are found and ended that have moved to a session of their own (on Linux).

    Raises:
        ProgramNotFoundError: there is no such program.
        ExecError: it exists but cannot be started.
        ExecTimeoutError: it took longer than `timeout` seconds.
        ExecOutputError: stdout and stderr together are longer than `max_output` bytes.
    """
    stop = asyncio.get_running_loop().create_future()
    supervision = asyncio.create_task(
        _supervise(
            [os.fspath(word) for word in argv],
            stop,
            cwd=None if cwd is None else os.fspath(cwd),
            env=env,
            input=input.encode() if isinstance(input, str) else input,
            timeout=timeout,
            max_output=max_output,
            errors=errors,
            hear=hear,
            is_short=is_short,
            mark=mark,
        )
    )
    interruption: asyncio.CancelledError | None = None
    while not supervision.done():
        try:
            await asyncio.wait({supervision})
        except asyncio.CancelledError as error:
            interruption = error
            if not stop.done():
                stop.set_result(None)
    if interruption is not None:
        if not supervision.cancelled():
            supervision.exception()  # the caller has gone: nobody else will look at it
        raise interruption
    return supervision.result()


async def _supervise(
    argv: list[str],
    stop: asyncio.Future[None],
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    input: bytes | None,
    timeout: float | None,
    max_output: int,
    errors: str,
    hear: Callable[[bytes], None] | None,
    is_short: bool,
    mark: dict[str, str] | None,
) -> ExecResult:
    """Run, wait for the end or for `stop`, and clean up; the result of a stopped one is for nobody."""
    words = "" if mark is None else mark_in(mark)
    with _running(
        argv, cwd=cwd, env=env, input=input, max_output=max_output, hear=hear, is_short=is_short, mark=words
    ) as child:
        await _first_of(child.over, stop, timeout=timeout)
        timed_out = not (child.over.done() or stop.done())
        if child.exit_code is not None:
            # A child of the program may hold the pipes: it may finish its sentence, not keep us.
            await _first_of(child.drained, stop, timeout=GRACE)
        survivors = await end_group(child.group)
        if mark is not None:
            survivors += [str(pid) for pid in await end_marked(mark)]
        child.look()
    if timed_out and timeout is not None:
        said = child.text(1, errors), child.text(2, errors)
        raise ExecTimeoutError(argv, timeout=timeout, stdout=said[0], stderr=said[1], survivors=survivors)
    if child.overflowed:
        raise ExecOutputError(argv, max_output=max_output)
    exit_code = -signal.SIGKILL if child.exit_code is None else child.exit_code
    return ExecResult(exit_code, child.text(1, errors), child.text(2, errors), child.seconds)


async def _first_of(*futures: asyncio.Future[None], timeout: float | None) -> None:
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


@contextmanager
def _running(
    argv: list[str],
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    input: bytes | None,
    max_output: int,
    hear: Callable[[bytes], None] | None,
    is_short: bool,
    mark: str,
) -> Generator[_Child]:
    with ExitStack() as stack:
        has_input, one_pipe = input is not None, hear is not None
        announcements = None if is_short else stack.enter_context(guard(mark))
        process = start(argv, cwd=cwd, env=env, has_input=has_input, announcements=announcements, one_pipe=one_pipe)
        try:
            if is_short:
                stack.enter_context(shared_guard(process.pid))
            child = _Child(asyncio.get_running_loop(), process, input or b"", max_output, hear)
            stack.callback(child.close)
            yield child
        except BaseException:  # the event loop is being torn down: there is no time for a grace
            send_signal(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            raise


class _Child:
    """One running program: its pipes and its end, as the event loop sees them.

    Not asyncio's own subprocess: in some versions its `wait()` waits for the pipes too, and so for a grandchild
    that holds them, and a cancellation while it connects the pipes hangs. Here nothing is awaited to start.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: subprocess.Popen[bytes],
        input: bytes,
        max_output: int,
        hear: Callable[[bytes], None] | None,
    ) -> None:
        self.over: asyncio.Future[None] = loop.create_future()  # it exited, or said too much
        self.drained: asyncio.Future[None] = loop.create_future()  # nobody can say anything more
        self.group = process.pid
        self.overflowed = False
        self.seconds = 0.0
        self._loop, self._process = loop, process
        self._started = loop.time()
        self._room = max_output
        self._hear = hear
        self._input = memoryview(input)
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
        self._watch = ExitWatch(process.pid, self.look)

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def text(self, number: int, errors: str) -> str:
        return b"".join(self._output[number]).decode("utf-8", errors)

    def look(self) -> None:
        """See whether it has exited."""
        if self._has_exited or self._process.poll() is None:
            return
        self._has_exited = True
        self.seconds = self._loop.time() - self._started
        if not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        self.look()
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
        if data and self._hear is not None:
            self._hear(data)
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
        except BrokenPipeError:  # it does not want to hear the rest
            self._input = self._input[:0]
        if not self._input:
            self._detach(0)
