"""Run Copilot with a home folder of its own, a work folder and a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from atomic.config import ProviderSettings, Settings
from atomic.providers import AgentSession, SessionOptions, require_provider
from atomic.testing.model_server import Call, ModelServer, Protocol, Script, copilot_env

PROJECT = Path(__file__).parents[3]
PROGRAM = PROJECT / ".programs" / "bin" / "copilot"
CACHE = PROJECT / ".programs" / "cache" / "copilot"


def settings(program: Path = PROGRAM, *, args: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Settings:
    return Settings(providers={"copilot": ProviderSettings(path=str(program), args=args, env=env or {})})


class Sandbox:
    """A home folder, a work folder and a scripted model."""

    def __init__(self, server: ModelServer, folder: Path, protocol: Protocol) -> None:
        self.server = server
        self.home = folder / "home"
        self.work = folder / "wörk 日本 مرحبا"
        self.env = copilot_env(server, self.home, protocol=protocol, cache=CACHE)
        self.copilot_home = self.home / ".copilot"
        self.copilot_home.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(exist_ok=True)

    def open(self, *, using: Settings | None = None, **options: Any) -> AbstractAsyncContextManager[AgentSession]:
        options = {"cwd": self.work, **options, "env": {**self.env, **options.get("env", {})}}
        return require_provider("copilot", using or settings()).open(SessionOptions(**options))

    def write_user_settings(self, **values: Any) -> None:
        (self.copilot_home / "settings.json").write_text(json.dumps(values))


@asynccontextmanager
async def sandbox(
    folder: Path, scripts: Mapping[str, Script], *, protocol: Protocol = Protocol.OPENAI_CHAT
) -> AsyncGenerator[Sandbox]:
    async with ModelServer(scripts) as server:
        yield Sandbox(server, folder, protocol)
    assert not server.other


@asynccontextmanager
async def shared_sandbox(folder: Path, scripts: Mapping[str, Script]) -> AsyncGenerator[Sandbox]:
    """Keep the program running for many tests, because starting it is slow."""
    async with sandbox(folder, scripts) as here, here.open():
        yield here


def bash(command: str, **more: Any) -> Call:
    return Call("bash", {"command": command, "description": "x", **more})


def task(script: str, *, agent: str = "general-purpose", mode: str = "sync") -> Call:
    """Return a call that starts a sub-agent with its own script."""
    given = {"name": script, "description": script, "prompt": f"@@{script}@@ go", "agent_type": agent, "mode": mode}
    return Call("task", given)
