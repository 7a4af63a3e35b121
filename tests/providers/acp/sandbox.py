"""Run the puppet, an ACP agent that does what its prompt says."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from atomic.config import AcpSettings, Settings
from atomic.providers import AgentEvent, AgentSession, SessionOptions, require_provider
from tests.providers.turns import turn
from tests.support.fake_acp import PROGRAM, steps


def puppet_settings(*flags: str, **more: Any) -> Settings:
    return Settings(acp={"puppet": AcpSettings([sys.executable, PROGRAM, *flags])}, **more)


def open_puppet(folder: Path, *flags: str, **options: Any) -> AbstractAsyncContextManager[AgentSession]:
    provider = require_provider("acp:puppet", puppet_settings(*flags))
    return provider.open(SessionOptions(cwd=folder, **options))


async def run_steps(session: AgentSession, *given: Mapping[str, Any]) -> list[AgentEvent]:
    """Run a turn with these steps of the fake agent."""
    return await turn(session, steps(*given))
