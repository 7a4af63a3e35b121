"""Who pays for the model: a login at GitHub, a token, or an endpoint of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

LOGIN = "run 'copilot login', set GH_TOKEN, or set COPILOT_PROVIDER_BASE_URL and COPILOT_MODEL for a model of your own"

_REFUSALS = ("No GitHub OAuth token", "Not authenticated")
_TOKENS = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_PROVIDER_BASE_URL")


def is_about_login(words: str) -> bool:
    """Whether an error of Copilot's says that what there is to log in with was not accepted, or not even there."""
    return any(refusal in words for refusal in _REFUSALS)


def copilot_home(env: Mapping[str, str]) -> Path:
    """Where Copilot keeps the user's own settings."""
    return Path(env.get("COPILOT_HOME") or Path(env.get("HOME") or Path.home(), ".copilot"))


def has_login(env: Mapping[str, str]) -> bool:
    """Whether there is something to log in with; whether it is still good only GitHub could say."""
    return any(env.get(name) for name in _TOKENS) or _is_logged_in(copilot_home(env)) or _has_gh(env)


class _Config(msgspec.Struct, frozen=True, rename="camel"):
    logged_in_users: list[object] | None = None
    last_logged_in_user: object = None


def _is_logged_in(home: Path) -> bool:
    """Copilot writes down who is logged in; the token itself may be in the system's keychain."""
    try:
        config = msgspec.json.decode(_without_comments((home / "config.json").read_text()), type=_Config)
    except (OSError, ValueError):  # there is none, or it cannot be read
        return False
    return bool(config.logged_in_users or config.last_logged_in_user)


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("//"))


def _has_gh(env: Mapping[str, str]) -> bool:
    """Copilot also uses the login of GitHub's own command line."""
    folder = env.get("GH_CONFIG_DIR") or Path(
        env.get("XDG_CONFIG_HOME") or Path(env.get("HOME") or Path.home(), ".config"), "gh"
    )
    return Path(folder, "hosts.yml").is_file()
