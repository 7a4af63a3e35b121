"""Learn at once that a child has exited, without asking again and again."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import suppress


class ExitWatch:
    """Calls `look` in the event loop, once, when the child has exited; its exit code is the owner's to take."""

    def __init__(self, pid: int, look: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._look, self._pidfd = look, -1
        try:
            self._pidfd = os.pidfd_open(pid)
        except (AttributeError, OSError):  # not Linux, or one without it
            threading.Thread(target=self._wait, args=(pid,), daemon=True, name=f"wait-{pid}").start()
        else:
            self._loop.add_reader(self._pidfd, self._exited)

    def _exited(self) -> None:
        self.close()  # it would be told for ever
        self._look()

    def close(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _wait(self, pid: int) -> None:
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with suppress(RuntimeError):  # the event loop ended first
            self._loop.call_soon_threadsafe(self._look)
