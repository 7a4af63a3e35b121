"""Sessions that several nodes share by name.

Each is opened and closed in its own task, because a session must be closed by the task
that opened it. The run keeps the provider and session id of each name, so that a resume
continues in the same sessions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from atomic.base.errors import AtomicError
from atomic.runs.agent_calls import MeteredProvider, MeteredSession

if TYPE_CHECKING:
    from atomic.providers.base import SessionOptions

Ids = Mapping[str, Sequence[str]]


class _OpenSession:
    """An open session and the task that holds it."""

    def __init__(self, provider: str, opening: MeteredProvider, options: SessionOptions) -> None:
        self.provider = provider
        self.lock = asyncio.Lock()  # one turn at a time
        self._ready: asyncio.Future[MeteredSession] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._task = asyncio.create_task(self._hold(opening, options), name="named-session")

    async def _hold(self, opening: MeteredProvider, options: SessionOptions) -> None:
        try:
            async with opening.open(options) as session:
                self._ready.set_result(session)
                await self._over.wait()
        except Exception as error:  # `session` raises it
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def session(self) -> MeteredSession:
        return await asyncio.shield(self._ready)

    async def close(self) -> None:
        self._over.set()
        if not self._ready.done():
            self._task.cancel()
        with suppress(AtomicError, OSError, asyncio.CancelledError):  # closed in any case
            await self._task


class NamedSessions:
    """Sessions by name; `save` saves their providers and ids."""

    def __init__(self, known: Ids, save: Callable[[Ids], object], warn: Callable[[str], object]) -> None:
        self._ids = dict(known)
        self._save = save
        self._warn = warn
        self._open_sessions: dict[str, _OpenSession] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @asynccontextmanager
    async def using(
        self, name: str, provider: str, opening: MeteredProvider, options: SessionOptions
    ) -> AsyncGenerator[MeteredSession]:
        """Yield the session of that name for one turn.

        A different provider starts a new one.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            kept = self._open_sessions.get(name)
            if kept is not None and kept.provider != provider:
                await self.clear(name)
                kept = None
            if kept is None:
                session = await self._open(name, provider, opening, options)
            else:
                session = await kept.session()
            yield session
            self._ids[name] = (provider, session.id)
            self._save(self._ids)

    async def _open(
        self, name: str, provider: str, opening: MeteredProvider, options: SessionOptions
    ) -> MeteredSession:
        before = self._ids.get(name)
        if before is not None and before[0] == provider:
            resumed = await self._resume(name, before, opening, options)
            if resumed is not None:
                self._open_sessions[name] = resumed
                return await resumed.session()
        kept = _OpenSession(provider, opening, options)
        self._open_sessions[name] = kept
        try:
            return await kept.session()
        except BaseException:  # also a cancellation: its task would hold the session open
            del self._open_sessions[name]
            await kept.close()
            raise

    async def clear(self, name: str) -> None:
        """End a session, so that the next turn under its name starts a new one."""
        kept = self._open_sessions.pop(name, None)
        if self._ids.pop(name, None) is not None:
            self._save(self._ids)
        if kept is not None:
            await kept.close()

    def provider_of(self, name: str) -> str | None:
        """Return the provider of the session of that name.

        None if there is no such session.
        """
        kept = self._open_sessions.get(name)
        if kept is not None:
            return kept.provider
        known = self._ids.get(name)
        return None if known is None else known[0]

    @asynccontextmanager
    async def between_turns(
        self, name: str, opening: MeteredProvider, options: SessionOptions
    ) -> AsyncGenerator[MeteredSession | None]:
        """Yield the session between two turns.

        None if it does not exist or cannot be resumed.

        A session from before a restart is closed again after the body, because the next
        turn opens it with other options.
        """
        async with self._locks.setdefault(name, asyncio.Lock()):
            kept = self._open_sessions.get(name)
            if kept is not None:
                yield await kept.session()
                return
            before = self._ids.get(name)
            kept = None if before is None else await self._resume(name, before, opening, options)
            try:
                yield None if kept is None else await kept.session()
            finally:
                if kept is not None:
                    await kept.close()

    async def _resume(
        self, name: str, before: Sequence[str], opening: MeteredProvider, options: SessionOptions
    ) -> _OpenSession | None:
        """Open a session from before a restart; warn and return None if that fails."""
        provider, id = before
        if not opening.capabilities.resume:
            return None
        kept = _OpenSession(provider, opening, msgspec.structs.replace(options, resume=id))
        try:
            await kept.session()
        except AtomicError as error:
            self._warn(f'the session "{name}" cannot be continued, so a new one starts: {error}')
            await kept.close()
            return None
        except BaseException:  # also a cancellation: its task would hold the session open
            await kept.close()
            raise
        return kept

    async def close(self) -> None:
        """Close all sessions; their ids are kept for a resume."""
        kept = self._open_sessions
        self._open_sessions = {}
        async with AsyncExitStack() as closing:  # one that fails does not keep the others open
            for session in kept.values():
                closing.push_async_callback(session.close)
