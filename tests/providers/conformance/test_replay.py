"""Test the contract of all providers with recordings.

Each case is recorded with the real Claude Code, then replayed.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import pytest_asyncio

from atomic.providers.replay import ReplayProvider
from atomic.testing.conformance import Case, House, cases_for
from tests.providers.conformance.suite import open_house

# These cases need a running program or call a Python function; a replay does neither.
LIVE = {
    "a_custom_tool_returns",
    "interrupt_in_a_tool",
    "killed_before_a_tool",
    "killed_during_a_tool",
    "killed_after_a_tool",
    "the_provider_is_well",
}
QUICK = {
    "text_streams",
    "tools_write_edit_and_run",
    "three_subagents_at_once",
    "two_questions_at_once",
    "an_answer_of_a_type",
    "a_limit_with_a_reset_time",
    "names_in_every_script",
}


def params() -> list[object]:
    """Return the cases that a recording can show; most run only in the full suite."""
    cases = [case for case in cases_for(ReplayProvider("").capabilities) if case.name not in LIVE]
    assert {case.name for case in cases} >= QUICK
    return [pytest.param(case, id=case.name, marks=() if case.name in QUICK else (pytest.mark.full,)) for case in cases]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[House]:
    folder: Path = tmp_path_factory.mktemp("replay")
    async with open_house("claude", folder) as house:
        yield house


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("case", params())
async def test_it_keeps_the_contract(house: House, case: Case, tmp_path: Path) -> None:
    file = tmp_path / "recording.jsonl"
    await house.play(case, record=file)
    calls = len(house.server.calls)
    await house.play(case, provider=ReplayProvider(file, speed=math.inf))
    assert len(house.server.calls) == calls, "a replay called the model"
