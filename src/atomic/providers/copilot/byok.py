"""The user's own model: an endpoint, a key and a model that are set in the environment.

Copilot itself reads these variables only on its own command line; a session that the SDK opens must be told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from copilot import ProviderConfig

from atomic.providers.errors import ProviderError

_PREFIX = "COPILOT_PROVIDER_"
_TEXTS = {
    "API_KEY": "api_key",
    "API_KEY_COMMAND": "api_key_command",
    "BEARER_TOKEN": "bearer_token",
    "WIRE_API": "wire_api",
    "TRANSPORT": "transport",
    "MODEL_ID": "model_id",
    "WIRE_MODEL": "wire_model",
}
_NUMBERS = {"MAX_PROMPT_TOKENS": "max_prompt_tokens", "MAX_OUTPUT_TOKENS": "max_output_tokens"}


def own_endpoint(env: Mapping[str, str]) -> ProviderConfig | None:
    """The endpoint that the user set; None: models come from GitHub. Raises ProviderError."""
    url = env.get(f"{_PREFIX}BASE_URL")
    if not url:
        return None
    config: dict[str, object] = {"type": env.get(f"{_PREFIX}TYPE") or "openai", "base_url": url}
    config |= {key: env[_PREFIX + name] for name, key in _TEXTS.items() if env.get(_PREFIX + name)}
    config |= {key: _number(env, _PREFIX + name) for name, key in _NUMBERS.items() if env.get(_PREFIX + name)}
    if version := env.get(f"{_PREFIX}AZURE_API_VERSION"):
        config["azure"] = {"api_version": version}
    if headers := env.get(f"{_PREFIX}HEADERS"):
        config["headers"] = _headers(headers)
    return cast("ProviderConfig", config)


def own_model(env: Mapping[str, str]) -> str | None:
    """The model that the user set."""
    return env.get("COPILOT_MODEL") or env.get(f"{_PREFIX}MODEL_ID") or None


def _number(env: Mapping[str, str], name: str) -> int:
    try:
        return int(env[name])
    except ValueError:
        raise ProviderError(f"{name} is no number: '{env[name]}'", provider="copilot", remedy="correct it") from None


def _headers(text: str) -> dict[str, str]:
    """`Name: Value` on lines of their own; a line may also end with a backslash and an n."""
    pairs = (line.partition(":") for line in text.replace("\\n", "\n").splitlines() if line.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}
