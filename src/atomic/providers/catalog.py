"""A provider by its name. A backend, and with it an SDK, is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import cast

from atomic.config import Settings, load_settings
from atomic.providers.base import AgentProvider
from atomic.providers.errors import ProviderError, UnknownProviderError

PROVIDERS = ("claude", "opencode", "copilot", "acp", "replay")
_BACKENDS = {
    "claude": ("atomic.providers.claude.provider", "ClaudeProvider"),
    "opencode": ("atomic.providers.opencode.provider", "OpencodeProvider"),
    "copilot": ("atomic.providers.copilot.provider", "CopilotProvider"),
    "acp": ("atomic.providers.acp.provider", "AcpProvider"),
    "replay": ("atomic.providers.replay", "ReplayProvider"),
}
_NEEDS = {
    "acp": "name the agent: acp:gemini, acp:codex, or one of [acp.NAME] in the configuration",
    "replay": "name the recording: replay:FILE",
}


def require_provider(name: str, settings: Settings | None = None) -> AgentProvider:
    """The provider of that name: claude, opencode, copilot, acp:NAME or replay:FILE.

    Without settings the user's are read. Raises UnknownProviderError with the nearest name.
    """
    kind, _, detail = name.partition(":")
    if kind not in _BACKENDS or (detail and kind not in _NEEDS):
        raise UnknownProviderError(name, PROVIDERS)
    if kind in _NEEDS and not detail:
        raise ProviderError(f'"{name}" is not enough to go on', provider=name, remedy=_NEEDS[kind])
    module, class_name = _BACKENDS[kind]
    backend = getattr(import_module(module), class_name)
    arguments: Sequence[object] = (detail,) if detail else ()
    return cast("AgentProvider", backend(*arguments, settings or load_settings()))
