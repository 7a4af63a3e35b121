"""Start a program in a group of its own that ends when Atomic dies, even by SIGKILL."""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import cast

from atomic.processes.errors import ExecError, ProgramNotFoundError


def start(
    argv: list[str],
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    has_input: bool,
    announcements: int | None,
    one_pipe: bool = False,
) -> subprocess.Popen[bytes]:
    """Start it. `one_pipe`: what it says on stderr comes with stdout, in the order in which it was said.

    Without `announcements` nothing is done between fork and exec, and Atomic need not be copied for it.
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
        raise _start_error(argv, cwd, error) from error


def _start_error(argv: list[str], cwd: str | None, error: OSError | ValueError) -> ExecError:
    if cwd is not None and not os.path.isdir(cwd):
        return ExecError(f'Folder not found: "{cwd}" (the program "{argv[0]}" was to run there)', argv)
    if isinstance(error, FileNotFoundError):
        return ProgramNotFoundError(argv)
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return ExecError(f'Program cannot be started: "{argv[0]}" ({reason})', argv)


# Three rounds: what is killed may have started something meanwhile. Without a mark, or without /proc, there are none.
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
    """Have a program and all its children killed when Atomic dies, even by SIGKILL; give where to announce it.

    A shell of 1 MB reads a process group from a pipe, then waits for the end of the pipe, which only Atomic holds.
    The program announces itself before it becomes what it is: there is no instant in which it has no guard. The
    kernel's own means, the parent's death signal, would reach the program but not its children. `mark`: words in the
    environment by which those are found that moved to a group of their own. `grace`: seconds that they have before.
    """
    with _shell(_GUARD, "guard", mark, f"{grace:g}") as guard:
        assert guard.stdin is not None
        try:
            yield guard.stdin.fileno()
        finally:
            guard.kill()  # before its pipe is closed, which it would take for our death
            guard.wait()


# It hears of each group twice: when it is there, and when it has ended.
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
    """Have a short program killed when Atomic dies, by a guard that all short ones share and that stays.

    Between its start and its announcement nobody guards it: that is for programs which start nothing and end by
    themselves. For them a guard of their own, and a copy of Atomic that announces them, would cost more than they do.
    """
    try:
        os.write(_shared_pipe(os.getpid()), b"+ %d\n" % group)
    except BrokenPipeError:  # somebody has killed it
        _shared_pipe.cache_clear()
        os.write(_shared_pipe(os.getpid()), b"+ %d\n" % group)
    try:
        yield
    finally:
        with suppress(BrokenPipeError):
            os.write(_shared_pipe(os.getpid()), b"- %d\n" % group)


@cache
def _shared_pipe(owner: int) -> int:
    """Where to announce short programs; the guard of a process that was forked is not that of its parent."""
    guard = _shell(_SHARED_GUARD)
    assert guard.stdin is not None
    atexit.register(_end_shared, guard, owner)
    return guard.stdin.fileno()


def _end_shared(guard: subprocess.Popen[bytes], owner: int) -> None:
    if os.getpid() == owner:
        guard.kill()
        guard.wait()


def _shell(script: str, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", script, *words],
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
