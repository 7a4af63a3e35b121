"""One session of a provider, opened and closed in a task of its own: nobody waits who need not."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from atomic.base.errors import AtomicError
from atomic.providers import AgentProvider, AgentSession, SessionOptions
from atomic.providers.programs import NotStartedError, start_seconds

_CLOSING = 4.0

_log = logging.getLogger(__name__)

MakeOptions = Callable[[], Awaitable[SessionOptions]]


class Keeper:
    """Holds a session open until `close`. `wanted` tells sessions with other options apart."""

    def __init__(self, provider: AgentProvider, make_options: MakeOptions, wanted: object) -> None:
        self.provider, self.wanted = provider, wanted
        self._ready: asyncio.Future[AgentSession] = asyncio.get_running_loop().create_future()
        self._leave = asyncio.Event()
        self._task = asyncio.create_task(self._keep(make_options), name=f"session-{provider.name}")

    @property
    def has_failed(self) -> bool:
        """Whether there is no session and will be none."""
        return self._task.done()

    async def session(self) -> AgentSession:
        """The session, once it is open. Raises what its opening raised, NotStartedError if that takes too long."""
        seconds = start_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._ready)
        except TimeoutError:
            name = self.provider.name
            raise NotStartedError(
                f"{name} has not started within {seconds:g} s (try again, or see atomic doctor)"
            ) from None

    async def close(self) -> None:
        """End it; one that does not want to end is left to end by itself."""
        self._leave.set()
        if not self._ready.done():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=_CLOSING)
        self._task.cancel()

    async def _keep(self, make_options: MakeOptions) -> None:
        try:
            async with self.provider.open(await make_options()) as session:
                self._ready.set_result(session)
                await self._leave.wait()
        except asyncio.CancelledError:
            if not self._ready.done():
                self._fail(NotStartedError(f"{self.provider.name} was closed before it had started"))
        except Exception as error:  # it is raised to whoever wants the session
            if self._ready.done():
                _log.warning("%s could not be closed: %s: %s", self.provider.name, type(error).__name__, error)
            else:
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        if not isinstance(error, AtomicError | OSError):
            _log.error("%s could not be opened", self.provider.name, exc_info=error)
        self._ready.set_exception(error)
        self._ready.exception()  # nobody may ever ask
