"""How the suite is played on one agent; each agent has a module of its own, so that each has its own house."""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atomic.providers import require_provider
from atomic.testing.conformance import AGENTS, CASES, Case, House, cases_for

PROJECT = Path(__file__).parents[3]
CACHE = PROJECT / ".programs" / "cache"


def params(agent: str, quick: Collection[str] | None = None, slow: Collection[str] = ()) -> list[object]:
    """The cases that this agent must pass; in the full suite only: long ones, `slow` ones, those not `quick`."""
    cases = cases_for(require_provider(agent).capabilities)
    unknown = {*(quick or ()), *slow} - {case.name for case in cases}
    assert not unknown, f"there are no such cases: {unknown}"

    def marks(case: Case) -> tuple[pytest.MarkDecorator, ...]:
        is_left = case.long or case.name in slow or (quick is not None and case.name not in quick)
        return (pytest.mark.full,) if is_left else ()

    return [pytest.param(case, id=case.name, marks=marks(case)) for case in cases]


@asynccontextmanager
async def house_of(agent: str, folder: Path) -> AsyncGenerator[House]:
    """The agent's house. When it closes, the model has seen model calls and nothing else."""
    house = House(AGENTS[agent], folder, CACHE, CASES)
    async with house.opened():
        yield house
    assert not house.server.other, f"the agent asked for more than a model: {house.server.other}"
    shutil.rmtree(folder, ignore_errors=True)
