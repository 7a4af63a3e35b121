"""Find processes on this machine that a test has started."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.providers.turns import LIMIT
from tests.support.waits import eventually


def find(word: str) -> list[int]:
    """Return the live processes with that word in their command line."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and word.encode() in _read(pid, "cmdline").replace(b"\0", b" ")]


def with_home(home: Path, word: str) -> list[int]:
    """Return the live processes with that word and that home folder."""
    own = f"HOME={home}".encode()
    return [pid for pid in find(word) if own in _read(pid, "environ").split(b"\0")]


async def appears(word: str) -> list[int]:
    """Wait until a process has that word in its command line."""
    async with asyncio.timeout(LIMIT):
        found = find(word)
        while not found:
            await asyncio.sleep(0.01)
            found = find(word)
    return found


async def disappears(word: str, *, within: float = LIMIT) -> None:
    """Wait until no process has that word in its command line."""
    await eventually(lambda: not find(word))


def children() -> list[int]:
    """Return the child processes of this one, including zombies."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def listening(pid: int) -> list[tuple[str, int]]:
    """Return the addresses and ports on which a process listens."""
    sockets = {_link(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [line.split() for name in ("tcp", "tcp6") for line in _read(pid, f"net/{name}").splitlines()[1:]]
    own = [words[1].decode() for words in lines if words[3] == b"0A" and f"socket:[{words[9].decode()}]" in sockets]
    return [(address.partition(":")[0], int(address.partition(":")[2], 16)) for address in own]


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed since it was listed
        return ""


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:  # the process has ended
        return b""
