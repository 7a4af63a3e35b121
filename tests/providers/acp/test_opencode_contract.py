"""Test the contract of all providers with the real OpenCode over ACP.

Each session starts its own program, which is slow: most cases run only in the full suite.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.testing.conformance import AGENTS, Case, House
from tests.providers.conformance.interruptions import interrupt_turns
from tests.providers.conformance.suite import open_house, params_for

pytestmark = pytest.mark.ci

AGENT = "acp:opencode"
QUICK = (
    "tools_write_edit_and_run",
    "a_custom_tool_returns",
    "interrupt_in_the_text",
    "a_session_is_taken_up_again",
    "the_cost_is_told",
    "killed_during_a_tool",
    "an_answer_of_8_mb",
    "names_in_every_script",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    folder: Path = tmp_path_factory.mktemp("acp-opencode")
    async with open_house(AGENT, folder) as house:
        yield house


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", params_for(AGENT, QUICK))
async def test_it_keeps_the_contract(house: House, case: Case) -> None:
    await house.play(case)


@pytest.mark.full
async def test_turns_with_random_interruptions_end_once(tmp_path: Path) -> None:
    report = await interrupt_turns(AGENTS[AGENT], turns=20, seed=20261116, folder=tmp_path)
    print(report)
    assert not report.wrong
    assert report.p99 <= 2.5  # 2 s on a quiet machine
    assert not {what: count for what, count in report.left.items() if count > 0}
