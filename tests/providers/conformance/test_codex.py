"""Test the contract of all providers with the real Codex."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.testing.conformance import Case, House
from tests.providers.conformance.suite import open_house, params_for

pytestmark = pytest.mark.full

AGENT = "codex"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    folder: Path = tmp_path_factory.mktemp(AGENT)
    async with open_house(AGENT, folder) as house:
        yield house


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", params_for(AGENT))
async def test_it_keeps_the_contract(house: House, case: Case) -> None:
    await house.play(case)
