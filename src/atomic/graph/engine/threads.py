"""Threads for blocking functions that do not delay the exit.

asyncio's own pool has few threads (six on two cores), so a few blocking tools would
block each other, and the interpreter waits for them at exit. These threads are daemons.
There are as many as needed, and they are reused.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from atomic.graph.engine.control import Suspend

_Call = tuple[Callable[[], Any], Context, asyncio.AbstractEventLoop, "asyncio.Future[Any]"]
_IDLE_SECONDS = 10.0


class _Worker:
    """A thread that takes one call at a time and ends after some idle time."""

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
    """Leave the idle list. Return False if a call was just assigned to the worker."""
    try:
        _idle.remove(worker)
    except ValueError:
        return False
    return True


def _perform(call: _Call) -> None:
    function, context, loop, future = call
    try:
        result = context.run(function)
        error = None
    except BaseException as raised:
        result = None
        error = raised
    if isinstance(error, StopIteration) or not isinstance(error, Exception | SystemExit | Suspend | None):
        # A future cannot carry StopIteration. The panic of an extension module is not
        # an Exception and would end the program.
        error = RuntimeError(f"the function raised {type(error).__name__}({error})")
    try:
        loop.call_soon_threadsafe(_settle, future, result, error)
    except RuntimeError:  # the loop is closed
        _discard(result)


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():  # cancelled
        _discard(result)
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def _discard(result: Any) -> None:
    """Close a coroutine that is not needed.

    Otherwise Python warns that it was never awaited.
    """
    if inspect.iscoroutine(result):
        result.close()


async def call_in_thread(function: Callable[[], Any]) -> Any:
    """Call a blocking function without blocking the loop.

    Cancelling abandons the result.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    try:
        worker = _idle.pop()
    except IndexError:
        worker = _Worker()
    worker.hand((function, copy_context(), loop, future))
    return await future
