"""The environment of an agent's program: the user's, without secrets of others."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atomic.config import Settings
from atomic.providers.acp.agents import Agent
from atomic.providers.base import SessionOptions
from atomic.providers.environment import child_environment
from atomic.providers.opencode.launch import acp_environment
from atomic.providers.tool_server import ToolServer


def environment(
    agent: Agent, settings: Settings, options: SessionOptions, cwd: Path, tools: ToolServer | None = None
) -> dict[str, str]:
    """Return the program's environment. Raise ProviderError for unreadable settings."""
    given = {**settings.provider("acp").env, **(options.env or {})}
    if agent.is_opencode:
        env = acp_environment(settings, msgspec.structs.replace(options, env=given), cwd, tools)
    else:
        own = settings.provider(agent.known.settings).env
        env = child_environment(agent.known.own, passed=settings.env.pass_, extra={**own, **given})
    # "true" would also trust the folder and run its code; "1" only allows tools.
    if not options.trusted and env.get("COPILOT_ALLOW_ALL") == "true":
        env["COPILOT_ALLOW_ALL"] = "1"
    return {**env, "PWD": str(cwd)}
