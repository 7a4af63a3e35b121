"""Find what a program left behind, wherever it moved to.

An agent runs each shell command in a session of its own, so that ending the agent's group does not reach it, and a
killed agent cannot clean up. But whatever it starts inherits its environment: a mark in it finds them all. Only a
program that is started with an empty environment on purpose can hide.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import uuid
from collections.abc import Mapping
from contextlib import suppress

from atomic.processes.groups import GRACE, read_process_file

_MARK = "ATOMIC_MARK"


def new_mark() -> dict[str, str]:
    """A variable for the environment of a program, with a value that nobody else has."""
    return {_MARK: uuid.uuid4().hex}


def mark_in(env: Mapping[str, str]) -> str:
    """The mark of an environment as the system shows it; nothing if there is none."""
    return f"{_MARK}={env[_MARK]}" if _MARK in env else ""


def find_marked(mark: dict[str, str]) -> list[int]:
    """The living processes that carry the mark. Only Linux tells; elsewhere there are none."""
    if sys.platform != "linux":
        return []
    words = mark_in(mark).encode()
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and _carries(entry, words)]


async def end_marked(mark: dict[str, str]) -> list[int]:
    """Kill all that carry the mark; those that live on all the same."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + GRACE
    while (left := find_marked(mark)) and clock() < deadline:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.01)
    return left


def _carries(pid: str, words: bytes) -> bool:
    try:
        environment = read_process_file(pid, "environ")
    except OSError:  # it ended meanwhile, or belongs to somebody else
        return False
    return words in environment and words in environment.split(b"\0")
