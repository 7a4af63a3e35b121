"""What runs on this machine, as far as a test left it there."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from tests.providers.claude.place import LIMIT


def find(word: str) -> list[int]:
    """The living processes with that word in their command line."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes()
            except OSError:  # it ended meanwhile
                continue
            if word.encode() in line:
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


def children() -> list[int]:
    """The processes that this one started and that have not gone, not even as zombies."""
    tasks = Path(f"/proc/{os.getpid()}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]
