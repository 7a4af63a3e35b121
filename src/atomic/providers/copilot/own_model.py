"""Read the user's own model endpoint from the environment.

Copilot itself reads these variables only on its own command line, so they are sent with
each session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from atomic.providers.errors import ProviderError

_PREFIX = "COPILOT_PROVIDER_"
_TEXTS = {
    "API_KEY": "apiKey",
    "API_KEY_COMMAND": "apiKeyCommand",
    "BEARER_TOKEN": "bearerToken",
    "WIRE_API": "wireApi",
    "TRANSPORT": "transport",
    "MODEL_ID": "modelId",
    "WIRE_MODEL": "wireModel",
}
_NUMBERS = {"MAX_PROMPT_TOKENS": "maxPromptTokens", "MAX_OUTPUT_TOKENS": "maxOutputTokens"}


def own_endpoint(env: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the user's endpoint; None if models come from GitHub. Raise ProviderError."""
    url = env.get(f"{_PREFIX}BASE_URL")
    if not url:
        return None
    config: dict[str, Any] = {"type": env.get(f"{_PREFIX}TYPE") or "openai", "baseUrl": url}
    config |= {key: env[_PREFIX + name] for name, key in _TEXTS.items() if env.get(_PREFIX + name)}
    config |= {key: _number(env, _PREFIX + name) for name, key in _NUMBERS.items() if env.get(_PREFIX + name)}
    if version := env.get(f"{_PREFIX}AZURE_API_VERSION"):
        config["azure"] = {"apiVersion": version}
    if headers := env.get(f"{_PREFIX}HEADERS"):
        config["headers"] = _headers(headers)
    return config


def own_model(env: Mapping[str, str]) -> str | None:
    """Return the user's model."""
    return env.get("COPILOT_MODEL") or env.get(f"{_PREFIX}MODEL_ID") or None


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise ProviderError(f"{name} is not a number: '{env[name]}'", provider="copilot", remedy="correct it") from None


def _headers(text: str) -> dict[str, str]:
    """Parse `Name: Value` lines; `

    n` may separate them too.
    """
    pairs = (line.partition(":") for line in text.replace("\\n", "\n").splitlines() if line.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}
