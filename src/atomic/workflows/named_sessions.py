"""The sessions that several nodes share by name.

Each is opened and closed in a task of its own: what an agent's program needs to end is bound to the task that began it.
Which session of which provider a name stands for is kept with the run, so that a resume goes on in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from atomic.errors import AtomicError
from atomic.workflows.door import GuardedProvider, GuardedSession

if TYPE_CHECKING:
    from atomic.providers.base import SessionOptions

Ids = Mapping[str, Sequence[str]]


class _Kept:
    """One open session and the task that holds it."""

    def __init__(self, provider: str, opening: GuardedProvider, options: SessionOptions) -> None:
        self.provider = provider
        self.lock = asyncio.Lock()  # one turn at a time
        self._ready: asyncio.Future[GuardedSession] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._hold(opening, options), name="named-session")

    async def _hold(self, opening: GuardedProvider, options: SessionOptions) -> None:
        try:
            async with opening.open(options) as session:
                self._ready.set_result(session)
                await self._over.wait()
        except Exception as error:  # whoever waits for the session is told
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def session(self) -> GuardedSession:
        return await asyncio.shield(self._ready)

    async def close(self) -> None:
        self._over.set()
        if not self._ready.done():
            self._task.cancel()
        with suppress(AtomicError, OSError, asyncio.CancelledError):  # it is over in any case
            await self._task


class NamedSessions:
    """Sessions by name; `keep` is told which ones there are."""

    def __init__(self, known: Ids, keep: Callable[[Ids], object], warn: Callable[[str], object]) -> None:
        self._ids, self._keep, self._warn = dict(known), keep, warn
        self._kept: dict[str, _Kept] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def using(
        self, name: str, provider: str, opening: GuardedProvider, options: SessionOptions
    ) -> AsyncGenerator[GuardedSession]:
        """The session of that name for one turn; another provider than before starts a fresh one."""
        async with self._locks.setdefault(name, asyncio.Lock()):
            kept = self._kept.get(name)
            if kept is not None and kept.provider != provider:
                await self.clear(name)
                kept = None
            session = await self._open(name, provider, opening, options) if kept is None else await kept.session()
            yield session
            self._ids[name] = (provider, session.id)
            self._keep(self._ids)

    async def _open(
        self, name: str, provider: str, opening: GuardedProvider, options: SessionOptions
    ) -> GuardedSession:
        before = self._ids.get(name)
        if before is not None and before[0] == provider:
            taken_up = await self._taken_up(name, before, opening, options)
            if taken_up is not None:
                self._kept[name] = taken_up
                return await taken_up.session()
        kept = self._kept[name] = _Kept(provider, opening, options)
        try:
            return await kept.session()
        except BaseException:
            del self._kept[name]
            await kept.close()
            raise

    async def clear(self, name: str) -> None:
        """End it, so that the next turn under that name starts fresh."""
        kept = self._kept.pop(name, None)
        if self._ids.pop(name, None) is not None:
            self._keep(self._ids)
        if kept is not None:
            await kept.close()

    def provider_of(self, name: str) -> str | None:
        """The provider that has the session of that name; None if there is no such session yet."""
        kept, known = self._kept.get(name), self._ids.get(name)
        return kept.provider if kept is not None else None if known is None else known[0]

    @asynccontextmanager
    async def looked_at(
        self, name: str, opening: GuardedProvider, options: SessionOptions
    ) -> AsyncGenerator[GuardedSession | None]:
        """The session between two turns. One from before a restart is opened for that long: a turn has other options.

        None: there is none, or it cannot be gone on with.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            if (kept := self._kept.get(name)) is not None:
                yield await kept.session()
                return
            before = self._ids.get(name)
            kept = None if before is None else await self._taken_up(name, before, opening, options)
            try:
                yield None if kept is None else await kept.session()
            finally:
                if kept is not None:
                    await kept.close()

    async def _taken_up(
        self, name: str, before: Sequence[str], opening: GuardedProvider, options: SessionOptions
    ) -> _Kept | None:
        """A session of before a restart, open; None, and why, where that cannot be."""
        provider, id = before
        if not opening.capabilities.resume:
            return None
        kept = _Kept(provider, opening, msgspec.structs.replace(options, resume=id))
        try:
            await kept.session()
        except AtomicError as error:
            self._warn(f'the session "{name}" cannot be continued and starts fresh: {error}')
            await kept.close()
            return None
        except BaseException:
            await kept.close()
            raise
        return kept

    async def close(self) -> None:
        """End all; their ids stay, for a resume."""
        kept, self._kept = self._kept, {}
        for session in kept.values():
            await session.close()
