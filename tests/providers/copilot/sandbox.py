"""Run Copilot with a home folder of its own, a work folder and a scripted model."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from atomic.config import ProviderSettings, Settings
from atomic.testing.model_server import Call, ModelServer, Protocol, Script, copilot_env
from tests.providers.sandbox import Sandbox as AgentSandbox
from tests.support.programs import CACHE, FOLDER

PROGRAM = FOLDER / "copilot"


def settings(program: Path = PROGRAM, *, args: Sequence[str] = (), env: Mapping[str, str] | None = None) -> Settings:
    return Settings(providers={"copilot": ProviderSettings(path=str(program), args=args, env=env or {})})


class Sandbox(AgentSandbox):
    def __init__(self, server: ModelServer, folder: Path, protocol: Protocol) -> None:
        variables = partial(copilot_env, server, protocol=protocol, cache=CACHE / "copilot")
        super().__init__("copilot", server, folder, variables)
        self.copilot_home = self.home / ".copilot"
        self.copilot_home.mkdir(exist_ok=True)

    def settings(self) -> Settings:
        return settings()

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
