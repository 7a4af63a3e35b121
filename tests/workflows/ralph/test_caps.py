"""Caps and limits hold in Ralph too, whoever of its roles spends; nothing is lost and nothing is paid twice."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.workflows.ralph.theatre import GOAL, Outcome, Theatre

COST = 0.4  # dollars of each call


def call(role: str, text: str, task: str | None = None, **end: Any) -> dict[str, Any]:
    """A turn that takes a moment and costs its price; the tasks here need no change of files."""
    usage = {"input": 1000, "output": 100, "cached": 0, "cost": end.pop("cost", COST)}
    ended = {"type": "turn_ended", "reason": end.pop("reason", "done"), "text": text, "usage": usage}
    return {"role": role, "task": task, "prompt": text, "events": [*end.pop("events", ()), (0.2, ended)]}


def script(tasks: int, *more: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    plan = [{"id": str(number), "title": f"Look at {number}", "no_change": True} for number in range(1, tasks + 1)]
    workers = [call("worker", f"looked at {number}", str(number)) for number in range(1, tasks + 1)]
    approve = json.dumps({"verdict": "approve", "findings": [], "summary": "ok"})
    return [*more, call("planner", json.dumps({"tasks": plan})), *workers, call("reviewer", approve)]


class Till(Theatre):
    """A theatre whose agents have a price: they play a recording."""

    def __init__(self, folder: Path, *calls: Mapping[str, Any]) -> None:
        super().__init__(folder)
        self.recording = folder / "agents.jsonl"
        self.record(*calls)

    def record(self, *calls: Mapping[str, Any]) -> None:
        lines: list[Mapping[str, Any]] = [{"atomic_recording": 1, "command": []}, *calls]
        self.recording.write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def run(self, *words: str) -> Outcome:
        return await self.ralph("--agent", f"replay:{self.recording}", *words, GOAL)

    @property
    def calls(self) -> list[tuple[str, str | None]]:
        lines = (self.session / "logs" / "agent-calls.jsonl").read_text().splitlines()
        return [(line["role"], line["task"]) for line in map(json.loads, lines)]


async def test_a_cap_pauses_and_a_higher_one_lets_it_go_on(tmp_path: Path) -> None:
    till = Till(tmp_path, *script(3))
    outcome = await till.run("--max-cost", "1")
    assert outcome.status == ("paused", "max_cost", 6)
    assert "--max-cost" in outcome.end["message"]
    done = till.calls
    assert ("reviewer", None) not in done
    assert len(done) <= 3
    assert "max_cost" in till.report
    assert (await till.resume("--max-cost", "9")).status == ("completed", "done", 0)
    assert sorted(map(str, till.calls)) == sorted(
        map(str, [("planner", None), ("reviewer", None), *(("worker", str(number)) for number in (1, 2, 3))])
    )


async def test_a_cap_in_a_fan_out_of_six_stops_new_turns_and_loses_nothing(tmp_path: Path) -> None:
    till = Till(tmp_path, *script(12))
    outcome = await till.run("--max-cost", "2", "--workers", "6")
    assert outcome.status == ("paused", "max_cost", 6)
    assert len(till.calls) * COST <= 2 + 6 * COST  # one turn for each live worker at most
    finished = [task for task, status in till.statuses.items() if status == "completed"]
    assert sorted(finished) == sorted(task for role, task in till.calls if role == "worker" and task)
    assert (await till.resume("--max-cost", "50")).status == ("completed", "done", 0)
    assert len(till.calls) == len(set(till.calls)) == 14


@pytest.mark.parametrize("on_limit", ["wait", "stop"])
async def test_a_limit_is_no_attempt(tmp_path: Path, on_limit: str) -> None:
    reset = time.time() + 12
    at = datetime.fromtimestamp(reset, UTC).isoformat()
    limit = (0.0, {"type": "limit_reached", "reset_at": at, "message": "later"})
    limited = call("worker", "limited", "1", events=[limit], reason="limit", cost=0.0)
    till = Till(tmp_path, *script(2, {**limited, "match": "Look at 1"}))
    outcome = await till.run("--on-limit", on_limit)
    if on_limit == "stop":
        assert outcome.status == ("paused", "provider_limit", 7)
        till.record(*script(2))
        assert (await till.resume()).status == ("paused", "provider_limit", 7)  # it is too early
        outcome = await till.resume("--on-limit", "wait")
    assert time.time() >= reset
    assert outcome.status == ("completed", "done", 0)
    assert till.evidence("1")["attempt"] == 1
