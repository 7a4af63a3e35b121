"""Run Claude Code with a home folder of its own, a work folder and a scripted model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from atomic.config import Settings
from atomic.providers import AgentSession, SessionOptions, require_provider
from atomic.testing.model_server import Call, ModelServer, Script, claude_env


class Sandbox:
    """A home folder, a work folder and a scripted model."""

    def __init__(self, server: ModelServer, folder: Path, retries: int) -> None:
        self.server = server
        self.home = folder / "home"
        self.work = folder / "wörk 日本 مرحبا"
        self.env = claude_env(server, self.home, retries=retries)
        self.home.mkdir(exist_ok=True)
        self.work.mkdir(exist_ok=True)

    def open(self, *, settings: Settings | None = None, **options: Any) -> AbstractAsyncContextManager[AgentSession]:
        options = {"cwd": self.work, **options, "env": {**self.env, **options.get("env", {})}}
        return require_provider("claude", settings or Settings()).open(SessionOptions(**options))

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
