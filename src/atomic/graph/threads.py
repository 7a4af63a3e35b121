"""Blocking functions in threads that nobody has to wait for.

asyncio's own pool has few threads (six on two cores), so a handful of blocking tools would stop each other,
and the interpreter waits for all of them at exit. These are daemons, as many as are needed, and are used again.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context, copy_context
from typing import Any

from atomic.graph.control import Suspend

_Call = tuple[Callable[[], Any], Context, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]
_IDLE_SECONDS = 10.0


class _Worker:
    """A thread that takes one call at a time and goes away when nothing came for a while."""

    def __init__(self) -> None:
        self._ready = threading.Semaphore(0)
        self._call: _Call | None = None
        threading.Thread(target=self._serve, name="atomic-tool", daemon=True).start()

    def hand(self, call: _Call) -> None:
        self._call = call
        self._ready.release()

    def _serve(self) -> None:
        while self._ready.acquire(timeout=_IDLE_SECONDS) or not _retire(self):
            call, self._call = self._call, None
            if call is None:
                continue
            _perform(call)
            del call  # an idle thread must not keep the arguments alive
            _idle.append(self)


_idle: list[_Worker] = []


def _retire(worker: _Worker) -> bool:
    """Leave the idle list; False if the worker was just taken from it and a call is on its way."""
    try:
        _idle.remove(worker)
    except ValueError:
        return False
    return True


def _perform(call: _Call) -> None:
    function, context, loop, future = call
    try:
        result, error = context.run(function), None
    except BaseException as raised:
        result, error = None, raised
    if isinstance(error, StopIteration) or not isinstance(error, Exception | SystemExit | Suspend | None):
        # A future cannot carry the first. The panic of an extension module is no Exception, and would end the program.
        error = RuntimeError(f"the function raised {type(error).__name__}({error})")
    with suppress(RuntimeError):  # the loop is closed: whoever asked is gone, and so is the need for an answer
        loop.call_soon_threadsafe(_settle, future, result, error)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled meanwhile: the thread's result is not wanted any more
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


async def call_in_thread(function: Callable[[], Any]) -> Any:
    """Call a blocking function without blocking the loop. Cancelling gives up its result at once."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.hand((function, copy_context(), loop, future))
    return await future
