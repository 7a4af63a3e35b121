"""Find a login: at GitHub, a token, or an endpoint of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

LOGIN = "run 'copilot login', set GH_TOKEN, or set COPILOT_PROVIDER_BASE_URL and COPILOT_MODEL for a model of your own"

_REFUSALS = ("No GitHub OAuth token", "Not authenticated")
_TOKENS = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL")


def is_about_login(message: str) -> bool:
    """Return whether an error of Copilot is about a missing or rejected login."""
    return any(refusal in message for refusal in _REFUSALS)


def copilot_home(env: Mapping[str, str]) -> Path:
    """Return the folder of the user's Copilot settings."""
    return Path(env.get("COPILOT_HOME") or Path(env.get("HOME") or Path.home(), ".copilot"))


def has_login(env: Mapping[str, str]) -> bool:
    """Return whether a login exists; only GitHub could check that it is valid."""
    return any(env.get(name) for name in _TOKENS) or _is_logged_in(copilot_home(env)) or _has_gh(env)


class _Config(msgspec.Struct, frozen=True, rename="camel"):
    logged_in_users: list[object] | None = None
    last_logged_in_user: object = None


def _is_logged_in(home: Path) -> bool:
    """Return whether Copilot's file names a user. The token may be in a keychain."""
    try:
        config = msgspec.json.decode(_without_comments((home / "config.json").read_text()), type=_Config)
    except (OSError, ValueError):  # missing or unreadable
        return False
    return bool(config.logged_in_users or config.last_logged_in_user)


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))


def _has_gh(env: Mapping[str, str]) -> bool:
    """Return whether the GitHub CLI has a login, which Copilot also uses."""
    folder = env.get("GH_CONFIG_DIR") or Path(
        env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or Path.home(), ".config"), "gh"
    )
    return Path(folder, "hosts.yml").is_file()
