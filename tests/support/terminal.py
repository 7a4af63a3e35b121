"""A terminal with a program in it, and a user who types."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import signal
import subprocess
import termios
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.waits import HANG, eventually


class Terminal:
    """A terminal: `screen` is its text, and `type` sends text as a keyboard does."""

    def __init__(self, keyboard: int, process: subprocess.Popen[bytes]) -> None:
        self.screen = ""
        self._keyboard = keyboard
        self._process = process
        self._news = asyncio.Event()

    def type(self, text: str) -> None:
        os.write(self._keyboard, text.encode())

    async def shows(self, text: str, *, timeout: float = HANG) -> None:
        """Wait until a text is on the screen."""
        async with asyncio.timeout(timeout):
            while text not in self.screen:
                self._news.clear()
                await self._news.wait()

    async def exit_code(self, *, timeout: float = HANG) -> int:
        await eventually(lambda: self._process.poll() is not None, limit=timeout)
        return self._process.returncode

    async def rest(self) -> str:
        """Return the whole output of a program that has ended."""
        while select.select([self._keyboard], [], [], 0)[0]:
            if not self.hear():
                break
        return self.screen

    def hear(self) -> bool:
        try:
            data = os.read(self._keyboard, 64 * 1024)
        except OSError:  # the program and all its children have closed it
            asyncio.get_running_loop().remove_reader(self._keyboard)
            return False
        self.screen += data.decode("utf-8", "replace").replace("\r\n", "\n")
        self._news.set()
        return bool(data)


@asynccontextmanager
async def in_terminal(words: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path) -> AsyncGenerator[Terminal]:
    """Run a program in a terminal of its own; leaving ends it."""
    keyboard, screen = os.openpty()
    process = subprocess.Popen(
        words, env=env, cwd=cwd, stdin=screen, stdout=screen, stderr=screen, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(screen)
    terminal = Terminal(keyboard, process)
    asyncio.get_running_loop().add_reader(keyboard, terminal.hear)
    try:
        yield terminal
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        asyncio.get_running_loop().remove_reader(keyboard)
        os.close(keyboard)
