"""Find a provider by its name.

Its module, and with it an SDK, is imported on demand.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import cast

from atomic.config import Settings, load_settings
from atomic.config.known_agents import ACP_NAMES, AGENT_NAMES, NATIVE_NAMES
from atomic.providers.base import AgentProvider
from atomic.providers.errors import ProviderError, UnknownProviderError

PROVIDERS = (*AGENT_NAMES, "acp", "replay")
_ADAPTERS = {
    "claude": ("atomic.providers.claude.provider", "ClaudeProvider"),
    "opencode": ("atomic.providers.opencode.provider", "OpencodeProvider"),
    "copilot": ("atomic.providers.copilot.provider", "CopilotProvider"),
    "acp": ("atomic.providers.acp.provider", "AcpProvider"),
    "replay": ("atomic.providers.replay", "ReplayProvider"),
}
_NEEDS = {
    "acp": "name the agent: one of [acp.NAME] in the configuration",
    "replay": "name the recording: replay:FILE",
}
# Their own protocols offer more than ACP. A command of the configuration is used as it is.
_PREFERRED = tuple(name for name in NATIVE_NAMES if name != "claude")


def require_provider(name: str, settings: Settings | None = None) -> AgentProvider:
    """Return the provider of that name: a known agent, acp:NAME or replay:FILE.

    Read the user's settings if none are given. Raise UnknownProviderError with the
    nearest name.
    """
    kind, _, detail = name.partition(":")
    if name in ACP_NAMES:
        kind = "acp"
        detail = name
    if kind not in _ADAPTERS or (detail and kind not in _NEEDS):
        raise UnknownProviderError(name, PROVIDERS)
    if kind in _NEEDS and not detail:
        raise ProviderError(f'"{name}" is incomplete', provider=name, remedy=_NEEDS[kind])
    settings = settings or load_settings()
    if kind == "acp" and detail in _PREFERRED and detail not in settings.acp:
        kind = detail
        detail = ""
    module, class_name = _ADAPTERS[kind]
    adapter = getattr(import_module(module), class_name)
    arguments: Sequence[object] = (detail,) if detail else ()
    return cast("AgentProvider", adapter(*arguments, settings))
