"""Share one server among sessions: the first starts it, the last ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

from atomic.providers.session import undisturbed

T = TypeVar("T")


class Shared(Generic[T]):
    """Hands one value to many users.

    Its own task opens and closes it, as users may leave in any order.
    """

    def __init__(self, start: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._start = start
        self._users = 0
        self._leave: asyncio.Event | None = None  # ends the current value
        self._ready: asyncio.Future[T] | None = None
        self._owners: dict[asyncio.Task[None], asyncio.Future[T]] = {}  # more than one while dropped ones end

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[T]:
        """Yield the value, started if needed.

        Raise an error of the start to all who wait for it.
        """
        self._users += 1
        try:
            if self._ready is None:
                self._ready = asyncio.get_running_loop().create_future()
                self._leave = asyncio.Event()
                self._owners[asyncio.create_task(self._own(self._ready, self._leave))] = self._ready
            yield await asyncio.shield(self._ready)
        finally:
            self._users -= 1
            if self._users == 0:
                await self._close()

    def drop(self, value: T | None = None) -> None:
        """Replace a dead value for the next user.

        With `value`, only if it is the current one.
        """
        if self._ready is None or self._leave is None or (value is not None and not self._hands_out(value)):
            return
        self._leave.set()
        self._ready = None

    def _hands_out(self, value: T) -> bool:
        ready = self._ready
        return ready is not None and ready.done() and ready.exception() is None and ready.result() is value

    async def _own(self, ready: asyncio.Future[T], leave: asyncio.Event) -> None:
        try:
            async with self._start() as value:
                ready.set_result(value)
                await leave.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)
            ready.exception()  # marked as retrieved, even if no user waits
            if self._ready is ready:
                self._ready = None

    async def _close(self) -> None:
        owners = self._owners
        self._owners = {}
        self._ready = None
        if self._leave is not None:
            self._leave.set()
        for owner, ready in owners.items():
            if not ready.done():  # no user waits for the start
                owner.cancel()

        async def ended() -> None:
            """Wait for all tasks, then raise the error of the first one that failed."""
            for error in await asyncio.gather(*owners, return_exceptions=True):
                if error is not None:
                    raise error

        await undisturbed(ended())
