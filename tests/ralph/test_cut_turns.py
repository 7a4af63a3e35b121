"""Interrupted turns: their cost, and the work of a paused run without a plan."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, writing

DONE = ("completed", "done", 0)


def killing(sandbox: Sandbox, *, once: str) -> dict[str, str]:
    """Return a step of an agent that kills Atomic once the session's log has a text."""
    session = f"{sandbox.user.home}/.atomic/sessions/*"
    seen = f"until grep -q '{once}' {session}/logs/events.jsonl; do sleep 0.05; done"
    return {"sh": f"{seen}; kill -9 $(sed -n 's/.*\"pid\": \\([0-9]*\\).*/\\1/p' {session}/session.json)"}


def cost_of(sandbox: Sandbox) -> dict[str, Any]:
    return json.loads((sandbox.session / "session.json").read_text())["cost"]


def row_of(sandbox: Sandbox, role: str) -> list[str]:
    [row] = re.findall(rf"^\| {role} \|.*$", sandbox.report, re.MULTILINE)
    return [cell.strip() for cell in row.strip("|").split("|")]


@pytest.mark.parametrize("told", [True, False], ids=["told dollars", "no figure"])
async def test_a_turn_that_was_killed_counts(tmp_path: Path, told: bool) -> None:
    sandbox = Sandbox(tmp_path)
    steps = [{"cost": 2.0}, killing(sandbox, once='"cost":2')] if told else [killing(sandbox, once='"work')]
    sandbox.play(PLAN, {"role": "worker", "times": 1, "do": steps}, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph(GOAL)).exit_code == -signal.SIGKILL
    assert (await sandbox.resume()).status == DONE
    role, calls, read, _, price, _ = row_of(sandbox, "worker")
    assert (role, calls) == ("worker", "3")
    assert "1 of 5 calls was cut off when Atomic was killed" in sandbox.report
    if told:
        assert price == "$2.00 and more"
        assert cost_of(sandbox)["usd"] == pytest.approx(2.0)
    else:
        assert read.startswith("about ")
        prompts = [one["prompt"] for one in sandbox.prompts if one["role"] == "worker"]
        sizes = [len(prompt.partition("<system_prompt>")[0].strip()) for prompt in prompts]
        assert int(read.split()[-1].replace(",", "")) >= sum(sizes) // 3
    assert "agent-calls.jsonl" not in sandbox.report  # the log is unchanged


async def test_a_paused_run_without_a_plan_has_evidence_and_commands_to_undo(tmp_path: Path) -> None:
    commit = "git add part1.txt && git commit -qm 'Write part one'"
    work = {"role": "worker", "do": [{"write": {"part1.txt": "1\n", "new.txt": "n\n"}}, {"sh": commit}, {"say": "On."}]}
    sandbox = Sandbox(tmp_path, work)
    outcome = await sandbox.ralph("--yolo", "--max-iterations", "1", GOAL)
    assert outcome.status == ("paused", "max_iterations", 6)
    proof = sandbox.evidence("yolo")
    assert (proof["status"], proof["reason"]) == ("failed", "the agent has not given its promise")
    assert sorted(proof["changed_files"]) == ["new.txt", "part1.txt"]
    head = sandbox.git("rev-parse", "HEAD")
    assert f"git revert --no-edit {sandbox.git('rev-parse', 'HEAD~1')}..{head}" in sandbox.report
    assert "git status --short -- new.txt" in sandbox.report
    assert "the agent has not given its promise" in sandbox.report


async def test_a_paused_run_without_a_plan_reports_the_error_of_its_turn(tmp_path: Path) -> None:
    broken = {"role": "worker", "do": [{"write": {"part1.txt": "1\n"}}, {"exit": 3}]}
    sandbox = Sandbox(tmp_path, broken)
    outcome = await sandbox.ralph("--yolo", "--max-iterations", "1", GOAL)
    assert outcome.status == ("paused", "max_iterations", 6)
    proof = sandbox.evidence("yolo")
    assert proof["reason"].startswith("the turn did not end well: ")
    assert proof["changed_files"] == ["part1.txt"]
