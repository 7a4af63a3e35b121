"""Run the conformance suite on an agent.

Each agent has its own test module, and so its own home folder and model server.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atomic.providers import require_provider
from atomic.testing.conformance import AGENTS, CASES, Case, House, cases_for
from tests.support.programs import CACHE, path_with_more_programs


def params_for(agent: str, quick: Collection[str] | None = None, slow: Collection[str] = ()) -> list[object]:
    """Return the cases for an agent.

    Only the full suite runs long cases, `slow` cases and, if `quick` is given, all others.
    """
    cases = cases_for(require_provider(agent).capabilities)
    unknown = {*(quick or ()), *slow} - {case.name for case in cases}
    assert not unknown, f"unknown cases: {unknown}"

    def marks(case: Case) -> tuple[pytest.MarkDecorator, ...]:
        is_full = case.long or case.name in slow or (quick is not None and case.name not in quick)
        return (pytest.mark.full,) if is_full else ()

    return [pytest.param(case, id=case.name, marks=marks(case)) for case in cases]


@asynccontextmanager
async def open_house(agent: str, folder: Path) -> AsyncGenerator[House]:
    """Open the house of an agent; check at the end that it sent nothing but model calls."""
    house = House(AGENTS[agent], folder, CACHE, CASES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", path_with_more_programs())
        async with house.opened():
            yield house
    # Claude Code may look whether the address answers at all.
    other = [request for request in house.server.other if (request.method, request.path) != ("HEAD", "/")]
    assert not other, f"the agent sent other requests than model calls: {other}"
    shutil.rmtree(folder, ignore_errors=True)
