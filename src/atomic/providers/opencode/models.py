"""List the models that OpenCode offers, as `provider/model`."""

from __future__ import annotations

from atomic.base.errors import suggest
from atomic.providers.base import ModelInfo
from atomic.providers.errors import ProviderError
from atomic.providers.opencode.api import Api
from atomic.providers.opencode.configuration import split_model


async def list_models(api: Api, folder: str) -> list[ModelInfo]:
    return [
        ModelInfo(f"{provider.id}/{id}", model.name, int(model.limit.context))
        for provider in await api.providers(folder)
        for id, model in provider.models.items()
    ]


async def require_model(api: Api, folder: str, id: str) -> None:
    """Raise ProviderError with the nearest name if the model does not exist."""
    split_model(id)
    known = [model.id for model in await list_models(api, folder)]
    if id not in known:
        remedy = suggest(id, known, otherwise="see: atomic models")
        raise ProviderError(f'OpenCode has no model "{id}"', provider="opencode", remedy=remedy)
