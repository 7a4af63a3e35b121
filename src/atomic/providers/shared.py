"""A server that several sessions use: started by the first, ended by the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Generic, TypeVar

from atomic.providers.live import undisturbed

T = TypeVar("T")


class Shared(Generic[T]):
    """Hands one thing to many. A task of its own opens and closes it: whoever came first may leave first."""

    def __init__(self, start: Callable[[], AbstractAsyncContextManager[T]]) -> None:
        self._start = start
        self._users = 0
        self._leave: asyncio.Event | None = None  # of the one that is handed out now
        self._ready: asyncio.Future[T] | None = None
        self._owners: dict[asyncio.Task[None], asyncio.Future[T]] = {}  # several while dropped ones are still ending

    @asynccontextmanager
    async def use(self) -> AsyncGenerator[T]:
        """It, started if need be. Raises what the start raises, to all who wait for it."""
        self._users += 1
        try:
            if self._ready is None:
                self._ready, self._leave = asyncio.get_running_loop().create_future(), asyncio.Event()
                self._owners[asyncio.create_task(self._own(self._ready, self._leave))] = self._ready
            yield await asyncio.shield(self._ready)
        finally:
            self._users -= 1
            if self._users == 0:
                await self._close()

    def drop(self, value: T | None = None) -> None:
        """It is dead: whoever comes next gets a new one. With a value, only if that is the one handed out now."""
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
            ready.exception()  # those who wait raise it; if nobody waits any more, nobody needs to hear of it
            if self._ready is ready:
                self._ready = None

    async def _close(self) -> None:
        owners, self._owners, self._ready = self._owners, {}, None
        if self._leave is not None:
            self._leave.set()
        for owner, ready in owners.items():
            if not ready.done():  # nobody waits for the start any more
                owner.cancel()
        await undisturbed(_ended(owners))


async def _ended(owners: Iterable[asyncio.Task[None]]) -> None:
    """Wait for all; then raise what the first of them that failed had to say."""
    for error in await asyncio.gather(*owners, return_exceptions=True):
        if error is not None:
            raise error
