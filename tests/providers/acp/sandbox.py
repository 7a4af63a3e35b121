"""Run agents over ACP with their own home folder and work folder."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from atomic.config import AcpSettings, Settings
from atomic.providers import AgentEvent, AgentSession, SessionOptions, require_provider
from atomic.testing.model_server import ModelServer, Script, copilot_env, opencode_env
from tests.providers.sandbox import Sandbox
from tests.providers.turns import turn
from tests.support.fake_acp import PROGRAM, steps
from tests.support.programs import CACHE


@asynccontextmanager
async def sandbox(agent: str, folder: Path, scripts: Mapping[str, Script]) -> AsyncGenerator[Sandbox]:
    async with ModelServer(scripts) as server:
        if agent == "acp:copilot":
            yield Sandbox(agent, server, folder, partial(copilot_env, server, cache=CACHE / "copilot"))
        else:
            yield Sandbox(agent, server, folder, partial(opencode_env, server))


def puppet_settings(*flags: str, **more: Any) -> Settings:
    return Settings(acp={"puppet": AcpSettings([sys.executable, PROGRAM, *flags])}, **more)


def open_puppet(folder: Path, *flags: str, **options: Any) -> AbstractAsyncContextManager[AgentSession]:
    provider = require_provider("acp:puppet", puppet_settings(*flags))
    return provider.open(SessionOptions(cwd=folder, **options))


async def run_steps(session: AgentSession, *given: Mapping[str, Any]) -> list[AgentEvent]:
    """Run a turn with these steps of the fake agent."""
    return await turn(session, steps(*given))
