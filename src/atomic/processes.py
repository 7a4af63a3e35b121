"""Run a program and leave nothing of it behind.

Each program gets a session and process group of its own. Whatever ends it (its own exit, a time-out, a
cancellation, the death of Atomic by `kill -9`), the whole group ends with it: TERM, a grace, KILL, and a look
whether it is really gone. Only a process that moved to another group on purpose can escape.

The program is supervised in a task of its own, which a cancellation only asks to stop: cleaning up is never
cut short by a second one, and the caller gets its `CancelledError` after the group has ended.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import IO, cast

import msgspec

from atomic.errors import AtomicError

GRACE = 2.0  # seconds between TERM and KILL, and for what a dead program's children still have to say
MAX_OUTPUT = 64 * 1024 * 1024

_log = logging.getLogger(__name__)


class ExecResult(msgspec.Struct, frozen=True):
    """How a program ended and what it said; an exit code below zero is the signal that ended it."""

    exit_code: int
    stdout: str
    stderr: str
    seconds: float


class ExecError(AtomicError):
    """A program could not be run to its end."""

    def __init__(self, message: str, argv: Sequence[str]) -> None:
        self.argv = tuple(argv)
        super().__init__(message)


class ProgramNotFoundError(ExecError):
    """There is no such program."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.program = argv[0]
        super().__init__(
            f'Program not found: "{self.program}" (install it, put it on PATH or give its full path)', argv
        )


class ExecTimeoutError(ExecError):
    """A program took too long and was ended; what it had said until then is kept."""

    def __init__(
        self, argv: Sequence[str], *, timeout: float, stdout: str, stderr: str, survivors: Sequence[str]
    ) -> None:
        self.timeout, self.stdout, self.stderr, self.survivors = timeout, stdout, stderr, tuple(survivors)
        message = f'Program took longer than {timeout:g} s and was ended: "{argv[0]}" (give it a longer timeout)'
        if survivors:
            message += f"; still alive after SIGKILL: {', '.join(survivors)}"
        super().__init__(message, argv)


class ExecOutputError(ExecError):
    """A program said more than can be kept and was ended."""

    def __init__(self, argv: Sequence[str], *, max_output: int) -> None:
        self.max_output = max_output
        super().__init__(
            f'Program wrote more than {max_output} bytes and was ended: "{argv[0]}" '
            "(let it write to a file, or raise max_output)",
            argv,
        )


async def execute(
    *argv: str | os.PathLike[str],
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    input: str | bytes | None = None,
    timeout: float | None = None,
    max_output: int = MAX_OUTPUT,
) -> ExecResult:
    """Run a program to its end, never through a shell; an exit code other than 0 is a result, not an error.

    `env` replaces the whole environment. Without `input` the program reads an empty stdin, never the terminal.
    What the program leaves running in its group is ended when it exits.

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


async def end_group(group: int, *, grace: float = GRACE) -> list[str]:
    """End all processes of a group: TERM, after `grace` seconds KILL; return those that live on all the same."""
    clock = asyncio.get_running_loop().time
    alive = _members(group)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline, pause = clock() + grace, 0.002
        if alive:
            _signal(group, number)
        while alive and clock() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
            alive = _members(group)
    if alive:
        _log.warning("still alive after SIGKILL: %s", ", ".join(alive))
    return alive


async def _supervise(
    argv: list[str],
    stop: asyncio.Future[None],
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    input: bytes | None,
    timeout: float | None,
    max_output: int,
) -> ExecResult:
    """Run, wait for the end or for `stop`, and clean up; the result of a stopped one is for nobody."""
    with _running(argv, cwd=cwd, env=env, input=input, max_output=max_output) as child:
        await _first_of(child.over, stop, timeout=timeout)
        timed_out = not (child.over.done() or stop.done())
        if child.exit_code is not None:
            # A child of the program may hold the pipes: it may finish its sentence, not keep us.
            await _first_of(child.drained, stop, timeout=GRACE)
        survivors = await end_group(child.group)
        child.look()
    if timed_out and timeout is not None:
        raise ExecTimeoutError(argv, timeout=timeout, stdout=child.text(1), stderr=child.text(2), survivors=survivors)
    if child.overflowed:
        raise ExecOutputError(argv, max_output=max_output)
    exit_code = -signal.SIGKILL if child.exit_code is None else child.exit_code
    return ExecResult(exit_code, child.text(1), child.text(2), child.seconds)


async def _first_of(*futures: asyncio.Future[None], timeout: float | None) -> None:
    await asyncio.wait(futures, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)


@contextmanager
def _running(
    argv: list[str], *, cwd: str | None, env: Mapping[str, str] | None, input: bytes | None, max_output: int
) -> Generator[_Child]:
    with _guard() as announcements, ExitStack() as stack:
        process = _start(argv, cwd=cwd, env=env, has_input=input is not None, announcements=announcements)
        try:
            child = _Child(asyncio.get_running_loop(), process, input or b"", max_output)
            stack.callback(child.close)
            yield child
        except BaseException:  # the event loop is being torn down: there is no time for a grace
            _signal(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            raise


def _start(
    argv: list[str], *, cwd: str | None, env: Mapping[str, str] | None, has_input: bool, announcements: int
) -> subprocess.Popen[bytes]:
    if not argv:
        raise ExecError("No program was given (its name is the first argument)", argv)
    try:
        return subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
            preexec_fn=_die_with_parent(announcements),
        )
    except (OSError, ValueError) as error:
        raise _start_error(argv, cwd, error) from error


def _start_error(argv: list[str], cwd: str | None, error: OSError | ValueError) -> ExecError:
    if cwd is not None and not os.path.isdir(cwd):
        return ExecError(f'Folder not found: "{cwd}" (the program "{argv[0]}" was to run there)', argv)
    if isinstance(error, FileNotFoundError):
        return ProgramNotFoundError(argv)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ExecError(f'Program cannot be started: "{argv[0]}" ({reason})', argv)


class _Child:
    """One running program: its pipes and its end, as the event loop sees them.

    Not asyncio's own subprocess: in some versions its `wait()` waits for the pipes too, and so for a grandchild
    that holds them, and a cancellation while it connects the pipes hangs. Here nothing is awaited to start.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes], input: bytes, max_output: int
    ) -> None:
        self.over: asyncio.Future[None] = loop.create_future()  # it exited, or said too much
        self.drained: asyncio.Future[None] = loop.create_future()  # nobody can say anything more
        self.group = process.pid
        self.overflowed = False
        self.seconds = 0.0
        self._loop, self._process = loop, process
        self._started = loop.time()
        self._room = max_output
        self._input = memoryview(input)
        self._output: dict[int, list[bytes]] = {1: [], 2: []}
        self._pipes: dict[int, IO[bytes]] = {}
        self._pidfd: int | None = None
        self._has_exited = False
        if process.stdin is not None:
            self._attach(0, process.stdin)
            loop.add_writer(process.stdin, self._write)
        for number, pipe in ((1, process.stdout), (2, process.stderr)):
            if pipe is not None:
                self._attach(number, pipe)
                loop.add_reader(pipe, self._read, number)
        self._watch()

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode

    def text(self, number: int) -> str:
        return b"".join(self._output[number]).decode("utf-8", "replace")

    def look(self) -> None:
        """See whether it has exited."""
        if self._has_exited or self._process.poll() is None:
            return
        self._has_exited = True
        self.seconds = self._loop.time() - self._started
        self._stop_watching()
        if not self.over.done():
            self.over.set_result(None)

    def close(self) -> None:
        self.look()
        self._stop_watching()
        for number in list(self._pipes):
            self._detach(number)

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.group)
        except (AttributeError, OSError):  # not Linux, or one without it
            threading.Thread(target=self._wait, daemon=True, name=f"wait-{self.group}").start()
        else:
            self._loop.add_reader(self._pidfd, self.look)

    def _stop_watching(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    def _wait(self) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, self.group, os.WEXITED | os.WNOWAIT)  # only looks: `poll` takes the exit code
        with suppress(RuntimeError):  # the event loop ended first
            self._loop.call_soon_threadsafe(self.look)

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


@contextmanager
def _guard() -> Generator[int]:
    """Have a program and all its children killed when Atomic dies, even by SIGKILL; give where to announce it.

    A shell of 1 MB reads a process group from a pipe, then waits for the end of the pipe, which only Atomic holds.
    The program announces itself before it becomes what it is: there is no instant in which it has no guard. The
    kernel's own means, the parent's death signal, would reach the program but not its children.
    """
    guard = subprocess.Popen(
        ["/bin/sh", "-c", 'read -r group && { read -r _ || kill -s KILL -- "-$group"; }'],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )
    with guard:
        assert guard.stdin is not None
        try:
            yield guard.stdin.fileno()
        finally:
            guard.kill()  # before its pipe is closed, which it would take for our death
            guard.wait()


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # gone, or not ours: `_members` tells them apart
        os.killpg(group, number)


def _members(group: int) -> list[str]:
    """Name the living processes of a group, as `pid (program)`.

    Zombies do not count: an orphan is reaped by process 1, which in a container may never do it.
    """
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return []
    except PermissionError:
        if sys.platform != "linux":
            return []  # macOS says this of a group that has only zombies
    if sys.platform != "linux":
        return [str(group)]
    stats = (_stat(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [f"{pid} ({name})" for pid, name, state, pgrp in stats if pgrp == group and state not in "ZX"]


def _stat(pid: str) -> tuple[str, str, str, int]:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read().decode("utf-8", "replace")
    except OSError:  # it ended meanwhile
        return pid, "", "X", 0
    start, end = text.index("("), text.rindex(")")  # a program may have brackets and blanks in its name
    state, _, pgrp, _ = text[end + 2 :].split(" ", 3)
    return pid, text[start + 1 : end], state, int(pgrp)


@cache
def _prctl() -> Callable[[int, int], int]:
    import ctypes  # only whoever runs programs pays for it

    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong]
    return cast("Callable[[int, int], int]", prctl)


def _die_with_parent(announcements: int) -> Callable[[], None]:
    """Make what a program does before it becomes itself: tell the guard, and ask the kernel, which is quicker."""
    prctl, parent = _prctl() if sys.platform == "linux" else None, os.getpid()

    def announce() -> None:
        os.write(announcements, b"%d\n" % os.getpid())
        if prctl is not None:
            prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            if os.getppid() != parent:  # too late: it died in between
                os._exit(1)

    return announce
