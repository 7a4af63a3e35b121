"""Test the contract of all providers with the real OpenCode."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.testing.conformance import Case, House
from tests.providers.conformance.suite import open_house, params_for

pytestmark = pytest.mark.ci

AGENT = "opencode"
QUICK = {
    "text_streams",
    "thinking_streams",
    "tools_write_edit_and_run",
    "only_the_named_tools_are_available",
    "a_custom_tool_returns",
    "three_subagents_at_once",
    "two_questions_at_once",
    "interrupt_in_a_tool",
    "interrupt_in_a_subagent",
    "a_session_is_taken_up_again",
    "an_answer_of_a_type",
    "the_context_meter_moves",
    "a_limit_with_a_reset_time",
    "killed_during_a_tool",
    "an_answer_of_8_mb",
    "eight_sessions_at_once",
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    folder: Path = tmp_path_factory.mktemp(AGENT)
    async with open_house(AGENT, folder) as house:
        yield house


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", params_for(AGENT, QUICK))
async def test_it_keeps_the_contract(house: House, case: Case) -> None:
    await house.play(case)
