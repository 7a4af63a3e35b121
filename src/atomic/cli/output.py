"""Write to standard output and error without ever standing still for a slow reader.

A thread of its own writes, in order. Were it the event loop, a full pipe (`| less`) would also stop the agent's
streams and the handling of Ctrl+C.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from contextlib import suppress

from atomic.cli.streams import STDERR, STDOUT, message, write


class Output:
    """What is written; `failure` says why standard output could not take it all, unless its reader just went."""

    def __init__(self, stdout: int = STDOUT) -> None:
        self._stdout = stdout
        self.failure: OSError | None = None
        self._closed: set[int] = set()
        self._queue: queue.SimpleQueue[tuple[int, str] | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._drained: asyncio.Future[None] = self._loop.create_future()
        # A daemon: at the second Ctrl+C nobody waits for a reader that does not read.
        threading.Thread(target=self._work, name="output", daemon=True).start()

    @property
    def backlog(self) -> int:
        """How much waits to be written."""
        return self._queue.qsize()

    def put(self, text: str) -> None:
        """Write to standard output."""
        self._queue.put((self._stdout, text))

    def show(self, text: str) -> None:
        """Write to standard error, as it is."""
        self._queue.put((STDERR, text))

    def tell(self, text: str) -> None:
        """Say something to the person."""
        self.show(message(text))

    async def drain(self) -> None:
        """Wait until all is written; nothing can be written after it."""
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
        with suppress(RuntimeError):  # the loop has gone: nobody waits
            self._loop.call_soon_threadsafe(self._tell_drained)

    def _tell_drained(self) -> None:
        if not self._drained.done():
            self._drained.set_result(None)
