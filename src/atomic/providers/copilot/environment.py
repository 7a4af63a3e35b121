"""The environment of Copilot's program, and what it says: login, endpoint and model.

Copilot itself reads the variables of the user's own endpoint only on its own command
line, so they are sent with each session.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from atomic.config import Settings
from atomic.providers.environment import base_environment, child_environment
from atomic.providers.errors import ProviderError

_OWN = ("COPILOT_", "GH_", "GITHUB_")
# It makes Copilot trust its working folder; all tools are allowed in any case.
_NOT_PASSED = ("COPILOT_ALLOW_ALL",)
LOGIN = "run 'copilot login', set GH_TOKEN, or set COPILOT_PROVIDER_BASE_URL and COPILOT_MODEL for a model of your own"

_REFUSALS = ("No GitHub OAuth token", "Not authenticated")
_TOKENS = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL")
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


def environment(settings: Settings, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment of Copilot's program."""
    own = settings.provider("copilot").env
    env = child_environment(
        _OWN, passed=settings.env.pass_, extra={**own, **(extra or {})}, base=base_environment(settings)
    )
    return {name: value for name, value in env.items() if name not in _NOT_PASSED}


def is_about_login(message: str) -> bool:
    """Return whether an error of Copilot is about a missing or rejected login."""
    return any(refusal in message for refusal in _REFUSALS)


def copilot_home(env: Mapping[str, str]) -> Path:
    """Return the folder of the user's Copilot settings."""
    return Path(env.get("COPILOT_HOME") or Path(env.get("HOME") or Path.home(), ".copilot"))


def has_login(env: Mapping[str, str]) -> bool:
    """Return whether a login exists; only GitHub could check that it is valid."""
    if any(env.get(name) for name in _TOKENS) or _is_logged_in(copilot_home(env)):
        return True
    # Copilot also uses a login of the GitHub CLI.
    config = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or Path.home(), ".config"))
    return Path(env.get("GH_CONFIG_DIR") or config / "gh", "hosts.yml").is_file()


class _Config(msgspec.Struct, frozen=True, rename="camel"):
    logged_in_users: list[object] | None = None
    last_logged_in_user: object = None


def _is_logged_in(home: Path) -> bool:
    """Return whether Copilot's file names a user. The token may be in a keychain."""
    try:
        lines = (home / "config.json").read_text().splitlines()
        plain = "\n".join(line for line in lines if not line.lstrip().startswith("//"))
        config = msgspec.json.decode(plain, type=_Config)
    except (OSError, ValueError):  # missing or unreadable
        return False
    return bool(config.logged_in_users or config.last_logged_in_user)


def own_endpoint(env: Mapping[str, str]) -> dict[str, Any] | None:
    """Return the user's endpoint; None if models come from GitHub.

    Raise ProviderError.
    """
    url = env.get(f"{_PREFIX}BASE_URL")
    if not url:
        return None
    config: dict[str, Any] = {"type": env.get(f"{_PREFIX}TYPE") or "openai", "baseUrl": url}
    config |= {key: env[_PREFIX + name] for name, key in _TEXTS.items() if env.get(_PREFIX + name)}
    for name, key in _NUMBERS.items():
        if number := env.get(_PREFIX + name):
            try:
                config[key] = int(number)
            except ValueError:
                problem = f"{_PREFIX}{name} is not a number: '{number}'"
                raise ProviderError(problem, provider="copilot", remedy="correct it") from None
    if version := env.get(f"{_PREFIX}AZURE_API_VERSION"):
        config["azure"] = {"apiVersion": version}
    if headers := env.get(f"{_PREFIX}HEADERS"):
        # `Name: Value` lines; a backslash and an n may separate them too.
        pairs = [line.partition(":") for line in headers.replace("\\n", "\n").splitlines() if line.strip()]
        config["headers"] = {name.strip(): value.strip() for name, _, value in pairs}
    return config


def own_model(env: Mapping[str, str]) -> str | None:
    """Return the user's model."""
    return env.get("COPILOT_MODEL") or env.get(f"{_PREFIX}MODEL_ID") or None
