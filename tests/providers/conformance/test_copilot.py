"""The contract of all providers, on the real Copilot."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.testing.conformance import Case, House
from tests.providers.conformance.playing import house_of, params

pytestmark = pytest.mark.ci

AGENT = "copilot"
SLOW = {
    "an_internal_error",
    "a_limit_without_a_reset_time",
    "an_overload",
    "half_a_character_and_no_more",
}  # it tries again


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    folder: Path = tmp_path_factory.mktemp(AGENT)
    async with house_of(AGENT, folder) as house:
        yield house


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", params(AGENT, slow=SLOW))
async def test_it_keeps_the_contract(house: House, case: Case) -> None:
    await house.play(case)
