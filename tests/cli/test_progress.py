"""The lines that a run prints for its events."""

from __future__ import annotations

import pytest

from atomic.cli.progress import Progress, limit_line
from atomic.runs.events import LimitReached, NodeStarted, TasksChanged
from atomic.tasks import Task


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


def test_steps_that_run_at_once_name_their_task() -> None:
    progress = Progress()
    list(progress.lines(TasksChanged(run="r", seq=1, time=0.0, tasks=[Task("a/b", "One"), Task("2", "Two")])))
    lines: list[str] = []
    for number, node in enumerate(("work[a/b]", "work[2]", "plan"), 2):
        started = NodeStarted(
            run="r", seq=number, time=0.0, node=node, step_id=node, attempt=1, description="work on it"
        )
        lines += progress.lines(started)
    assert lines == ["task a/b: work on it", "task 2: work on it", "work on it"]
    rows = progress.block(80)[:3]
    assert [row.split(" on it")[0] for row in rows] == ["  task a/b: work", "  task 2: work", "  work"]
