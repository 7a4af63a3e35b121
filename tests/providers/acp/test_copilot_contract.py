"""Test the contract of all providers with the real Copilot over ACP.

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

AGENT = "acp:copilot"
QUICK = (
    "text_streams",
    "tools_write_edit_and_run",
    "two_tools_at_once_have_their_own_ids",
    "only_the_named_tools_are_available",
    "a_custom_tool_returns",
    "a_custom_tool_raises",
    "an_mcp_server_brings_tools",
    "interrupt_before_the_first_byte",
    "interrupt_in_a_tool",
    "closing_the_iterator_interrupts",
    "a_session_is_taken_up_again",
    "an_unknown_id_is_told",
    "models_are_listed_and_switched",
    "usage_of_all_calls_adds_up",
    "the_context_meter_moves",
    "a_session_is_compacted",
    "an_answer_of_a_type",
    "a_limit_with_a_reset_time",
    "killed_during_a_tool",
    "a_program_that_does_not_listen",
    "an_answer_of_8_mb",
    "a_prompt_of_1_mb",
    "names_in_every_script",
    "the_provider_is_well",
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    folder: Path = tmp_path_factory.mktemp("acp-copilot")
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
