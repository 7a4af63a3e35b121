"""Detect that the screen's event loop is blocked, and log where.

A thread pings the loop, but only after activity: an idle screen has no pings.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path

PATIENCE = 0.25  # seconds
_AWAKE = 2.0  # seconds to keep watching after activity
_MOST = 1024 * 1024  # bytes of the log file; then it is truncated


class Watchdog:
    """Watches the event loop of the thread that starts it."""

    def __init__(self, file: Path | None, *, patience: float = PATIENCE) -> None:
        self._file = file
        self._patience = patience
        self._woken = threading.Event()
        self._answered = threading.Event()
        self._until = 0.0
        self._is_over = False
        self._is_paused = False
        self._watched = threading.get_ident()
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Start the thread. Needs a running loop."""
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    def wake(self) -> None:
        """Watch for a while, because something happened."""
        self._until = time.monotonic() + _AWAKE
        if not self._woken.is_set():
            self._woken.set()

    def pause(self, is_paused: bool) -> None:
        """Pause while the editor has the terminal and the loop is blocked on purpose."""
        self._is_paused = is_paused

    def stop(self) -> None:
        self._is_over = True
        self._woken.set()
        self._answered.set()

    def _watch(self) -> None:
        while not self._is_over:
            self._woken.wait()
            while not self._is_over and time.monotonic() < self._until:
                self._look()
            self._woken.clear()

    def _look(self) -> None:
        """Ping the loop, and log its stack if it does not answer in time."""
        assert self._loop is not None
        self._answered.clear()
        asked = time.monotonic()
        try:
            self._loop.call_soon_threadsafe(self._answered.set)
        except RuntimeError:  # the loop is closed
            self._is_over = True
            return
        if not self._answered.wait(self._patience) and not self._is_paused:
            frame = sys._current_frames().get(self._watched)  # pyright: ignore[reportPrivateUsage]  # its only name
            stack = "".join(traceback.format_stack(frame)) if frame is not None else "?"
            self._answered.wait()
            self._write(time.monotonic() - asked, stack)
        left = asked + self._patience - time.monotonic()
        if left > 0 and not self._is_over:
            time.sleep(left)

    def _write(self, seconds: float, stack: str) -> None:
        if self._file is None or self._is_over or self._is_paused:
            return
        text = f"{time.strftime('%Y-%m-%d %H:%M:%S')} the screen stood still for {seconds:.2f} s\n{stack}\n"
        with suppress(OSError):  # a full disk must not cause a second problem
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            is_long = self._file.exists() and self._file.stat().st_size > _MOST
            flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if is_long else os.O_APPEND)
            number = os.open(self._file, flags, 0o600)
            try:
                os.write(number, text.encode("utf-8", "replace"))
            finally:
                os.close(number)
