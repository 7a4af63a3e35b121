"""List the available models."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atomic.config import Settings
from atomic.providers.base import ModelInfo
from atomic.providers.copilot.denials import without_denials
from atomic.providers.copilot.environment import environment, has_login, is_about_login, own_endpoint, own_model
from atomic.providers.copilot.server import CommandLine, shared_server
from atomic.providers.errors import ProviderError


class _Limits(msgspec.Struct, frozen=True):
    max_context_window_tokens: float | None = None
    max_prompt_tokens: float | None = None


class _Can(msgspec.Struct, frozen=True):
    limits: _Limits = _Limits()


class _Model(msgspec.Struct, frozen=True):
    id: str
    name: str = ""
    capabilities: _Can = _Can()

    @property
    def context(self) -> int:
        limits = self.capabilities.limits
        return int(limits.max_context_window_tokens or limits.max_prompt_tokens or 0)


class _Answer(msgspec.Struct, frozen=True):
    models: list[_Model]


async def list_models(program: Path, settings: Settings) -> list[ModelInfo]:
    """Return GitHub's models with a login, else, or with an own endpoint, the
    configured ones.

    Raise ProviderError.
    """
    env = environment(settings)
    endpoint = own_endpoint(env)
    names = dict.fromkeys((own_model(env), settings.model))
    own = [ModelInfo(name, name, (endpoint or {}).get("maxPromptTokens", 0)) for name in names if name]
    if endpoint is not None or not has_login(env):
        return own
    args, _ = without_denials(settings.provider("copilot").args)
    line = CommandLine(str(program), tuple(args), tuple(sorted(env.items())))
    async with shared_server(line).use() as server:
        try:
            answer = await server.fetch("models.list", {}, _Answer)
        except ProviderError as error:
            if not is_about_login(str(error)):
                raise
            return own
    return [ModelInfo(model.id, model.name or model.id, model.context) for model in answer.models]
