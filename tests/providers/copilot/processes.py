"""What runs on this machine, as far as a test left it there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.providers.copilot.place import LIMIT


def find(word: str) -> list[int]:
    """The living processes with that word in their command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        line = _read(entry / "cmdline").replace(b"\0", b" ") if entry.name.isdigit() else b""
        if word.encode() in line and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found


async def appears(word: str) -> list[int]:
    async with asyncio.timeout(LIMIT):
        while not (found := find(word)):
            await asyncio.sleep(0.01)
    return found


async def disappears(word: str, *, within: float = LIMIT) -> None:
    async with asyncio.timeout(within):
        while find(word):
            await asyncio.sleep(0.01)


def with_home(home: Path) -> list[int]:
    """The living servers of Copilot that have that home folder."""
    word = f"HOME={home}".encode()
    return [pid for pid in find("--headless") if word in _read(Path(f"/proc/{pid}/environ")).split(b"\0")]


def children() -> list[int]:
    """The processes that this one started and that have not gone, not even as zombies."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def listening(pid: int) -> list[str]:
    """The TCP sockets on which a process takes connections."""
    sockets = {_link(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    lines = [
        line.split() for name in ("tcp", "tcp6") for line in _read(Path(f"/proc/{pid}/net/{name}")).splitlines()[1:]
    ]
    return [str(words[1]) for words in lines if words[3] == b"0A" and f"socket:[{words[9].decode()}]" in sockets]


def _link(path: Path) -> str:
    try:
        return os.readlink(path)
    except OSError:  # closed meanwhile
        return ""


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile
        return b""
