"""However a turn is interrupted, it ends once and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.testing.conformance import AGENTS
from tests.providers.conformance.interruptions import interruptions

pytestmark = pytest.mark.ci


@pytest.mark.parametrize("agent", ["claude", "opencode", "copilot"])
async def test_turns_with_random_interruptions_end_once(agent: str, tmp_path: Path) -> None:
    report = await interruptions(AGENTS[agent], turns=20, seed=20261116, folder=tmp_path)
    print(report)
    assert not report.wrong
    assert report.p99 <= 2.5  # 2 s on a quiet machine
    assert not {what: count for what, count in report.left.items() if count > 0}
