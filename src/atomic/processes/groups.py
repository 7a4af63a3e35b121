"""End a process group, and see whether it is really gone."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress

GRACE = 2.0  # seconds between TERM and KILL, and for what a dead program's children still have to say

_log = logging.getLogger(__name__)


async def end_group(group: int, *, grace: float = GRACE) -> list[str]:
    """End all processes of a group: TERM, after `grace` seconds KILL; return those that live on all the same."""
    clock = asyncio.get_running_loop().time
    alive = _members(group)
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline, pause = clock() + grace, 0.002
        if alive:
            send_signal(group, number)
        while alive and clock() < deadline:
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.05)
            alive = _members(group)
    if alive:
        _log.warning("still alive after SIGKILL: %s", ", ".join(alive))
    return alive


def send_signal(group: int, number: int) -> None:
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
        return b"".join(iter(lambda: os.read(file, 65536), b""))
    finally:
        os.close(file)
