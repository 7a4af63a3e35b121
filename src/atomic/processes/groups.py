"""End a process group, and see whether it is really gone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress

_PART = 65536  # bytes of a file of /proc that are read at once
GRACE = 2.0  # seconds between TERM and KILL, and for what a dead program's children still have to say

_log = logging.getLogger(__name__)


async def end_group(group: int, *, grace: float = GRACE) -> list[str]:
    """End all processes of a group: TERM, after `grace` seconds KILL; return those that live on all the same."""
    clock = asyncio.get_running_loop().time
    alive = _is_alive(group)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline, pause = clock() + grace, 0.002
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
    with suppress(ProcessLookupError, PermissionError):  # gone, or not ours: `_members` tells them apart
        os.killpg(group, number)


def _is_alive(group: int) -> bool:
    """Return whether a process of a group lives. While the first one does, no other is looked for."""
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
    """Return whether there is such a group, be it one of zombies."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return sys.platform == "linux"  # macOS says this of a group that has only zombies
    return True


_Stat = tuple[str, str, str, int]  # of a process: its number, program, state and group


def _is_member(group: int, stat: _Stat) -> bool:
    """Return whether a process lives and belongs to a group.

    Zombies do not count: an orphan is reaped by process 1, which in a container may never do it.
    """
    return stat[3] == group and stat[2] not in "ZX"


def _stat(pid: str) -> _Stat:
    try:
        text = read_process_file(pid, "stat").decode("utf-8", "replace")
    except OSError:  # it ended meanwhile
        return pid, "", "X", 0
    start, end = text.index("("), text.rindex(")")  # a program may have brackets and blanks in its name
    state, _, pgrp, _ = text[end + 2 :].split(" ", 3)
    return pid, text[start + 1 : end], state, int(pgrp)


def read_process_file(pid: str, name: str) -> bytes:
    """Read a file of /proc. All processes are looked at each time, and `open` takes three times as long.

    Raises:
        OSError: the process has ended, or belongs to somebody else.
    """
    file = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = part = os.read(file, _PART)
        while len(part) == _PART:  # the kernel fills the buffer unless the file ends
            part = os.read(file, _PART)
            data += part
        return data
    finally:
        os.close(file)
