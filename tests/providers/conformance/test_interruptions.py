"""Test that an interrupted turn ends once and leaves no resources."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.testing.conformance import AGENTS
from tests.providers.conformance.interruptions import interrupt_turns

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("agent", ["claude", "opencode", "copilot"])
async def test_turns_with_random_interruptions_end_once(agent: str, tmp_path: Path) -> None:
    report = await interrupt_turns(AGENTS[agent], turns=20, seed=20261116, folder=tmp_path)
    print(report)
    assert not report.wrong
    assert report.p99 <= 2.5  # 2 s on a quiet machine
    assert not {what: count for what, count in report.left.items() if count > 0}
