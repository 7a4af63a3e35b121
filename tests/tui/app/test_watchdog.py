"""The watchdog logs where the event loop is blocked, and nothing else."""

from __future__ import annotations

import asyncio
import stat
import threading
import time
from pathlib import Path

from atomic.tui.watchdog import Watchdog
from tests.support.waits import eventually

PATIENCE = 0.1


async def until_written(file: Path) -> str:
    await eventually(file.exists)
    return file.read_text()


def block_loop(seconds: float) -> None:
    time.sleep(seconds)


async def test_a_blocked_event_loop_is_logged_with_its_stack(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "screen.log"
    watchdog = Watchdog(file, patience=PATIENCE)
    watchdog.start()
    watchdog.wake()
    await asyncio.sleep(PATIENCE * 2)
    block_loop(PATIENCE * 5)
    text = await until_written(file)
    watchdog.stop()

    assert "the screen stood still for" in text
    assert "block_loop" in text
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


async def test_a_running_editor_is_not_logged(tmp_path: Path) -> None:
    file = tmp_path / "screen.log"
    watchdog = Watchdog(file, patience=PATIENCE)
    watchdog.start()
    watchdog.wake()
    watchdog.pause(True)
    block_loop(PATIENCE * 5)
    await asyncio.sleep(PATIENCE * 3)
    watchdog.stop()

    assert not file.exists()


async def test_the_watchdog_sleeps_while_idle_and_ends(tmp_path: Path) -> None:
    watchdog = Watchdog(tmp_path / "screen.log", patience=PATIENCE)
    watchdog.start()
    thread = next(thread for thread in threading.enumerate() if thread.name == "watchdog")
    block_loop(PATIENCE * 5)  # without `wake`
    await asyncio.sleep(PATIENCE * 2)
    assert not (tmp_path / "screen.log").exists()

    watchdog.stop()
    await asyncio.to_thread(thread.join, 5)
    assert not thread.is_alive()
