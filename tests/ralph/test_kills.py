"""Kill Atomic at an exact moment and resume it: nothing is paid for twice."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.ralph.sandbox import (
    APPROVE,
    GOAL,
    PLAN,
    Outcome,
    Sandbox,
    finding,
    reviewing,
    worker,
    writing,
)

FAULT = """
import os, signal
from pathlib import Path

def deadly(replace):
    def replace_and_die(source, target, **options):
        replace(source, target, **options)
        order, log = Path({order!r}), {log!r}
        if str(target).endswith({target!r}) and order.exists():
            seen = Path(log or target)
            text = seen.read_text().splitlines()[-1 if log else 0 :] if seen.exists() else []
            if any({word!r} in line for line in text):
                order.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
    return replace_and_die

os.rename, os.replace = deadly(os.rename), deadly(os.replace)
"""
FIXER = {"role": "fixer", "do": [{"write": {"part1.txt": "better\n"}}, {"sh": "git commit -qam better"}]}
FOUND = reviewing(finding("Part one is poor"), times=1)
CAST = ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1", "fixer fix-1-1 1", "reviewer 1"]


def kill_once(sandbox: Sandbox, target: str, word: str, log: Path | None = None) -> None:
    """Kill Atomic when it has replaced the file `target` and `word` is in it, or in the last line of the log."""
    folder = sandbox.user.home / "faults"
    folder.mkdir()
    order = folder / "order"
    order.touch()
    fault = FAULT.format(order=str(order), target=target, word=word, log=str(log or ""))
    (folder / "sitecustomize.py").write_text(fault)
    sandbox.user.env["PYTHONPATH"] = f"{folder}:{sandbox.user.env['PYTHONPATH']}"


async def killed_and_resumed(sandbox: Sandbox, *words: str) -> Outcome:
    killed = await sandbox.ralph(*words)
    assert killed.exit_code == -signal.SIGKILL
    return await sandbox.resume()


@pytest.mark.parametrize(
    "role", ["worker", "reviewer", *(pytest.param(role, marks=pytest.mark.ci) for role in ("planner", "fixer"))]
)
async def test_a_turn_that_has_ended_is_not_made_again_after_a_kill(tmp_path: Path, role: str) -> None:
    """The first snapshot after a prompt is taken when the turn has ended."""
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), FOUND, FIXER, APPROVE)
    kill_once(sandbox, "/pictures/index", f'"role": "{role}"', log=sandbox.log)
    resumed = await killed_and_resumed(sandbox, GOAL)
    assert resumed.end["status"] == "completed"
    assert sandbox.callers == CAST


async def test_a_turn_that_ended_before_a_kill_is_counted_once(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    kill_once(sandbox, "/pictures/index", '"role": "worker"', log=sandbox.log)
    resumed = await killed_and_resumed(sandbox, "--max-iterations", "2", GOAL)
    assert resumed.end["status"] == "completed"


async def test_damage_by_a_killed_turn_is_still_found(tmp_path: Path) -> None:
    lazy = worker("1", {"sh": "git switch -qc elsewhere"}, times=1)
    sandbox = Sandbox(tmp_path, PLAN, lazy, writing("1"), writing("2"), APPROVE)
    kill_once(sandbox, "/pictures/index", '"role": "worker"', log=sandbox.log)
    resumed = await killed_and_resumed(sandbox, GOAL)
    assert "elsewhere" in resumed.end["message"] + resumed.warnings


async def test_a_finding_is_repaired_once_although_the_run_is_killed_when_its_task_is_written(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), FOUND, FIXER, APPROVE)
    kill_once(sandbox, "/tasks.json", '"fix-1-1"')
    resumed = await killed_and_resumed(sandbox, GOAL)
    assert resumed.end["status"] == "completed"
    assert list(sandbox.statuses) == ["1", "2", "fix-1-1"]
    assert sandbox.callers == CAST


@pytest.mark.ci
async def test_a_red_check_is_repaired_once_although_the_run_is_killed_when_its_task_is_written(tmp_path: Path) -> None:
    approval = json.dumps({"verdict": "approve", "findings": [], "summary": "ok"})
    leaves = {"role": "reviewer", "do": [{"sh": "touch red.txt"}, {"say": approval}], "times": 1}
    fixer = {"role": "fixer", "do": [{"sh": "rm red.txt"}, {"write": {"part1.txt": "better\n"}}]}
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), leaves, fixer, APPROVE)
    kill_once(sandbox, "/tasks.json", '"check-1"')
    resumed = await killed_and_resumed(sandbox, "--verify", "! test -e red.txt", GOAL)
    assert resumed.end["status"] == "completed"
    assert list(sandbox.statuses) == ["1", "2", "check-1"]


@pytest.mark.ci
async def test_a_run_that_is_killed_before_its_first_step_still_knows_who_gave_the_check(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    kill_once(sandbox, "/session.json", '"running"')
    resumed = await killed_and_resumed(sandbox, "--verify", "true", GOAL)
    assert resumed.end["status"] == "completed"
    assert "- Check: `true` (given by `--verify`)" in sandbox.report
