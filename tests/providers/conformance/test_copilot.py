"""Test the contract of all providers with the real Copilot."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.testing.conformance import Case, House
from tests.providers.conformance.suite import open_house, params_for

pytestmark = pytest.mark.ci

AGENT = "copilot"
# Copilot retries these calls.
SLOW = {
    "an_internal_error",
    "a_limit_without_a_reset_time",
    "an_overload",
    "half_a_character_and_no_more",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    folder: Path = tmp_path_factory.mktemp(AGENT)
    async with open_house(AGENT, folder) as house:
        yield house


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", params_for(AGENT, slow=SLOW))
async def test_it_keeps_the_contract(house: House, case: Case) -> None:
    await house.play(case)
