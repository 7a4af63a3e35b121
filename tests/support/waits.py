"""Wait for an event. The limits only end a hang: no test fails because the machine is slow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

HANG = 240.0  # seconds
PAUSE = 0.01  # seconds between two looks


async def eventually(condition: Callable[[], object], *, limit: float = HANG) -> None:
    """Return as soon as `condition()` is true. Raise TimeoutError after `limit` seconds."""
    async with asyncio.timeout(limit):
        while not condition():
            await asyncio.sleep(PAUSE)


def wait_until(condition: Callable[[], object], what: str = "", *, limit: float = HANG) -> None:
    """Block until `condition()` is true. Fail after `limit` seconds and name `what` is missing."""
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end, f"no {what or 'end of the wait'} after {limit:g} s"
        time.sleep(PAUSE)


async def skip_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Move the clock of the running event loop forward and let all timers that are due end."""
    loop = asyncio.get_running_loop()
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + seconds)
    for _ in range(30):
        await asyncio.sleep(0)
