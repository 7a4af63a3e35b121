"""Run Claude Code with a home folder of its own, a work folder and a scripted model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from atomic.testing.model_server import Call, ModelServer, Script, claude_env
from tests.providers.sandbox import Sandbox as AgentSandbox


class Sandbox(AgentSandbox):
    def __init__(self, server: ModelServer, folder: Path, retries: int) -> None:
        super().__init__("claude", server, folder, lambda home: claude_env(server, home, retries=retries))

    def user_settings(self) -> Path:
        path = self.home / ".claude" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        return path


@asynccontextmanager
async def sandbox(folder: Path, scripts: Mapping[str, Script], *, retries: int = 0) -> AsyncGenerator[Sandbox]:
    async with ModelServer(scripts) as server:
        yield Sandbox(server, folder, retries)


def bash(command: str, **more: Any) -> Call:
    return Call("Bash", {"command": command, "description": "x", **more})


def agent(script: str, **more: Any) -> Call:
    """Return a call that starts a sub-agent with its own script."""
    given = {"description": script, "prompt": f"@@{script}@@ go", "subagent_type": "general-purpose", **more}
    return Call(("Agent", "Task"), given)


def sleep_command(seconds: int) -> str:
    """Return a command that sleeps; Claude Code refuses a plain `sleep`."""
    return f"python3 -c 'import time; time.sleep({seconds})'"
