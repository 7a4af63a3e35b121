"""Start a program in its own group, which is killed when Atomic dies, even by SIGKILL."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import cast

from atomic.base.errors import AtomicError


class ExecError(AtomicError):
    """A program could not be run to its end."""

    def __init__(self, message: str, argv: Sequence[str]) -> None:
        self.argv = tuple(argv)
        super().__init__(message)


class ProgramNotFoundError(ExecError):
    """The program does not exist."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.program = argv[0]
        hint = "install it, put it on PATH or give its full path"
        super().__init__(f'Program not found: "{self.program}" ({hint})', argv)


def start(
    argv: list[str],
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    has_input: bool,
    announcements: int | None,
    one_pipe: bool = False,
) -> subprocess.Popen[bytes]:
    """Start a program. With `one_pipe` stdout and stderr are one stream, in order.

    It announces itself to a guard through the pipe `announcements`. Without one there
    is no work between fork and exec, so Python need not copy Atomic.

    Raises ExecError.
    """
    if not argv:
        raise ExecError("No program was given (its name is the first argument)", argv)
    try:
        return subprocess.Popen(
            argv,
            bufsize=0,
            stdin=subprocess.PIPE if has_input else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if one_pipe else subprocess.PIPE,
            cwd=cwd,
            env=env,
            start_new_session=True,
            preexec_fn=None if announcements is None else _die_with_parent(announcements),
        )
    except (OSError, ValueError) as error:
        if cwd is not None and not os.path.isdir(cwd):
            raise ExecError(f'Folder not found: "{cwd}" (the program "{argv[0]}" was to run there)', argv) from error
        if isinstance(error, FileNotFoundError):
            raise ProgramNotFoundError(argv) from error
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ExecError(f'Program cannot be started: "{argv[0]}" ({reason})', argv) from error


# Three rounds, because a process may start another one before it is killed. Without a
# mark, or without /proc, there are no rounds.
_GUARD = """
read -r group && { read -r _ || {
    [ "$2" = 0 ] || sleep "$2"
    kill -s KILL -- "-$group"
    for round in ${1:+1 2 3}; do
        for file in /proc/[0-9]*/environ; do
            if grep -qsaF "$1" "$file"; then pid=${file%/environ}; kill -s KILL "${pid#/proc/}"; fi
        done
    done
}; }
"""


@contextmanager
def guard(mark: str = "", *, grace: float = 0) -> Generator[int]:
    """Kill a program and all its children when Atomic dies, even by SIGKILL.

    Yields a descriptor for announcements. A shell of 1 MB reads a process group from
    that pipe and then waits for the end of the pipe, which only Atomic keeps open. The
    program announces itself between fork and exec, so it is never without a guard. The
    kernel's own means, the parent death signal, would reach the program but not its
    children.

    `mark` is a variable of their environment by which children in other groups are
    found. `grace` is the number of seconds that they get before they are killed.
    """
    with _shell(_GUARD, "guard", mark, f"{grace:g}") as guard:
        assert guard.stdin is not None
        try:
            yield guard.stdin.fileno()
        finally:
            guard.kill()  # before its pipe is closed, which means that Atomic died
            guard.wait()


# Reads a line for each group that starts and for each that has ended.
_SHARED_GUARD = """
while read -r sign group; do
    others=
    for one in $groups; do [ "$one" = "$group" ] || others="$others $one"; done
    groups=$others
    [ "$sign" = - ] || groups="$groups $group"
done
for group in $groups; do kill -s KILL -- "-$group"; done
"""


@contextmanager
def shared_guard(group: int) -> Generator[None]:
    """Kill a short program when Atomic dies, by a guard that all short programs share.

    The program has no guard between its start and its announcement. So this is for
    programs that start no others and end by themselves. For them, their own guard and a
    copy of Atomic that announces them would cost more than they do.
    """
    try:
        os.write(_shared_pipe(os.getpid()), b"+ %d\n" % group)
    except BrokenPipeError:  # the guard was killed
        _shared_pipe.cache_clear()
        os.write(_shared_pipe(os.getpid()), b"+ %d\n" % group)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            os.write(_shared_pipe(os.getpid()), b"- %d\n" % group)


@cache
def _shared_pipe(owner: int) -> int:
    """Return the pipe of the shared guard. A forked process gets a guard of its own."""
    guard = _shell(_SHARED_GUARD)
    assert guard.stdin is not None
    atexit.register(_end_shared, guard, owner)
    return guard.stdin.fileno()


def _end_shared(guard: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        guard.kill()
        guard.wait()


def _shell(script: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", script, *arguments],
        bufsize=0,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={},
        start_new_session=True,
    )


@cache
def _prctl() -> Callable[[int, int], int]:
    import ctypes  # needed only if programs run

    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, ctypes.c_ulong]
    return cast("Callable[[int, int], int]", prctl)


def _die_with_parent(announcements: int) -> Callable[[], None]:
    """Return a function to call between fork and exec: it announces the program to its
    guard.

    It also asks the kernel to kill the program, which is faster.
    """
    prctl = _prctl() if sys.platform == "linux" else None
    parent = os.getpid()

    def announce() -> None:
        os.write(announcements, b"%d\n" % os.getpid())
        if prctl is not None:
            prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
            if os.getppid() != parent:  # Atomic died before this call
                os._exit(1)

    return announce
