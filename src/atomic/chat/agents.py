"""The agents that can be asked: found, checked and listed one at a time.

Whoever is only asked about itself is started in an empty folder, and a process has but one current folder.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module

from atomic.commands import TurnPrompt
from atomic.config import Settings
from atomic.providers import AgentProvider, ModelInfo
from atomic.providers.selection import (
    BY_PREFERENCE,
    ModelFinder,
    choose_provider,
    list_models,
    named_provider,
    remedy_for,
)


class Agents:
    """Providers by their names, and what they said of themselves."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._one_at_a_time = asyncio.Lock()
        self._known: dict[str, AgentProvider] = {}
        self._models: dict[str, Sequence[ModelInfo]] = {}
        self._model_finders: dict[str, ModelFinder] = {}

    async def choose(self, name: str | None) -> tuple[str, AgentProvider]:
        """The agent of that name, else the configured one, else the first that can be used. Raises AtomicError."""
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
        await asyncio.to_thread(_import_sdk, provider)
        self._known[found] = provider
        return found, provider

    def names(self) -> list[str]:
        """Those that can be switched to, as far as is known without asking anybody."""
        return [*BY_PREFERENCE, *(f"acp:{name}" for name in self._settings().acp)]

    async def models(self, name: str, provider: AgentProvider, *, refresh: bool = False) -> Sequence[ModelInfo]:
        """Its models, asked once. Raises NoModelsError, ProviderError."""
        if refresh or name not in self._models:
            async with self._one_at_a_time:
                self._models[name] = await list_models(provider)
        return self._models[name]

    async def fitting_model(
        self, name: str, provider: AgentProvider, prompt: TurnPrompt, tell: Callable[[str], None]
    ) -> str | None:
        """What this agent calls the model that a file names; None: its own."""
        if prompt.model is None and prompt.original_model is None:
            return None
        async with self._one_at_a_time:
            finder = self._model_finders.setdefault(name, ModelFinder(provider, tell))
            return await finder.find(prompt)

    async def remedy(self, provider: AgentProvider, why: str) -> str:
        """What to do for an agent that failed; empty if nothing is wrong with the agent itself."""
        async with self._one_at_a_time:
            return await remedy_for(provider, why)


def _import_sdk(provider: AgentProvider) -> None:
    """Import what the opening would import, away from the event loop: an SDK takes up to three seconds."""
    room, _, module = type(provider).__module__.rpartition(".")
    if module == "provider":
        with suppress(ImportError):  # who opens the session says what is missing
            import_module(f"{room}.session")
