"""Facts are read from the journal; a change of the session's files is only reported."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, worker, writing

FORGED = {"gates": [{"command": "true", "origin": "--verify"}], "baseline": {"true": 0}, "passed_once": ["true"]}


def forging(sandbox: Sandbox, name: str, text: str) -> dict[str, str]:
    """Return a step of an agent that rewrites a file of the session."""
    return {"sh": f"for f in {sandbox.user.home}/.atomic/sessions/*/{name}; do printf '%s' '{text}' > $f; done"}


async def test_a_worker_that_rewrites_the_checks_does_not_pass_them(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    cheat = worker(
        "1", {"write": {"part1.txt": "x\n", "broken": ""}}, forging(sandbox, "gates.json", json.dumps(FORGED))
    )
    sandbox.play(PLAN, cheat, APPROVE)
    outcome = await sandbox.ralph("--verify", "test ! -e broken", GOAL)
    assert outcome.status[0] == "blocked"
    [gate] = json.loads((sandbox.session / "gates.json").read_text())["gates"]
    assert gate["command"] == "test ! -e broken"
    assert "given by `--verify`" not in sandbox.report or "`true`" not in sandbox.report
    told = [line for line in outcome.warnings.splitlines() if "gates.json" in line]
    assert len(told) == 1
    assert "Only the journal counts" in told[0]
    assert "`gates.json`" in sandbox.report


async def test_rewritten_turns_and_evidence_are_not_trusted_at_a_resume(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status == ("paused", "max_iterations", 6)
    proof = sandbox.evidence("1")
    (sandbox.session / "iterations.json").write_text('{"turns": 0, "open": []}')
    (sandbox.session / "evidence" / "1.json").write_text(json.dumps({**proof, "changed_files": ["invented.py"]}))
    outcome = await sandbox.resume()
    assert outcome.status == ("paused", "max_iterations", 6)
    assert sandbox.callers == ["planner 1", "worker 1 1"]
    assert "evidence/1.json and iterations.json" in outcome.warnings
    assert sandbox.evidence("1") == proof
    assert json.loads((sandbox.session / "iterations.json").read_text())["turns"] == 1
    assert "invented.py" not in sandbox.report
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert "evidence/1.json" in sandbox.report  # it is not forgotten


@pytest.mark.ci
async def test_a_pipe_in_place_of_a_log_does_not_stop_a_resume(tmp_path: Path) -> None:
    chatty = worker("2", {"write": {"part2.txt": "2\n"}}, {"say": "a line of text\n" * 20_000})
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), chatty, APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    events = sandbox.session / "logs" / "events.jsonl"
    events.unlink()
    os.mkfifo(events)
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("completed", "done", 0)
    assert "the logs of the session cannot be written: this is not a regular file" in outcome.warnings


@pytest.mark.ci
async def test_prompts_name_a_folder_for_notes_and_never_the_session(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    big = worker("1", {"write": {"part1.txt": "a line of text\n" * 8_000}}, {"sh": "git add . && git commit -qm big"})
    sandbox.play(PLAN, big, writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    session = sandbox.session
    first = prompts_of(sandbox, "worker")[0]
    [notes] = re.findall(r"notes for the next worker to `([^`]+)`", first)
    assert Path(notes).parent.is_dir()
    Path(notes).write_text("use make, not npm\n")
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert notes in prompts_of(sandbox, "worker")[1]  # it is the same after a resume
    [patch] = re.findall(r"the whole is in `([^`]+)`", prompts_of(sandbox, "reviewer")[0])
    assert Path(patch).parent == Path(notes).parent
    assert Path(patch).read_text().count("a line of text") == 8_000
    for one in sandbox.prompts:
        assert str(session) not in one["prompt"]
        assert "/sessions/" not in one["prompt"]
    assert (session / "notes.md").read_text() == "use make, not npm\n"  # kept and exported with the session
    assert (await sandbox.user.atomic("sessions", "prune", "--status", "completed", "--yes")).exit_code == 0
    assert not session.exists()
    assert not Path(notes).parent.exists()


@pytest.mark.ci
async def test_a_dry_run_makes_no_folder_for_notes(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN)
    assert (await sandbox.ralph("--dry-run", GOAL)).status == ("completed", "done", 0)
    assert sorted(path.name for path in (sandbox.user.home / ".atomic").iterdir()) == ["config.toml", "sessions"]


def prompts_of(sandbox: Sandbox, role: str) -> list[str]:
    return [one["prompt"] for one in sandbox.prompts if one["role"] == role]


@pytest.mark.ci
async def test_a_task_that_is_set_to_completed_in_a_pause_is_still_worked_on(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status == ("paused", "max_iterations", 6)
    path = sandbox.session / "tasks.json"
    listed = json.loads(path.read_text())
    listed["tasks"][1] |= {"status": "completed", "title": "Do nothing"}
    listed["tasks"].append({"id": "3", "title": "Invented"})
    path.write_text(json.dumps(listed))
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert (sandbox.project / "part2.txt").exists()
    assert sandbox.evidence("2")["status"] == "passed"
    told = [line for line in outcome.warnings.splitlines() if "tasks.json" in line]
    assert len(told) == 1
    assert "Another program changed tasks.json" in told[0]
    assert sandbox.statuses == {"1": "completed", "2": "completed"}
    assert "Do nothing" not in path.read_text()
    assert "`tasks.json`" in sandbox.report


@pytest.mark.ci
async def test_a_worker_that_sets_the_next_task_to_completed_does_not_spare_its_turn(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    done = json.dumps({"tasks": [{"id": "1", "title": "x"}, {"id": "2", "title": "y", "status": "completed"}]})
    cheat = worker("1", {"write": {"part1.txt": "1\n"}}, forging(sandbox, "tasks.json", done))
    sandbox.play(PLAN, cheat, writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert "worker 2 1" in sandbox.callers
    assert "Another program changed tasks.json" in outcome.warnings


@pytest.mark.ci
async def test_a_run_whose_tasks_file_was_deleted_continues_from_the_journal(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    (sandbox.session / "tasks.json").unlink()
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert sandbox.statuses == {"1": "completed", "2": "completed"}


@pytest.mark.ci
async def test_a_folder_in_place_of_the_tasks_file_does_not_stop_the_run(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    block = {"sh": f"cd {sandbox.user.home}/.atomic/sessions/* && rm -f tasks.json && mkdir -p tasks.json/x"}
    first = worker("1", {"write": {"part1.txt": "1\n"}}, block, {"alone": "git add part1.txt && git commit -qm 1"})
    sandbox.play(PLAN, first, writing("2"), APPROVE)
    outcome = await sandbox.ralph("--max-iterations", "1", GOAL)
    assert outcome.status == ("paused", "max_iterations", 6)
    [told] = [line for line in outcome.warnings.splitlines() if "tasks.json" in line]
    assert told.endswith("the run is not affected; tasks.json cannot be written again.")
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("completed", "done", 0)
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert "tasks.json" not in outcome.warnings


@pytest.mark.ci
async def test_a_pause_without_changed_files_is_not_reported(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("completed", "done", 0)
    assert "Another program" not in outcome.warnings


def edit_session(sandbox: Sandbox, **changes: object) -> None:
    path = sandbox.session / "session.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.ci
async def test_caps_that_were_raised_in_the_session_file_are_ignored(tmp_path: Path) -> None:
    paid = worker("1", {"cost": 2.0}, {"write": {"part1.txt": "1\n"}})
    sandbox = Sandbox(tmp_path, PLAN, paid, writing("2"), APPROVE)
    first = await sandbox.ralph("--max-cost", "1.5", "--max-iterations", "7", GOAL)
    assert first.status == ("paused", "max_cost", 6)
    record = json.loads((sandbox.session / "session.json").read_text())
    caps = {**record["options"]["caps"], "max_cost": None, "turn_limit": 0}
    options = {**record["options"], "caps": caps, "agents": {"": "claude"}}
    edit_session(sandbox, options=options, config={**record["config"], "max_iterations": 0}, prompt="something else")
    outcome = await sandbox.resume()
    assert outcome.status == ("paused", "max_cost", 6)
    assert sandbox.callers == ["planner 1", "worker 1 1"]
    told = [line for line in outcome.warnings.splitlines() if "session.json" in line]
    assert len(told) == 1
    assert "Another program changed session.json" in told[0]
    again = json.loads((sandbox.session / "session.json").read_text())
    assert (again["options"], again["config"], again["prompt"]) == (record["options"], record["config"], GOAL)
    assert (await sandbox.resume("--max-cost", "20")).status == ("completed", "done", 0)  # a flag changes it
    assert "`session.json`" in sandbox.report


@pytest.mark.ci
async def test_a_run_that_a_file_calls_completed_is_not_over(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    edit_session(sandbox, status="completed", reason="done")
    assert (await sandbox.resume()).status == ("paused", "max_iterations", 6)
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
    assert (await sandbox.resume()).end["message"] == "it is completed already: nothing is left to do"


@pytest.mark.ci
@pytest.mark.parametrize("text", [None, '{"id": "x"', "[]"])
async def test_a_lost_session_file_is_rebuilt_from_the_journal(tmp_path: Path, text: str | None) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    path = sandbox.session / "session.json"
    path.unlink()
    if text is not None:
        path.write_text(text)
    assert (await sandbox.resume()).status == ("paused", "max_iterations", 6)  # the cap is not lost with it
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("completed", "done", 0)
    assert json.loads(path.read_text())["prompt"] == GOAL
    assert "`session.json`" in sandbox.report
