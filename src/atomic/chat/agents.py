"""The agents of the chat: find them, list their models, and keep a session open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from importlib import import_module

from atomic.base.errors import AtomicError
from atomic.commands import TurnPrompt
from atomic.config import Settings
from atomic.providers import AgentProvider, AgentSession, ModelInfo, SessionOptions
from atomic.providers.programs import NotStartedError, start_seconds
from atomic.providers.selection import (
    ModelFinder,
    agent_names,
    choose_provider,
    list_models,
    named_provider,
    remedy_for,
)

_CLOSE_LIMIT = 4.0  # seconds

_log = logging.getLogger(__name__)

MakeOptions = Callable[[], Awaitable[SessionOptions]]


class Agents:
    """The providers by name, with the models that they listed.

    They list models one at a time: each starts in an empty folder, and a process has only
    one current folder.
    """

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._one_at_a_time = asyncio.Lock()
        self._known: dict[str, AgentProvider] = {}
        self._models: dict[str, Sequence[ModelInfo]] = {}
        self._model_finders: dict[str, ModelFinder] = {}

    async def choose(self, name: str | None) -> tuple[str, AgentProvider]:
        """Return an agent: the named one, the configured one, or the first usable.

        Raises AtomicError.
        """
        settings = self._settings()
        wanted = name or settings.agent
        if wanted is not None and wanted in self._known:
            return wanted, self._known[wanted]
        async with self._one_at_a_time:
            if wanted is None:
                provider = await choose_provider(None, settings)
            else:
                provider = await asyncio.to_thread(named_provider, wanted, settings)
        found = wanted or provider.name
        await asyncio.to_thread(_import_session_module, provider)
        self._known[found] = provider
        return found, provider

    def names(self) -> list[str]:
        """Return the agents to choose from. None of them is started to find out."""
        return agent_names(self._settings())

    async def models(self, name: str, provider: AgentProvider, *, refresh: bool = False) -> Sequence[ModelInfo]:
        """Return an agent's models, which it lists once.

        Raises NoModelsError, ProviderError.
        """
        if refresh or name not in self._models:
            async with self._one_at_a_time:
                self._models[name] = await list_models(provider)
        return self._models[name]

    async def find_model(
        self, name: str, provider: AgentProvider, prompt: TurnPrompt, warn: Callable[[str], None]
    ) -> str | None:
        """Return this agent's name for the model of a command file, or None to use the
        agent's own.
        """
        if prompt.model is None and prompt.original_model is None:
            return None
        async with self._one_at_a_time:
            finder = self._model_finders.setdefault(name, ModelFinder(provider, warn))
            return await finder.find(prompt)

    async def find_remedy(self, provider: AgentProvider, why: str) -> str:
        """Return what to do about an agent that failed, or an empty string if it lacks
        nothing.
        """
        async with self._one_at_a_time:
            return await remedy_for(provider, why)


def _import_session_module(provider: AgentProvider) -> None:
    """Import in a thread what `open` would import in the event loop: it may take
    seconds.
    """
    room, _, module = type(provider).__module__.rpartition(".")
    if module == "provider":
        with suppress(ImportError):  # opening the session reports it
            import_module(f"{room}.session")


class SessionTask:
    """An agent session that a task of its own opens, keeps open until `close`, and
    closes.

    `variant` identifies the options that it was opened with.
    """

    def __init__(self, provider: AgentProvider, make_options: MakeOptions, variant: object) -> None:
        self.provider = provider
        self.variant = variant
        self._session: asyncio.Future[AgentSession] = asyncio.get_running_loop().create_future()
        self._may_close = asyncio.Event()
        self._task = asyncio.create_task(self._run(make_options), name=f"session-{provider.name}")

    @property
    def is_over(self) -> bool:
        """Return whether the session has ended or could not be opened."""
        return self._task.done()

    async def session(self) -> AgentSession:
        """Return the session once it is open.

        Raises the error of the provider, or NotStartedError after the time limit.
        """
        seconds = start_seconds()
        try:
            async with asyncio.timeout(seconds):
                return await asyncio.shield(self._session)
        except TimeoutError:
            message = f"{self.provider.name} has not started within {seconds:g} s (try again, or see atomic doctor)"
            raise NotStartedError(message) from None

    async def close(self) -> None:
        """Close the session.

        After 4 seconds it is cancelled and left to end by itself.
        """
        self._may_close.set()
        if not self._session.done():
            self._task.cancel()
        await asyncio.wait({self._task}, timeout=_CLOSE_LIMIT)
        self._task.cancel()

    async def _run(self, make_options: MakeOptions) -> None:
        name = self.provider.name
        try:
            async with self.provider.open(await make_options()) as session:
                self._session.set_result(session)
                await self._may_close.wait()
        except asyncio.CancelledError:
            if not self._session.done():
                self._fail(NotStartedError(f"{name} was closed before it had started"))
        except Exception as error:  # `session` raises it
            if self._session.done():
                _log.warning("%s could not be closed: %s: %s", name, type(error).__name__, error)
            else:
                if not isinstance(error, AtomicError | OSError):
                    _log.error("%s could not be opened", name, exc_info=error)
                self._fail(error)

    def _fail(self, error: Exception) -> None:
        self._session.set_exception(error)
        self._session.exception()  # asyncio warns about exceptions that nothing has read
