"""The lines that a run prints for its events."""

from __future__ import annotations

import pytest

from atomic.cli.progress import limit_line
from atomic.runs.events import LimitReached


@pytest.mark.parametrize(
    ("kind", "limit", "spent", "line"),
    [
        ("max_cost", 1.0, 1.204, "the cap --max-cost is reached: $1.20 of $1.00"),
        ("max_tokens", 20_000, 21_500, "the cap --max-tokens is reached: 21,500 of 20,000 tokens"),
        ("max_time", 90, 95, "the cap --max-time is reached: 95s of 90s"),
        ("provider", None, None, "the agent's usage limit is reached"),
    ],
)
def test_a_reached_limit_names_its_flag_and_the_numbers(
    kind: str, limit: float | None, spent: float | None, line: str
) -> None:
    event = LimitReached(run="r", seq=1, time=0.0, kind=kind, limit=limit, spent=spent)
    assert limit_line(event) == line
