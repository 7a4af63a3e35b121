"""Environments in which the real agents use only a model server.

Each is the whole environment of a program: a separate home folder, no keys and no
settings of the user.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from atomic.testing.model_server.calls import Protocol
from atomic.testing.model_server.script import MODELS
from atomic.testing.model_server.server import ModelServer

_KEY = "nobody"  # agents need a key; this one is too short to be redacted as a secret

_OPENCODE_PACKAGES = {
    Protocol.ANTHROPIC: "@ai-sdk/anthropic",
    Protocol.OPENAI_CHAT: "@ai-sdk/openai-compatible",
    Protocol.OPENAI_RESPONSES: "@ai-sdk/openai",
}

CODEX_MODELS = ("gpt-5.5", "gpt-6-luna")


def claude_env(server: ModelServer | str, home: Path, *, retries: int = 0) -> dict[str, str]:
    """Return the environment of Claude Code, which retries a failed call `retries`
    times.
    """
    url, _ = _address(server)
    return {
        **_base(home),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": _KEY,
        "CLAUDE_CONFIG_DIR": str(home / ".claude"),
        "CLAUDE_CODE_MAX_RETRIES": str(retries),
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
        # Without it, root may not allow all tools.
        **({"IS_SANDBOX": "1"} if os.geteuid() == 0 else {}),
    }


def opencode_env(server: ModelServer | str, home: Path, *, protocol: Protocol = Protocol.OPENAI_CHAT) -> dict[str, str]:
    """Return the environment of OpenCode; the server is its provider `scripted`."""
    url, models = _address(server)
    provider = {
        "npm": _OPENCODE_PACKAGES[protocol],  # all three are part of the program
        "name": "Scripted",
        "options": {"baseURL": f"{url}/v1", "apiKey": _KEY},
        "models": {name: _OPENCODE_MODEL | {"name": name} for name in models},
    }
    config = {
        "autoupdate": False,
        "share": "disabled",
        "enabled_providers": ["scripted"],
        "model": f"scripted/{models[0]}",
        "small_model": f"scripted/{models[-1]}",
        "permission": {"*": "allow"},
        "provider": {"scripted": provider},
    }
    return {
        **_base(home),
        "XDG_DATA_HOME": str(home / ".local/share"),
        "XDG_CONFIG_HOME": str(home / ".config"),
        "XDG_CACHE_HOME": str(home / ".cache"),
        "XDG_STATE_HOME": str(home / ".local/state"),
        "OPENCODE_CONFIG_CONTENT": msgspec.json.encode(config).decode(),
        "OPENCODE_DISABLE_AUTOUPDATE": "1",
        "OPENCODE_DISABLE_DEFAULT_PLUGINS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_MODELS_FETCH": "1",
        "OPENCODE_DISABLE_SHARE": "1",
        "OPENCODE_ENABLE_QUESTION_TOOL": "1",
        # OpenCode installs a package for plugins into each configuration folder. No
        # registry listens at this address.
        "npm_config_registry": "http://127.0.0.1:9/",
        "npm_config_fetch_retries": "0",
    }


_OPENCODE_MODEL = {
    "limit": {"context": 128_000, "output": 8_000},
    "cost": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
    "tool_call": True,
}


def copilot_env(
    server: ModelServer | str,
    home: Path,
    *,
    protocol: Protocol = Protocol.OPENAI_CHAT,
    cache: Path | None = None,
) -> dict[str, str]:
    """Return the environment of Copilot.

    Copilot unpacks 235 MB at its first start into `cache`, by default in the home
    folder.
    """
    url, models = _address(server)
    is_anthropic = protocol is Protocol.ANTHROPIC
    return {
        **_base(home),
        "COPILOT_HOME": str(home / ".copilot"),
        "COPILOT_CACHE_HOME": str(cache or home / ".cache/copilot"),
        "COPILOT_OFFLINE": "true",
        "COPILOT_AUTO_UPDATE": "false",
        "COPILOT_PROVIDER_TYPE": "anthropic" if is_anthropic else "openai",
        "COPILOT_PROVIDER_WIRE_API": "responses" if protocol is Protocol.OPENAI_RESPONSES else "completions",
        "COPILOT_PROVIDER_BASE_URL": url if is_anthropic else f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": _KEY,
        "COPILOT_MODEL": models[0],
        "COPILOT_PROVIDER_MAX_PROMPT_TOKENS": "1000000",  # its default for an unknown model is less
    }


def codex_env(server: ModelServer | str, home: Path, *, model: str = CODEX_MODELS[0]) -> dict[str, str]:
    """Return the environment of Codex; the server is its model provider `scripted`.

    Codex reads this from a file, which is written to the home folder. It warns in its
    answers about a model that it does not know, so the model has a name that it knows.
    """
    url, _ = _address(server)
    folder = home / ".codex"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(_CODEX_CONFIG.format(url=url, model=model))
    return {
        **_base(home),
        "CODEX_HOME": str(folder),
        "CODEX_API_KEY": _KEY,
        "RUST_LOG": "error",
        "NO_BROWSER": "1",  # do not offer a login that opens a browser
    }


_CODEX_CONFIG = """\
model = "{model}"
model_provider = "scripted"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.scripted]
name = "Scripted"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "CODEX_API_KEY"
request_max_retries = 0
stream_max_retries = 0
"""


def gemini_env(server: ModelServer | str, home: Path) -> dict[str, str]:
    """Return the environment of Gemini CLI.

    Its login and its settings are files, which are written to the home folder.
    """
    url, models = _address(server)
    folder = home / ".gemini"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "settings.json").write_bytes(msgspec.json.encode(_GEMINI_SETTINGS))
    return {
        **_base(home),
        "GEMINI_API_KEY": _KEY,
        "GEMINI_MODEL": models[0],
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_CLI_NO_RELAUNCH": "true",  # it would start itself again with more memory
    }


_GEMINI_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "general": {"maxAttempts": 1, "enableAutoUpdate": False, "enableAutoUpdateNotification": False},
    # It sends no output of a command that runs in a terminal of its own, and takes a long scripted answer for a loop.
    "tools": {"shell": {"enableInteractiveShell": False}},
    "model": {"disableLoopDetection": True},
}


def _address(server: ModelServer | str) -> tuple[str, tuple[str, ...]]:
    """Return the address and the models; a text is a server with the default models."""
    return (server, MODELS) if isinstance(server, str) else (server.url, server.models)


def _base(home: Path) -> dict[str, str]:
    path = os.environ.get("PATH", os.defpath)
    return {"PATH": path, "HOME": str(home), "ATOMIC_HOME": str(home / ".atomic"), "LANG": "C.UTF-8"}
