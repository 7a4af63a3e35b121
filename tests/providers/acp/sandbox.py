"""Run agents over ACP with their own home folder and work folder."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from atomic.config import AcpSettings, Settings
from atomic.providers import AgentEvent, AgentSession, SessionOptions, require_provider
from atomic.testing.model_server import ModelServer, Script, copilot_env, opencode_env
from tests.providers.conformance.suite import CACHE
from tests.providers.turns import turn
from tests.support import fake_acp

PUPPET = Path(fake_acp.__file__)


class Sandbox:
    """A home folder, a work folder and a scripted model."""

    def __init__(self, agent: str, server: ModelServer, folder: Path) -> None:
        self.agent = agent
        self.server = server
        self.home = folder / "home"
        self.work = folder / "wörk 日本 مرحبا"
        self.home.mkdir()
        self.work.mkdir()
        if agent == "acp:copilot":
            self.env = copilot_env(server, self.home, cache=CACHE / "copilot")
        else:
            self.env = opencode_env(server, self.home)

    def open(self, **options: Any) -> AbstractAsyncContextManager[AgentSession]:
        options = {"cwd": self.work, **options, "env": {**self.env, **options.get("env", {})}}
        return require_provider(self.agent, Settings()).open(SessionOptions(**options))


@asynccontextmanager
async def sandbox(agent: str, folder: Path, scripts: Mapping[str, Script]) -> AsyncGenerator[Sandbox]:
    async with ModelServer(scripts) as server:
        yield Sandbox(agent, server, folder)


def puppet_settings(*flags: str, **more: Any) -> Settings:
    return Settings(acp={"puppet": AcpSettings([sys.executable, str(PUPPET), *flags])}, **more)


def open_puppet(folder: Path, *flags: str, **options: Any) -> AbstractAsyncContextManager[AgentSession]:
    provider = require_provider("acp:puppet", puppet_settings(*flags))
    return provider.open(SessionOptions(cwd=folder, **options))


async def run_steps(session: AgentSession, *given: Mapping[str, Any]) -> list[AgentEvent]:
    """Run a turn with these steps of the puppet."""
    return await turn(session, json.dumps(given))
