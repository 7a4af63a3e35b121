"""The options of a session that an agent offers; the model is one of them."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.base.errors import suggest
from atomic.providers.acp.messages import ConfigOption
from atomic.providers.base import ModelInfo
from atomic.providers.errors import ProviderError, UnsupportedError

MODEL = "model"


def models_of(options: Sequence[ConfigOption]) -> list[ModelInfo]:
    """Return the available models."""
    chosen = _model_option(options)
    return [] if chosen is None else _choices(chosen)


def current_model(options: Sequence[ConfigOption]) -> str:
    """Return the model that is chosen now, or "" where the agent does not report it."""
    option = _model_option(options)
    return option.current_value if option is not None and isinstance(option.current_value, str) else ""


def model_choice(options: Sequence[ConfigOption], model: str, *, provider: str, any_model: bool) -> tuple[str, str]:
    """Return the option and value that select a model.

    Raise ProviderError with the nearest model on offer.
    """
    option = _model_option(options)
    known = [] if option is None else [one.id for one in _choices(option)]
    if model in known or any_model:
        return (MODEL if option is None else option.id), model
    if option is None:
        raise UnsupportedError(f"{provider} does not support choosing the model", provider=provider)
    hint = suggest(model, known, otherwise=f"it has: {', '.join(known[:10])}")
    raise ProviderError(f'{provider} has no model "{model}"', provider=provider, remedy=hint)


def _model_option(options: Sequence[ConfigOption]) -> ConfigOption | None:
    selects = [option for option in options if option.type == "select"]
    return next((one for one in selects if one.category == MODEL or one.id == MODEL), None)


def _choices(option: ConfigOption) -> list[ModelInfo]:
    found: list[ModelInfo] = []
    for entry in option.options:
        found += [ModelInfo(one.value, one.name) for one in (*entry.options, entry) if one.value]
    return found
