"""Agents that use a model server: a home folder, an environment and a provider for each."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from atomic.base.errors import did_you_mean
from atomic.config import EnvSettings, Settings
from atomic.providers import AgentProvider, require_provider
from atomic.providers.selection import require_program
from atomic.testing.model_server.environments import claude_env, codex_env, copilot_env, gemini_env, opencode_env
from atomic.testing.model_server.script import ModelServerError
from atomic.testing.model_server.server import ModelServer

_Environment = Callable[[ModelServer, Path], Mapping[str, str]]


def _copilot(server: ModelServer, home: Path) -> Mapping[str, str]:
    """Return Copilot's environment. It unpacks itself where the user's Copilot does, as
    that takes long.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return copilot_env(server, home, cache=Path(os.environ.get("COPILOT_CACHE_HOME") or Path(caches, "copilot")))


def _opencode(server: ModelServer, home: Path) -> Mapping[str, str]:
    """Return OpenCode's environment. A lock file keeps it from installing a package for
    plugins, which would fail slowly.
    """
    folder = home / ".config" / "opencode"
    (folder / "node_modules").mkdir(parents=True)
    (folder / "package-lock.json").write_bytes(msgspec.json.encode(_OPENCODE_LOCK))
    return opencode_env(server, home)


_OPENCODE_LOCK = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}}
_ENVIRONMENTS: Mapping[str, _Environment] = {
    "claude": claude_env,
    "opencode": _opencode,
    "copilot": _copilot,
    "codex": codex_env,
    "gemini": gemini_env,
}


def connected_provider(server: ModelServer, agent: str, home: Path) -> AgentProvider:
    """Return the provider of an agent that uses the server and an empty home folder.

    Raise ModelServerError for an unknown agent, ProgramMissingError.
    """
    if agent not in _ENVIRONMENTS:
        hint = did_you_mean(agent, _ENVIRONMENTS)
        raise ModelServerError(f'No scripted model for "{agent}"{hint}; there is one for {", ".join(_ENVIRONMENTS)}')
    env = _ENVIRONMENTS[agent](server, home)
    provider = require_provider(agent, Settings(env=EnvSettings(base=env)))
    require_program(provider)
    return provider
