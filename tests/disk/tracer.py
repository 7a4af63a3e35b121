"""Watch the system calls of a child process with ptrace; nothing has to be installed.

A test that kills a process cannot detect a missing fsync, because written data stays in
the page cache. The order of writes and syncs is visible only from outside. The numbers
below are valid for x86_64 and for all newer architectures.

Two facts make the order a proof even with several threads: a call runs after the tracer
has seen its entry, and it has ended before the tracer sees its exit.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import signal
import sys
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_CONT_TO_CALL = 24
_SEIZE = 0x4206
_INTERRUPT = 0x4207
_LISTEN = 0x4208
_CALL_INFO = 0x420E
_CALLS_MARKED = 1
_FOLLOW_FORK = 2
_FOLLOW_VFORK = 4
_FOLLOW_CLONE = 8
_EXIT_KILL = 0x100000
_OPTIONS = _CALLS_MARKED | _FOLLOW_FORK | _FOLLOW_VFORK | _FOLLOW_CLONE | _EXIT_KILL
_CALL_STOP = signal.SIGTRAP | 0x80
_EVENT_STOP = 128
_ENTRY = 1
_EXIT = 2
_ALL_THREADS = 0x40000000  # __WALL: an ordinary wait does not see threads
_STOP_SIGNALS = (signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

# All calls that change a file or folder, even unused ones: a missing one is a blind spot.
_NEW = {
    "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38, "truncate": 45, "ftruncate": 46,
    "fallocate": 47, "openat": 56, "write": 64, "writev": 66, "pwrite64": 68, "pwritev": 70, "sendfile": 71,
    "splice": 76, "fsync": 82, "fdatasync": 83, "mmap": 222, "renameat2": 276, "copy_file_range": 285,
    "pwritev2": 287, "io_uring_setup": 425, "openat2": 437,
}  # fmt: skip
_X86_64 = {
    "write": 1, "open": 2, "mmap": 9, "pwrite64": 18, "writev": 20, "sendfile": 40, "fsync": 74, "fdatasync": 75,
    "truncate": 76, "ftruncate": 77, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87,
    "symlink": 88, "openat": 257, "mkdirat": 258, "unlinkat": 263, "renameat": 264, "linkat": 265, "symlinkat": 266,
    "splice": 275, "fallocate": 285, "pwritev": 296, "renameat2": 316, "copy_file_range": 326, "pwritev2": 328,
    "io_uring_setup": 425, "openat2": 437,
}  # fmt: skip
_MACHINES = {"x86_64": _X86_64, "aarch64": _NEW, "riscv64": _NEW}


class TracerError(Exception):
    """This machine does not allow tracing; the tests must fail, as they prove nothing."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A thread is about to make a call."""

    tid: int
    call: str
    args: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Exit:
    """The current call of this thread has ended; `value` is negative if it failed."""

    tid: int
    value: int


@dataclass(frozen=True, slots=True)
class End:
    """The process has ended: its exit code, negative for a signal."""

    code: int


class _CallInfo(ctypes.Structure):
    """struct ptrace_syscall_info; `rest` has the arguments at entry, the result at exit."""

    _fields_ = (
        ("op", ctypes.c_uint8),
        ("pad", ctypes.c_uint8 * 3),
        ("arch", ctypes.c_uint32),
        ("instruction", ctypes.c_uint64),
        ("stack", ctypes.c_uint64),
        ("rest", ctypes.c_uint64 * 8),
    )


_libc = ctypes.CDLL(None, use_errno=True)
_ptrace = _libc.ptrace
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_ptrace.restype = ctypes.c_long


def _request(request: int, tid: int, address: int = 0, data: int = 0) -> None:
    if _ptrace(request, tid, address, data) < 0:
        raise OSError(ctypes.get_errno(), f"ptrace request {request:#x}: {os.strerror(ctypes.get_errno())}")


def run_traced(script: str, arguments: Sequence[str], *, seconds: float = 60.0) -> Generator[Entry | Exit | End]:
    """Run a Python script and yield its system calls after it has called `wait_for_go()`.

    The script calls `wait_for_go()` after its imports, which would only take time to trace.
    While the caller handles an `Entry` or an `Exit`, that thread of the child is stopped and
    its memory can be read.

    Raises:
        TracerError: the machine does not allow it.
    """
    if sys.platform != "linux" or platform.machine() not in _MACHINES:
        raise TracerError(f"The disk tests need Linux on {', '.join(_MACHINES)}; this is {platform.platform()}")
    with _spawned(script, arguments) as (pid, go):
        timer = threading.Timer(seconds, os.killpg, (pid, signal.SIGKILL))
        timer.start()
        try:
            seize(pid)
            os.write(go, b"go\n")
            yield from _stops(pid, {number: call for call, number in _MACHINES[platform.machine()].items()})
        finally:
            timer.cancel()


def wait_for_go() -> None:
    """Report from the child that all imports are done, and wait for the tracer."""
    os.write(1, b"ready\n")
    if os.read(0, 3) != b"go\n":
        raise SystemExit("nobody watches")


@contextmanager
def _spawned(script: str, arguments: Sequence[str]) -> Generator[tuple[int, int]]:
    """Start a child in its own process group, so that waiting for it affects no other."""
    child_in, go = os.pipe()
    ready, child_out = os.pipe()
    try:
        actions = [(os.POSIX_SPAWN_DUP2, child_in, 0), (os.POSIX_SPAWN_DUP2, child_out, 1)]
        argv = [sys.executable, script, *arguments]
        pid = os.posix_spawn(sys.executable, argv, _environment(), file_actions=actions, setpgroup=0)
        os.close(child_out)
        child_out = -1
        try:
            if os.read(ready, 6) != b"ready\n":
                raise TracerError(f"{script} ended before it was ready")
            yield pid, go
        finally:
            _end(pid)
    finally:
        for fd in (child_in, go, ready, child_out):
            if fd >= 0:
                os.close(fd)


def _environment() -> Mapping[str, str]:
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [root, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def _end(pid: int) -> None:
    """Kill the whole process group and wait for it."""
    with suppress(ChildProcessError, ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
        while True:
            os.waitpid(-pid, _ALL_THREADS)


def seize(pid: int) -> None:
    """Start to trace a process. Raises TracerError if that is not allowed."""
    try:
        _request(_SEIZE, pid, 0, _OPTIONS)
        _request(_INTERRUPT, pid)
    except OSError as error:
        raise TracerError(
            f"The disk tests watch the system calls of a child process, and this machine does not allow it ({error}). "
            "Allow ptrace: kernel.yama.ptrace_scope=1 or 0; in a container --cap-add=SYS_PTRACE"
        ) from error


def _stops(pid: int, calls: Mapping[int, str]) -> Generator[Entry | Exit | End]:
    inside: set[int] = set()  # threads in a traced call
    code: int | None = None
    while True:
        try:
            tid, status = os.waitpid(-pid, _ALL_THREADS)
        except ChildProcessError:
            break
        if not os.WIFSTOPPED(status):
            inside.discard(tid)
            code = os.waitstatus_to_exitcode(status) if tid == pid else code
            continue
        if os.WSTOPSIG(status) == _CALL_STOP and (stop := _call_at(tid, calls, inside)) is not None:
            yield stop
        _continue(tid, status)
    assert code is not None, "the end of the child was not seen"
    yield End(code)


def _call_at(tid: int, calls: Mapping[int, str], inside: set[int]) -> Entry | Exit | None:
    info = _CallInfo()
    try:
        _request(_CALL_INFO, tid, ctypes.sizeof(info), ctypes.addressof(info))
    except OSError as error:
        if error.errno == errno.ESRCH:  # killed while it was stopped
            return None
        raise TracerError(f"The disk tests need Linux 5.3 or newer ({error})") from error
    if info.op == _EXIT and tid in inside:
        inside.remove(tid)
        return Exit(tid, ctypes.c_int64(info.rest[0]).value)
    if info.op == _ENTRY and (call := calls.get(info.rest[0])) is not None:
        inside.add(tid)
        return Entry(tid, call, tuple(info.rest[1:7]))
    return None


def _continue(tid: int, status: int) -> None:
    """Continue a thread until its next call, and deliver the signal that stopped it."""
    caught = os.WSTOPSIG(status)
    event = status >> 16
    request = _CONT_TO_CALL
    passed = 0
    if event == _EVENT_STOP and caught in _STOP_SIGNALS:
        request = _LISTEN
    elif not event and caught != _CALL_STOP:
        passed = caught
    try:
        _request(request, tid, 0, passed)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
