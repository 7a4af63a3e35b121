"""Handle Ctrl+C, SIGTERM and SIGHUP.

The first signal asks the current work to stop. Ctrl+C twice within a second ends the
process at once.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

from atomic.base.errors import ExitCode

TWICE_SECONDS = 1.0
# A wrapper that passes Ctrl+C on delivers two signals for one keypress. No user is that
# quick.
ONE_KEYPRESS_SECONDS = 0.05
_LEFT_SECONDS = 5.0  # for tasks that are cancelled when the work is over

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_on_signals() -> None:
    """Raise KeyboardInterrupt with the number of the signal, until there is an event
    loop.
    """
    for number in _handled():
        signal.signal(number, _raise)


def _raise(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(number)


def _handled() -> list[signal.Signals]:
    """Return the signals to handle; under nohup SIGHUP stays ignored."""
    return [n for n in _SIGNALS if n is not signal.SIGHUP or signal.getsignal(n) is not signal.SIG_IGN]


class Stop:
    """The first signal that arrived.

    `act` is called for each; at first it cancels the work.
    """

    def __init__(self, act: Callable[[], object]) -> None:
        self.number: int | None = None
        self.act = act
        self._last = float("-inf")

    @property
    def exit_code(self) -> int:
        return ExitCode.SIGNALLED + (self.number or signal.SIGINT)

    def handle(self, number: int) -> None:
        """Take a signal: call `act`, or end the process at a second Ctrl+C."""
        now = asyncio.get_running_loop().time()
        pause = now - self._last
        self._last = now
        if pause < ONE_KEYPRESS_SECONDS:
            return
        if self.number is not None and number == signal.SIGINT and pause < TWICE_SECONDS:
            os._exit(ExitCode.SIGNALLED + number)  # guards end the child processes
        self.number = self.number or number
        self.act()


def run(work: Callable[[Stop], Coroutine[Any, Any, int]]) -> int:
    """Run the work and return its exit code.

    A signal that it does not handle cancels it.
    """

    async def main() -> int:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()
        stop = Stop(task.cancel)
        for number in _handled():
            loop.add_signal_handler(number, stop.handle, number)
        try:
            code = await work(stop)
            await _end_what_is_left(code)
            return code
        except asyncio.CancelledError:
            if stop.number is None:
                raise
            await _end_what_is_left(stop.exit_code)
            return stop.exit_code
        finally:
            for number in _handled():
                loop.remove_signal_handler(number)
                signal.signal(number, _exit)
            # Python restores the default handlers before it ends: a late second Ctrl+C
            # would become the exit code.
            atexit.register(signal.pthread_sigmask, signal.SIG_BLOCK, _SIGNALS)

    return asyncio.run(main())


async def _end_what_is_left(code: int) -> None:
    """Cancel the tasks that the work has left, or end the process without them.

    Code of a workflow may catch each cancellation; asyncio would wait without a limit.
    """
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left and (await asyncio.wait(left, timeout=_LEFT_SECONDS))[1]:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # guards end the child processes


def _exit(number: int, frame: FrameType | None) -> None:
    """End at once: the work is done, and a traceback from Python's shutdown would only
    confuse.
    """
    os._exit(ExitCode.SIGNALLED + number)
