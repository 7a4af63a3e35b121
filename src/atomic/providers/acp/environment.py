"""The environment of an agent's program: the user's, without secrets of others."""

from __future__ import annotations

from pathlib import Path

from atomic.config import Settings
from atomic.providers.acp.agents import Agent
from atomic.providers.base import SessionOptions
from atomic.providers.environment import base_environment, child_environment


def environment(agent: Agent, settings: Settings, options: SessionOptions, cwd: Path) -> dict[str, str]:
    """Return the program's environment."""
    given = {**settings.provider("acp").env, **(options.env or {}), "PWD": str(cwd)}
    env = child_environment(agent.variables, passed=settings.env.pass_, extra=given, base=base_environment(settings))
    env = {**agent.features.defaults, **env}
    # Copilot, as a program of the configuration: "true" would also trust the folder and
    # run its code; "1" only allows tools.
    if not options.trusted and env.get("COPILOT_ALLOW_ALL") == "true":
        env["COPILOT_ALLOW_ALL"] = "1"
    return env
