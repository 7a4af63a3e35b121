"""How the suite is played on one agent; each agent has a module of its own, so that each has its own house."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atomic.providers import require_provider
from atomic.testing.conformance import AGENTS, CASES, House, cases_for

PROJECT = Path(__file__).parents[3]
CACHE = PROJECT / ".programs" / "cache"


def params(agent: str) -> list[object]:
    """The cases that this agent must pass; the long ones only in the full suite."""
    capabilities = require_provider(agent).capabilities
    marks = {True: [pytest.mark.full], False: []}
    return [pytest.param(case, id=case.name, marks=marks[case.long]) for case in cases_for(capabilities)]


@asynccontextmanager
async def house_of(agent: str, folder: Path) -> AsyncGenerator[House]:
    """The agent's house. When it closes, the model has seen model calls and nothing else."""
    house = House(AGENTS[agent], folder, CACHE, CASES)
    async with house.opened():
        yield house
    assert not house.server.other, f"the agent asked for more than a model: {house.server.other}"
    shutil.rmtree(folder, ignore_errors=True)
