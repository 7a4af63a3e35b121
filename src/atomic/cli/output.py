"""Write to standard output and error from a thread, so that a slow reader blocks
nothing else.

With writes in the event loop, a full pipe (`| less`) would also block the agent's
streams and the handling of Ctrl+C.
"""

from __future__ import annotations

import asyncio
import os
import queue
import threading
from contextlib import suppress

from atomic.cli.streams import STDERR, STDOUT, message, write


class Output:
    """Writes texts in order.

    `progress` is where the lines of a run go: standard output if they are the output of
    the command, standard error if it prints a result. `failure` is the error of standard output,
    except a closed pipe.
    """

    def __init__(self, stdout: int = STDOUT, *, progress: int = STDERR) -> None:
        self._stdout = stdout
        self.progress = progress
        self.failure: OSError | None = None
        self._closed: set[int] = set()
        self._queue: queue.SimpleQueue[tuple[int, str] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._drained: asyncio.Future[None] = self._loop.create_future()
        # A daemon: the second Ctrl+C does not wait for a reader that has stopped
        # reading.
        threading.Thread(target=self._work, name="output", daemon=True).start()

    @property
    def is_terminal(self) -> bool:
        """Return whether standard output is a terminal."""
        return os.isatty(self._stdout)

    @property
    def backlog(self) -> int:
        """Return the number of texts that are not yet written."""
        return self._queue.qsize()

    def put(self, text: str) -> None:
        """Write to standard output."""
        self._queue.put((self._stdout, text))

    def show(self, text: str) -> None:
        """Write a line of the run's progress, without a prefix."""
        self._queue.put((self.progress, text))

    def tell(self, text: str) -> None:
        """Write a message to standard error."""
        self._queue.put((STDERR, message(text)))

    async def drain(self) -> None:
        """Wait until everything is written. Nothing can be written afterwards."""
        self._queue.put(None)
        await self._drained

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            number, text = item
            if number in self._closed:
                continue
            try:
                write(number, text)
            except OSError as error:
                self._closed.add(number)
                if number == self._stdout and not isinstance(error, BrokenPipeError):
                    self.failure = error

        def finish() -> None:
            if not self._drained.done():
                self._drained.set_result(None)

        with suppress(RuntimeError):  # the loop is closed, and `drain` was not called
            self._loop.call_soon_threadsafe(finish)
