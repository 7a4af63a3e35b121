"""Make a private view of the file system, or start a program in one.

This file is a program of its own. It runs without Atomic's packages:

    namespace.py hold SPEC
    namespace.py enter PID FOLDER PROGRAM [ARGUMENT ...]

`hold` makes the view that SPEC (JSON) describes, prints the number of its first process
and keeps it until standard input ends. Process 1 of the view then ends, and with it the
kernel ends all others and removes the mounts. `enter` runs a program inside and ends
with its exit code. FOLDER is the current folder of the program; `.` is the one that has
the path of the folder in which `enter` was started.
"""

from __future__ import annotations

import ctypes
import os
import sys

# It starts for each program in a view, so it imports little: `json`, `signal` and
# `typing` would take half of its time.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

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
_DROP_BOUNDING = 24
_NO_NEW_PRIVILEGES = 38
# The numbers of linux/capability.h: a program that has one of them could remove the view.
_SYS_MODULE = 16
_SYS_PTRACE = 19
_SYS_ADMIN = 21
_MAKE_DEVICES = 27

_libc = ctypes.CDLL(None, use_errno=True)


def main() -> NoReturn:
    """Run one of the two commands."""
    command = sys.argv[1]
    if command == "hold":
        import json

        sys.exit(_hold(json.loads(sys.argv[2])))
    sys.exit(_enter(int(sys.argv[2]), sys.argv[3], sys.argv[4:]))


def _hold(spec: dict[str, Any]) -> int:
    """Make the view and wait for its end."""
    user = os.geteuid()
    group = os.getegid()
    flags = NEW_MOUNTS | NEW_PROCESSES
    if spec["own_user"]:
        flags |= NEW_USER
    _call("unshare", flags)
    if spec["own_user"]:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{user} {user} 1")
        _write("/proc/self/gid_map", f"{group} {group} 1")
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


def _be_first(spec: dict[str, Any], report: int) -> NoReturn:
    """Be process 1 of the view until standard input ends."""
    import signal

    _call("prctl", _SET_PARENT_DEATH_SIGNAL, _KILL, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps children then
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
    while os.read(0, 4096):
        pass
    os._exit(0)


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
        os.makedirs(path)
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
        _start(folder, argv)
    import signal

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


def _start(folder: str, argv: list[str]) -> NoReturn:
    """Become the program, without the rights that could remove the view."""
    _call("prctl", _SET_PARENT_DEATH_SIGNAL, _KILL, 0, 0, 0)
    try:
        for capability in (_SYS_MODULE, _SYS_PTRACE, _SYS_ADMIN, _MAKE_DEVICES):
            _call("prctl", _DROP_BOUNDING, capability, 0, 0, 0)
        _call("prctl", _NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        os.chdir(folder)
        os.execvp(argv[0], argv)
    except OSError as error:
        missing = isinstance(error, FileNotFoundError)
        os.write(2, f"{argv[0]}: {error.strerror}\n".encode())
        os._exit(127 if missing else 126)


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
