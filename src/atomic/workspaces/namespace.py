"""Make a private view of the file system, or start a program in one.

This file is a program of its own. It runs without Atomic's packages:

    namespace.py hold SPEC
    namespace.py enter PID FOLDER PROGRAM [ARGUMENT ...]

`hold` makes the view that SPEC (JSON) describes, prints the number of its first process
and keeps it until standard input ends. Process 1 of the view then ends, and with it the
kernel ends all others and removes the mounts.

Until then, process 1 runs short programs, one after the other, which costs a tenth of
`enter`. A line of standard input is an order (JSON: argv, folder, env, timeout,
max_output), its answer a line of standard output (JSON: exit_code, reason, and the
lengths of stdout and stderr) followed by both outputs. While the program runs, any
input ends it. An order without argv ends all other processes of the view.

`enter` runs a program inside and ends with its exit code. FOLDER is the current folder
of the program; `.` is the one that has the path of the folder in which `enter` was
started.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import time

# It starts for each program in a view, so it imports little: `signal` and `typing` would
# take a third of its time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from types import FrameType
    from typing import Any, NoReturn
else:
    import _signal as signal

NEW_MOUNTS = 0x00020000
NEW_USER = 0x10000000
NEW_PROCESSES = 0x20000000

_READ_ONLY = 0x1
_NO_SUID = 0x2
_NO_DEVICES = 0x4
_NO_PROGRAMS = 0x8
_REMOUNT = 0x20
_BIND = 0x1000
_RECURSIVE = 0x4000
_PRIVATE = 0x40000
_RELATIVE_TIME = 0x200000

_SET_PARENT_DEATH_SIGNAL = 1
_KILL = 9
_NO_ENTRY = 2
_NO_SPACE = 28  # also where a limit of namespaces is reached
_DROP_BOUNDING = 24
_NO_NEW_PRIVILEGES = 38
_INVALID = 22  # errno
# What root may do in a view, by the numbers of linux/capability.h. With another one a
# program could remove the view, open the files below it, or change the machine.
_KEPT = frozenset(
    [
        0,  # CHOWN
        1,  # DAC_OVERRIDE
        3,  # FOWNER
        4,  # FSETID
        5,  # KILL
        6,  # SETGID
        7,  # SETUID
        8,  # SETPCAP
        10,  # NET_BIND_SERVICE
        13,  # NET_RAW
        18,  # SYS_CHROOT
        31,  # SETFCAP
    ]
)
_MAX_CAPABILITIES = 64

STOP = b"stop"  # a line that ends the program of the order before it
_LAST_SECONDS = 2.0

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    """Run one of the two commands."""
    command = sys.argv[1]
    code = _hold() if command == "hold" else _enter(int(sys.argv[2]), sys.argv[3], sys.argv[4:])
    os._exit(code)  # nothing is left to write, and Python's own end takes as long as its start


def _hold() -> int:
    """Make the view and wait for its end."""
    # Before the mounts: the view may show other files in the place of the module's.
    import json

    spec = json.loads(sys.argv[2])
    user = os.geteuid()
    group = os.getegid()
    flags = NEW_MOUNTS | NEW_PROCESSES
    if spec["own_user"]:
        flags |= NEW_USER
    try:
        _call("unshare", flags)
        if spec["own_user"]:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{user} {user} 1")
            _write("/proc/self/gid_map", f"{group} {group} 1")
    except OSError as error:
        print(f"error {_refusal(error, own_user=spec['own_user'])}", flush=True)
        return 1
    ready, report = os.pipe()
    first = os.fork()
    if first == 0:
        os.close(ready)
        _be_first(spec, report)
    os.close(report)
    with os.fdopen(ready, "rb") as pipe:
        problem = pipe.read().decode()
    if problem:
        print(f"error {problem}", flush=True)
    else:
        print(first, flush=True)
    _, status = os.waitpid(first, 0)
    return os.waitstatus_to_exitcode(status) or bool(problem)


def _refusal(error: OSError, *, own_user: bool) -> str:
    """Return why this system gives a program no namespaces."""
    kind = "user" if own_user else "mount"
    reason = error.strerror
    if error.errno == _NO_SPACE:
        reason = "a limit is reached, such as user.max_user_namespaces"
    return f"the system allows no {kind} namespaces here ({reason})"


def _be_first(spec: dict[str, Any], report: int) -> NoReturn:
    """Be process 1 of the view until standard input ends."""
    _call("prctl", _SET_PARENT_DEATH_SIGNAL, _KILL, 0, 0, 0)
    signal.signal(signal.SIGTERM, _leave)
    try:
        _mount("none", "/", "", _RECURSIVE | _PRIVATE)
        for one in spec["mounts"]:
            _make_mount(one)
        _mount_processes()
    except OSError as error:
        os.write(report, f"{error.filename}: {error.strerror}".encode())
        os._exit(1)
    os.close(report)
    os.chdir("/")
    _Orders().serve()
    os._exit(0)


class _Orders:
    """Runs the programs that standard input orders, and reaps all children.

    Process 1 is also the parent of every process in the view whose own parent has
    ended.
    """

    def __init__(self) -> None:
        self._ended: dict[int, int] = {}  # wait statuses of children
        # A signal interrupts no `select`, so each one is written to a pipe as well.
        self._signals, wakeup = os.pipe()
        os.set_blocking(self._signals, False)
        os.set_blocking(wakeup, False)
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGCHLD, self._reap)

    def serve(self) -> None:
        """Carry out orders until standard input ends."""
        import json

        received = b""
        while data := os.read(0, 65536):
            received += data
            *lines, received = received.split(b"\n")
            for line in lines:
                if line != STOP:  # else its program had ended by itself
                    head, outputs = self._run(json.loads(line))
                    _write_all(1, b"".join([json.dumps(head).encode(), b"\n", *outputs]))

    def _run(self, order: dict[str, Any]) -> tuple[dict[str, Any], list[bytes]]:
        self._ended.clear()
        if not order["argv"]:  # end all other processes of the view
            _kill_others()
            return {"exit_code": 0, "reason": "", "lengths": [0, 0]}, []
        pipes = [os.pipe(), os.pipe()]
        child = os.fork()
        if child == 0:
            os.setsid()
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(pipes[0][1], 1)
            os.dup2(pipes[1][1], 2)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _start(order["folder"], order["argv"], order["env"])
        for _, writing in pipes:
            os.close(writing)
        reading = [pipe for pipe, _ in pipes]
        reason, outputs = self._watch(child, reading, order["timeout"], order["max_output"])
        for pipe in reading:
            os.close(pipe)
        exit_code = os.waitstatus_to_exitcode(self._ended.get(child, _KILL))
        return {"exit_code": exit_code, "reason": reason, "lengths": [len(one) for one in outputs]}, outputs

    def _watch(self, child: int, pipes: list[int], timeout: float | None, room: int) -> tuple[str, list[bytes]]:
        """Read at most `room` bytes of output until the program has ended. Return why it
        was ended, if it was, and its two outputs.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        reason = ""
        is_over = False
        chunks: dict[int, list[bytes]] = {pipe: [] for pipe in pipes}
        open_pipes = set(pipes)
        while open_pipes or child not in self._ended:
            if not is_over and (reason or child in self._ended):
                is_over = True
                _kill_group(child)
                # Processes that have left its group may keep the pipes open.
                deadline = time.monotonic() + _LAST_SECONDS
            seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
            if is_over and seconds == 0:
                break
            ready = select.select([0, self._signals, *open_pipes], [], [], seconds)[0]
            if not ready and not is_over:
                reason = "timeout"
            for pipe in ready:
                data = _read(pipe)
                if pipe in chunks:
                    chunks[pipe].append(data)
                    room -= len(data)
                    if not data:
                        open_pipes.remove(pipe)
                elif pipe == 0 and not data:
                    os._exit(0)
                elif pipe == 0:
                    reason = reason or "stopped"
            if room < 0:
                reason = reason or "output"
                open_pipes.clear()
        return reason, [b"".join(chunks[pipe]) for pipe in pipes]

    def _reap(self, _number: int, _frame: FrameType | None) -> None:
        try:
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                self._ended[ended[0]] = ended[1]
        except ChildProcessError:
            return


def _read(pipe: int) -> bytes:
    """Read from a pipe; nothing if another reader was faster, or at its end."""
    try:
        return os.read(pipe, 65536)
    except BlockingIOError:
        return b""


def _write_all(pipe: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(pipe, left) :]


def _kill_group(group: int) -> None:
    try:
        os.killpg(group, _KILL)
    except ProcessLookupError:
        return


def _kill_others() -> None:
    """End all processes of the view but this one, which none of them can stop."""
    try:
        os.kill(-1, _KILL)
    except ProcessLookupError:
        return


def _leave(_number: int, _frame: FrameType | None) -> None:
    os._exit(0)


def _make_mount(one: dict[str, Any]) -> None:
    at = one["at"]
    kind = one["kind"]
    if kind == "overlay":
        _mount_overlay(one)
    elif kind == "bind":
        _bind(one["source"], at, read_only=one["read_only"])
    elif os.path.isdir(at):
        _hide(at, one["visible"])


def _mount_overlay(one: dict[str, Any]) -> None:
    """Mount an overlay. Its folders are named by numbers: a path may have characters
    that separate options.
    """
    files = {name: os.open(one[name], os.O_PATH | os.O_DIRECTORY) for name in ("lower", "upper", "work")}
    options = [f"{name}dir=/proc/self/fd/{file}" for name, file in files.items()]
    _mount("overlay", one["at"], "overlay", _NO_DEVICES, ",".join(options + one["options"]))
    for file in files.values():
        os.close(file)


def _hide(folder: str, visible: list[dict[str, Any]]) -> None:
    """Show a folder as empty, except for some folders below it."""
    files = [os.open(one["path"], os.O_PATH | os.O_DIRECTORY) for one in visible]
    _mount("tmpfs", folder, "tmpfs", _NO_SUID | _NO_DEVICES, "size=1m,mode=0700")
    for file, one in zip(files, visible, strict=True):
        path = one["path"]
        os.makedirs(path, exist_ok=True)
        _bind(f"/proc/self/fd/{file}", path, read_only=one["read_only"])
        os.close(file)


def _bind(source: str, at: str, *, read_only: bool) -> None:
    # In a user namespace a folder cannot be shown without the mounts below it.
    _mount(source, at, "", _BIND | _RECURSIVE)
    if read_only:
        # A remount must keep the flags that a user namespace has locked.
        _mount("none", at, "", _BIND | _REMOUNT | _READ_ONLY | _locked_flags(at))


def _locked_flags(path: str) -> int:
    """Return the mount flags of a path that may not be taken away."""
    flags = os.statvfs(path).f_flag
    return flags & (_NO_SUID | _NO_DEVICES | _NO_PROGRAMS) | (_RELATIVE_TIME if flags & os.ST_RELATIME else 0)


def _mount_processes() -> None:
    """Show only the processes of the view in /proc, where the system allows it.

    A container may not. Programs then see other processes, but cannot reach them
    through /proc any better than without a view.
    """
    try:
        _mount("proc", "/proc", "proc", _NO_SUID | _NO_DEVICES | _NO_PROGRAMS)
    except PermissionError:
        return


def _enter(first: int, folder: str, argv: list[str]) -> int:
    """Run a program in the view of process `first`, and return its exit code."""
    kinds = [("user", NEW_USER), ("mnt", NEW_MOUNTS), ("pid", NEW_PROCESSES)]
    if folder == ".":
        folder = os.getcwd()
    # All are opened first: after the second step /proc belongs to the view.
    entered = [(_open_other(first, name), flag) for name, flag in kinds]
    for file, flag in entered:
        if file is not None:
            _call("setns", file, flag)
            os.close(file)
    child = os.fork()
    if child == 0:
        _start(folder, argv, dict(os.environ))
    # The group gets the signals: the program decides what to do with them.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    for file in (0, 1, 2):
        os.close(file)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _open_other(pid: int, name: str) -> int | None:
    """Open a namespace of a process, or return None if this process is in it."""
    path = f"/proc/{pid}/ns/{name}"
    if os.stat(path).st_ino == os.stat(f"/proc/self/ns/{name}").st_ino:
        return None
    return os.open(path, os.O_RDONLY)


def _start(folder: str, argv: list[str], env: dict[str, str]) -> NoReturn:
    """Become the program, without the rights that could remove the view."""
    _call("prctl", _SET_PARENT_DEATH_SIGNAL, _KILL, 0, 0, 0)
    # Python ignores them, and a program would inherit that: `yes | head` would complain.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    try:
        _drop_capabilities()
        _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        os.chdir(folder)
        _execute(argv, env)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127 if missing else 126)


def _drop_capabilities() -> None:
    for capability in range(_MAX_CAPABILITIES):
        try:
            if capability not in _KEPT:
                _call("prctl", _DROP_BOUNDING, capability, 0, 0, 0)
        except OSError as error:
            if error.errno == _INVALID:
                return  # this kernel has no more
            raise


def _execute(argv: list[str], env: dict[str, str]) -> NoReturn:
    """Become the program, which is looked up like `os.execvpe` does.

    That imports a module, which the view may show other files in place of.
    """
    program = argv[0]
    if "/" in program:
        os.execve(program, argv, env)
    refused: OSError | None = None
    for folder in env.get("PATH", os.defpath).split(os.pathsep):
        try:
            os.execve(f"{folder or '.'}/{program}", argv, env)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            refused = refused or error
    raise refused or FileNotFoundError(_NO_ENTRY, os.strerror(_NO_ENTRY), program)


def _mount(source: str, at: str, kind: str, flags: int, options: str = "") -> None:
    words = [word.encode("utf-8", "surrogateescape") for word in (source, at, kind, options)]
    if _libc.mount(words[0], words[1], words[2] or None, ctypes.c_ulong(flags), words[3] or None) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), at)


def _call(name: str, *arguments: int) -> None:
    numbers = [ctypes.c_ulong(argument) for argument in arguments]
    if getattr(_libc, name)(*numbers) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


if __name__ == "__main__":
    main()
