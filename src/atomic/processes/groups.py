"""Observe and end processes: groups, the exit of a child, and children that left their
group.

An agent runs each shell command in a session of its own, so ending the agent's group
does not reach it, and a killed agent cannot clean up. But every child inherits the
environment: a variable with a unique value, the mark, finds them all. Only a program
that is started with an empty environment can escape.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress

GRACE = 2.0  # seconds between TERM and KILL, and for the output of a dead program's children
_CHUNK = 65536  # bytes of a file of /proc that are read at once
_MARK = "ATOMIC_MARK"

_log = logging.getLogger(__name__)


async def end_group(group: int, *, grace: float = GRACE) -> list[str]:
    """End all processes of a group: TERM, after `grace` seconds KILL.

    Return the survivors.
    """
    clock = asyncio.get_running_loop().time
    alive = _is_alive(group)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = clock() + grace
        pause = 0.002
        if alive:
            send_signal(group, number)
        while alive and clock() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
            alive = _is_alive(group)
    survivors = _members(group) if alive else []
    if survivors:
        _log.warning("still alive after SIGKILL: %s", ", ".join(survivors))
    return survivors


def send_signal(group: int, number: int) -> None:
    """Send a signal to a group. A group that is gone or not ours is ignored."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


def _is_alive(group: int) -> bool:
    """Return whether a process of a group lives.

    The first one is checked first, which is quick.
    """
    return _exists(group) and (_is_member(group, _stat(str(group))) or bool(_members(group)))


def _members(group: int) -> list[str]:
    """Name the living processes of a group, as `pid (program)`."""
    if not _exists(group):
        return []
    if sys.platform != "linux":
        return [str(group)]
    stats = (_stat(entry) for entry in os.listdir("/proc") if entry.isdigit())
    return [f"{stat[0]} ({stat[1]})" for stat in stats if _is_member(group, stat)]


def _exists(group: int) -> bool:
    """Return whether a group exists, also one that has only zombies."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return sys.platform == "linux"  # macOS raises this for a group that has only zombies
    return True


_Stat = tuple[str, str, str, int]  # number, program, state and group of a process


def _is_member(group: int, stat: _Stat) -> bool:
    """Return whether a process lives and belongs to a group.

    Zombies do not count: process 1 reaps an orphan, and in a container it may never do
    so.
    """
    return stat[3] == group and stat[2] not in "ZX"


def _stat(pid: str) -> _Stat:
    try:
        text = _read_process_file(pid, "stat").decode("utf-8", "replace")
    except OSError:  # it has ended
        return pid, "", "X", 0
    # The name of a program may contain parentheses and spaces.
    start = text.index("(")
    end = text.rindex(")")
    state, _, pgrp, _ = text[end + 2 :].split(" ", 3)
    return pid, text[start + 1 : end], state, int(pgrp)


def _read_process_file(pid: str, name: str) -> bytes:
    """Read a file of /proc.

    `open` would take three times as long, for all processes each time.

    Raises:
        OSError: the process has ended, or belongs to another user.
    """
    file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = chunk = os.read(file, _CHUNK)
        while len(chunk) == _CHUNK:  # the kernel fills the buffer unless the file ends
            chunk = os.read(file, _CHUNK)
            data += chunk
        return data
    finally:
        os.close(file)


def new_mark(variable: str = _MARK) -> dict[str, str]:
    """Return a variable for the environment of a program, with a unique value."""
    return {variable: uuid.uuid4().hex}


def mark_in(env: Mapping[str, str]) -> str:
    """Return the mark of an environment as /proc shows it.

    An empty text if it has no mark.
    """
    return f"{_MARK}={env[_MARK]}" if _MARK in env else ""


def find_marked(mark: Mapping[str, str]) -> list[int]:
    """Return the living processes that have the mark.

    None on other systems than Linux.
    """
    if sys.platform != "linux":
        return []
    [(name, value)] = mark.items()
    variable = f"{name}={value}".encode()
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _has_variable(entry, variable)]


async def end_marked(mark: Mapping[str, str]) -> list[int]:
    """Kill all processes that have the mark, and return the survivors."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + GRACE
    while (left := find_marked(mark)) and clock() < deadline:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.01)
    return left


def _has_variable(pid: str, variable: bytes) -> bool:
    try:
        environment = _read_process_file(pid, "environ")
    except OSError:  # it has ended, or belongs to another user
        return False
    return variable in environment and variable in environment.split(b"\0")


class ExitWatch:
    """Calls `on_exit` in the event loop, once, when a child has exited.

    It does not reap the child.
    """

    def __init__(self, pid: int, on_exit: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._pidfd = -1
        try:
            self._pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # not Linux, or an old one
            threading.Thread(target=self._wait, args=(pid,), daemon=True, name=f"wait-{pid}").start()
        else:
            self._loop.add_reader(self._pidfd, self._exited)

    def _exited(self) -> None:
        self.close()  # the descriptor stays readable
        self._on_exit()

    def close(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _wait(self, pid: int) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the event loop ended first
            self._loop.call_soon_threadsafe(self._on_exit)


async def finish(task: asyncio.Task[None]) -> None:
    """Wait for a task that must not be cut short.

    A cancellation is raised after its end.
    """
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancellation = error
    task.result()
    if cancellation is not None:
        raise cancellation
