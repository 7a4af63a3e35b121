"""Ctrl+C, SIGTERM and SIGHUP: once, what runs is asked to stop; Ctrl+C twice within a second leaves at once."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

from atomic.base.errors import ExitCode

TWICE = 1.0  # seconds
# A wrapper that passes Ctrl+C on gives us two of one keypress; no hand is that quick.
ONE_KEYPRESS = 0.05

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_on_signals() -> None:
    """Until there is an event loop: end as by Ctrl+C, with the number of the signal."""
    for number in _handled():
        signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def _handled() -> list[signal.Signals]:
    """A command under nohup is not to hear of the terminal's end."""
    return [n for n in _SIGNALS if n is not signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]


class Stop:
    """What has come of signals; `act` is called for each, and cancels the work until somebody knows better."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.number: int | None = None
        self.act = act
        self._last = float("-inf")

    @property
    def exit_code(self) -> int:
        return ExitCode.SIGNALLED + (self.number or signal.SIGINT)

    def hear(self, number: int) -> None:
        now = asyncio.get_running_loop().time()
        pause, self._last = now - self._last, now
        if pause < ONE_KEYPRESS:
            return
        if self.number is not None and number == signal.SIGINT and pause < TWICE:
            os._exit(ExitCode.SIGNALLED + number)  # the children go too: each has a guard that sees us die
        self.number = self.number or number
        self.act()


def run(work: Callable[[Stop], Coroutine[Any, Any, int]]) -> int:
    """Run to the end and give its exit code; a signal that the work does not handle cancels it."""

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        loop, stop = asyncio.get_running_loop(), Stop(task.cancel)
        for number in _handled():
            loop.add_signal_handler(number, stop.hear, number)
        try:
            return await work(stop)
        except asyncio.CancelledError:
            if stop.number is None:
                raise
            return stop.exit_code
        finally:
            for number in _handled():
                loop.remove_signal_handler(number)
                signal.signal(number, _leave)
            # Python gives up its handlers before it is gone: a late second Ctrl+C would become the exit code.
            atexit.register(signal.pthread_sigmask, signal.SIG_BLOCK, _SIGNALS)

    return asyncio.run(main())


def _leave(number: int, frame: FrameType | None) -> None:
    """All is said and done: a signal does not become a traceback while Python winds up."""
    os._exit(ExitCode.SIGNALLED + number)
