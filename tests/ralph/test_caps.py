"""Caps and limits hold for all roles of Ralph; nothing is lost and nothing is paid twice."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from atomic.processes import running
from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Outcome, Sandbox, worker, writing
from tests.support.timing import judge
from tests.support.user import ATOMIC
from tests.support.waits import eventually

COST = 0.4  # dollars of each call


def call(role: str, text: str, task: str | None = None, **end: Any) -> dict[str, Any]:
    """Return a short turn with a price; the tasks here need no change of files."""
    usage = {"input": 1000, "output": 100, "cached": 0, "cost": end.pop("cost", COST)}
    ended = {"type": "turn_ended", "reason": end.pop("reason", "done"), "text": text, "usage": usage}
    return {"role": role, "task": task, "prompt": text, "events": [*end.pop("events", ()), (0.2, ended)]}


def script(tasks: int, *more: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    plan = [{"id": str(number), "title": f"Look at {number}", "no_change": True} for number in range(1, tasks + 1)]
    workers = [call("worker", f"looked at {number}", str(number)) for number in range(1, tasks + 1)]
    approve = json.dumps({"verdict": "approve", "findings": [], "summary": "ok"})
    return [*more, call("planner", json.dumps({"tasks": plan})), *workers, call("reviewer", approve)]


class Till(Sandbox):
    """A sandbox whose agents have a price: they play a recording."""

    def __init__(self, folder: Path, *calls: Mapping[str, Any]) -> None:
        super().__init__(folder)
        self.recording = folder / "agents.jsonl"
        self.record(*calls)

    def record(self, *calls: Mapping[str, Any]) -> None:
        lines: list[Mapping[str, Any]] = [{"atomic_recording": 1, "command": []}, *calls]
        self.recording.write_text("".join(json.dumps(line) + "\n" for line in lines))

    async def run(self, *words: str, timeout: float = 60) -> Outcome:
        return await self.ralph("--agent", f"replay:{self.recording}", *words, GOAL, timeout=timeout)

    async def run_until_parked_and_kill(self) -> None:
        """Run it until it waits for the end of a limit, then kill it with SIGKILL."""
        words = [str(ATOMIC), "run", "ralph", "--json", "--agent", f"replay:{self.recording}", GOAL]
        async with running(*words, cwd=self.project, env=self.user.env) as program, asyncio.timeout(60):
            await eventually(lambda: any('"parked_until": 1' in text for text in self._records()))
            os.kill(program.pid, signal.SIGKILL)

    def _records(self) -> list[str]:
        return [path.read_text() for path in (self.user.home / ".atomic" / "sessions").glob("*/session.json")]

    @property
    def turns(self) -> int:
        """How many turns of workers and fixers are counted."""
        return json.loads((self.session / "iterations.json").read_text())["turns"]

    def calls_for(self, task: str) -> list[dict[str, Any]]:
        lines = map(json.loads, (self.session / "logs" / "agent-calls.jsonl").read_text().splitlines())
        return [line for line in lines if line["task"] == task]

    @property
    def calls(self) -> list[tuple[str, str | None]]:
        lines = (self.session / "logs" / "agent-calls.jsonl").read_text().splitlines()
        return [(line["role"], line["task"]) for line in map(json.loads, lines)]


async def test_a_cap_pauses_and_a_higher_one_continues_the_run(tmp_path: Path) -> None:
    till = Till(tmp_path, *script(3))
    outcome = await till.run("--max-cost", "1")
    assert outcome.status == ("paused", "max_cost", 6)
    assert "--max-cost" in outcome.end["message"]
    done = till.calls
    assert ("reviewer", None) not in done
    assert len(done) <= 3
    assert "max_cost" in till.report
    assert till.turns == len(done) - 1  # a turn that could not begin does not count
    assert (await till.resume("--max-cost", "9")).status == ("completed", "done", 0)
    assert till.turns == 3
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


def limited(reset: float) -> dict[str, Any]:
    """Return a turn of the first task that its provider refuses until then."""
    at = datetime.fromtimestamp(reset, UTC).isoformat()
    limit = (0.0, {"type": "limit_reached", "reset_at": at, "message": "later"})
    return {**call("worker", "limited", "1", events=[limit], reason="limit", cost=0.0), "match": "Look at 1"}


@pytest.mark.parametrize(
    ("on_limit", "seconds"), [("wait", 12), pytest.param("stop", 60, marks=pytest.mark.ci, id="stop")]
)
async def test_a_limit_does_not_count_as_an_attempt(tmp_path: Path, on_limit: str, seconds: float) -> None:
    reset = time.time() + seconds  # "stop" comes back before it, however slow the machine is
    till = Till(tmp_path, *script(2, limited(reset)))
    outcome = await till.run("--on-limit", on_limit)
    if on_limit == "stop":
        assert outcome.status == ("paused", "provider_limit", 7)
        till.record(*script(2))
        assert (await till.resume()).status == ("paused", "provider_limit", 7)  # it is too early
        outcome = await till.resume("--on-limit", "wait", timeout=240)
    assert time.time() >= reset
    assert outcome.status == ("completed", "done", 0)
    assert till.evidence("1")["attempt"] == 1
    assert till.turns == 2


@pytest.mark.full
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_limit_with_its_reset_in_two_minutes_is_waited_for(tmp_path: Path, is_killed: bool) -> None:
    reset = time.time() + 120
    till = Till(tmp_path, *script(2, limited(reset)))
    if is_killed:
        await till.run_until_parked_and_kill()
        assert time.time() < reset - 30
        till.record(*script(2))
        outcome = await till.resume(timeout=240)
    else:
        outcome = await till.run(timeout=240)
    assert outcome.status == ("completed", "done", 0)
    first, second = till.calls_for("1")
    assert (first["reason"], second["reason"]) == ("limit", "done")
    assert reset <= second["time"] - second["seconds"] <= reset + 60
    assert till.evidence("1")["attempt"] == 1
    assert till.turns == 2


@pytest.mark.ci
async def test_a_worker_that_hangs_is_interrupted_and_the_next_one_is_informed(tmp_path: Path) -> None:
    hung = worker("1", {"write": {"half.txt": "half\n"}}, {"pause": 600}, times=1)
    sandbox = Sandbox(tmp_path, PLAN, hung, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--turn-limit", "6s", GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "the turn took longer than 6s and was interrupted" in outcome.warnings
    first, second = [one for one in sandbox.prompts if one.get("task") == "1"]
    assert second["attempt"] == "2"
    assert "the turn took longer than 6s" in second["prompt"]
    assert "An earlier turn on this was interrupted" in second["prompt"]
    assert first["pid"] != second["pid"]
    assert (sandbox.project / "half.txt").read_text() == "half\n"  # its work is kept


@pytest.mark.ci
@pytest.mark.timed
async def test_max_time_interrupts_a_worker_that_hangs_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    hung = worker("1", {"write": {"half.txt": "half\n"}}, {"pause": 600}, times=1)
    sandbox = Sandbox(tmp_path, PLAN, hung, writing("1"), writing("2"), APPROVE)
    with open(sandbox.user.home / ".atomic" / "config.toml", "a", encoding="utf-8") as file:
        file.write('[caps]\ngrace = "1s"\n')
    began = time.monotonic()
    outcome = await sandbox.ralph("--max-time", "4s", GOAL)
    judge(time.monotonic() - began, 100)
    assert outcome.status == ("paused", "max_time", 6)
    assert len([event for event in outcome.events if event["type"] == "limit_reached"]) == 1
    assert json.loads((sandbox.session / "iterations.json").read_text())["turns"] == 1  # it was made, and paid for
    outcome = await sandbox.resume("--max-time", "1h")
    assert outcome.status == ("completed", "done", 0)
    again = [one for one in sandbox.prompts if one.get("task") == "1"][1]
    assert "An earlier turn on this was interrupted" in again["prompt"]


@pytest.mark.ci
async def test_dollars_that_an_acp_agent_reports_count(tmp_path: Path) -> None:
    """The agent reports prices and no tokens."""
    first = worker("1", {"cost": 0.05}, {"write": {"a": "1"}})
    second = worker("2", {"cost": 0.1}, {"write": {"b": "2"}})
    sandbox = Sandbox(tmp_path, PLAN, first, second, APPROVE)
    outcome = await sandbox.ralph("--max-cost", "5", GOAL)
    assert outcome.status == ("completed", "done", 0)
    calls = [json.loads(line) for line in (sandbox.session / "logs" / "agent-calls.jsonl").read_text().splitlines()]
    assert [call["usage"]["cost"] for call in calls if call["role"] == "worker"] == [0.05, 0.1]  # a session for each
    assert json.loads((sandbox.session / "session.json").read_text())["cost"]["usd"] == pytest.approx(0.15)
    assert "$0.15" in sandbox.report


@pytest.mark.ci
async def test_a_turn_of_an_acp_agent_is_cut_by_its_reported_cost(tmp_path: Path) -> None:
    rich = worker("1", *({"cost": 0.5 * at} for at in range(1, 1200)), {"pause": 600})
    sandbox = Sandbox(tmp_path, PLAN, rich)
    outcome = await sandbox.ralph("--max-cost", "1", GOAL)
    assert outcome.status == ("paused", "max_cost", 6)
    assert "interrupted" in outcome.end["message"]


@pytest.mark.ci
async def test_an_agent_without_figures_is_capped_by_an_estimate_with_one_warning(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--max-tokens", "400", GOAL)
    assert outcome.status == ("paused", "max_tokens", 6)
    said = [event["text"] for event in outcome.events if event["type"] == "warning"]
    assert len([text for text in said if "reports neither tokens nor prices: the caps count an estimate" in text]) == 1
    assert "about " in sandbox.report
    assert "are an estimate from the characters" in sandbox.report
    lines = (sandbox.session / "logs" / "agent-calls.jsonl").read_text().splitlines()
    assert all(json.loads(line)["estimated"] for line in lines)


@pytest.mark.ci
async def test_a_worker_that_rewrites_the_log_of_spending_frees_no_money(tmp_path: Path) -> None:
    wipe = 'for f in "$HOME"/.atomic/sessions/*/logs/agent-calls.jsonl; do echo "{}" > "$f"; done'
    greedy = worker("1", {"cost": 0.9}, {"write": {"a": "1"}}, {"sh": wipe})
    sandbox = Sandbox(tmp_path, {**PLAN, "do": [{"cost": 0.2}, *PLAN["do"]]}, greedy, writing("2"), APPROVE)
    outcome = await sandbox.ralph("--max-cost", "1", GOAL)
    assert outcome.status == ("paused", "max_cost", 6)
    assert "$1.10 of $1.00 spent" in outcome.end["message"]
    assert "logs/agent-calls.jsonl" in outcome.warnings
    assert "has other figures than the journal" in outcome.warnings
    for path in (sandbox.session / "logs").glob("*.jsonl"):
        path.write_text("")
    outcome = await sandbox.resume()
    assert outcome.status == ("paused", "max_cost", 6)
    assert "$1.10 of $1.00 spent" in outcome.end["message"]
    assert "agent-calls.jsonl" in sandbox.report


@pytest.mark.parametrize("make", ["mkfifo", pytest.param("mkdir", marks=pytest.mark.ci)])
async def test_a_pipe_or_a_folder_in_place_of_the_log_of_calls_does_not_stop_the_end_of_a_run(
    tmp_path: Path, make: str
) -> None:
    replace = f'for f in "$HOME"/.atomic/sessions/*/logs/agent-calls.jsonl; do rm -rf "$f" && {make} "$f"; done'
    sandbox = Sandbox(tmp_path, PLAN, worker("1", {"write": {"a": "1"}}, {"sh": replace}), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--max-iterations", "1", GOAL)
    assert outcome.status == ("paused", "max_iterations", 6)
    assert "logs/agent-calls.jsonl" in outcome.warnings
    assert "agent-calls.jsonl" in sandbox.report
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("completed", "done", 0)


@pytest.mark.ci
@pytest.mark.timed
async def test_max_time_interrupts_a_check_and_the_attempt_has_not_failed(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    with open(sandbox.user.home / ".atomic" / "config.toml", "a", encoding="utf-8") as file:
        file.write('[caps]\ngrace = "1s"\n')
    late = tmp_path / "late"
    quick = tmp_path / "quick"
    check = f"test ! -e part1.txt -o -e {quick} || {{ sleep 300; touch {late}; }}"
    began = time.monotonic()
    outcome = await sandbox.ralph("--max-time", "8s", "--verify", check, GOAL, timeout=200)
    judge(time.monotonic() - began, 100)
    assert outcome.status == ("paused", "max_time", 6)
    assert "the running check was interrupted" in outcome.end["message"]
    assert "attempt 1" not in outcome.warnings
    assert not late.exists()
    quick.touch()
    outcome = await sandbox.resume("--max-time", "1h")
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers[:2] == ["planner 1", "worker 1 1"]
    assert sandbox.callers.count("worker 1 2") == 0
