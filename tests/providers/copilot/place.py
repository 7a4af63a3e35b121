"""Where Copilot is tried: a home folder of its own, a work folder, a scripted model; and ways to look at a turn."""

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


class Place:
    """A home folder and a work folder, and a model that says what is scripted."""

    def __init__(self, server: ModelServer, folder: Path, protocol: Protocol) -> None:
        self.server = server
        self.home, self.work = folder / "home", folder / "wörk 日本 مرحبا"
        self.env = copilot_env(server, self.home, protocol=protocol, cache=CACHE)
        self.copilot_home = self.home / ".copilot"
        self.copilot_home.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(exist_ok=True)

    def open(self, *, using: Settings | None = None, **options: Any) -> AbstractAsyncContextManager[AgentSession]:
        options = {"cwd": self.work, **options, "env": {**self.env, **options.get("env", {})}}
        return require_provider("copilot", using or settings()).open(SessionOptions(**options))

    def user_setting(self, **values: Any) -> None:
        (self.copilot_home / "settings.json").write_text(json.dumps(values))


@asynccontextmanager
async def place(
    folder: Path, scripts: Mapping[str, Script], *, protocol: Protocol = Protocol.OPENAI_CHAT
) -> AsyncGenerator[Place]:
    async with ModelServer(scripts) as server:
        yield Place(server, folder, protocol)
    assert not server.other


@asynccontextmanager
async def furnished(folder: Path, scripts: Mapping[str, Script]) -> AsyncGenerator[Place]:
    """A place for many tests: the program stays, because starting it is slow."""
    async with place(folder, scripts) as here, here.open():
        yield here


def bash(command: str, **more: Any) -> Call:
    return Call("bash", {"command": command, "description": "x", **more})


def task(script: str, *, agent: str = "general-purpose", mode: str = "sync") -> Call:
    """Return a sub-agent that plays a script."""
    given = {"name": script, "description": script, "prompt": f"@@{script}@@ go", "agent_type": agent, "mode": mode}
    return Call("task", given)
