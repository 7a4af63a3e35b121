"""A check must have passed once, and work is done only on the tree that it passed on."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, reviewing, worker, writing
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC
from tests.support.waits import eventually

DONE = ("completed", "done", 0)
RED = ("blocked", "check_red", 5)
PROMISE = {"say": "<promise>COMPLETE</promise>"}
COMMIT = {"sh": "git add -A; git commit -q --allow-empty -m Work"}
CLEAN = "! grep -qs BROKEN *.txt"


def planning(count: int, **more: Any) -> dict[str, Any]:
    tasks = [{"id": str(number), "title": f"Write part {number}"} for number in range(1, count + 1)]
    return {"role": "planner", "do": [{"say": json.dumps({"tasks": tasks, **more})}]}


# Before the run


@pytest.mark.parametrize(
    ("check", "told"),
    [
        ("pytets -q", "was not found (exit code 127)"),
        ("./README.md", "could not be executed (exit code 126)"),
        ("echo two tests fail; exit 3", "is red (exit code 3)"),
        ("sleep 600", "took too long"),
    ],
)
async def test_a_check_that_has_never_worked_stops_the_run_before_anything_is_paid(
    tmp_path: Path, check: str, told: str
) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--gate-timeout", "1s", "--verify", check, GOAL)
    assert outcome.status == RED
    assert sandbox.callers == []
    assert told in outcome.end["message"]
    assert "--red-checks goal" in outcome.end["message"]


@pytest.mark.ci
async def test_a_check_that_the_user_has_repaired_lets_the_run_begin(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "test -f ready.txt", GOAL)).status == RED
    (sandbox.project / "ready.txt").write_text("ready\n")
    assert (await sandbox.resume()).status == DONE
    assert sandbox.evidence("1")["changed_files"] == ["part1.txt"]


@pytest.mark.ci
async def test_a_resume_can_decide_about_a_red_check(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "test -f part2.txt", GOAL)).status == RED
    assert (await sandbox.resume("--red-checks", "goal")).status == DONE


async def test_an_unknown_word_is_refused(tmp_path: Path) -> None:
    outcome = await Sandbox(tmp_path, PLAN).ralph("--red-checks", "maybe", GOAL)
    assert outcome.exit_code == 2
    assert "ignore or goal" in outcome.end["message"]


async def test_an_ignored_check_is_in_the_title(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--red-checks", "ignore", "--verify", "false", GOAL)
    assert outcome.status == DONE
    assert outcome.end["verified"] is False
    title = sandbox.report.partition("\n")[0]
    assert "completed, not verified, with red checks ignored" in title
    assert "false: red before the run and ignored" in title


async def test_a_goal_that_stays_red_is_never_completed(tmp_path: Path) -> None:
    fixer = {"role": "fixer", "do": [{"sh": "date +%N >> more.txt"}]}
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), fixer, APPROVE)
    outcome = await sandbox.ralph("--red-checks", "goal", "--verify", "echo still red; exit 1", GOAL)
    assert outcome.status == RED
    assert sandbox.callers[-3:] == [f"fixer check-1 {number}" for number in (1, 2, 3)]
    assert "still red" in sandbox.prompts[-1]["prompt"]
    assert sandbox.statuses == {"1": "completed", "2": "completed", "check-1": "failed"}


async def test_yolo_on_red_tests_does_not_end_with_an_empty_promise(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, {"role": "worker", "do": [PROMISE]})
    outcome = await sandbox.ralph("--yolo", "--verify", "test -f part1.txt", "make all tests pass")
    assert (outcome.end["status"], outcome.exit_code) == ("blocked", 5)
    sandbox.play({"role": "worker", "do": [{"write": {"part1.txt": "part 1\n"}}, PROMISE]})
    outcome = await sandbox.resume()
    assert outcome.status == DONE
    assert outcome.end["verified"] is True


async def test_a_check_gets_the_users_variables_and_the_named_secret(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    sandbox.user.env |= {"JAVA_HOME": "/java", "DATABASE_URL": "postgres://me:pass1234@db/x", "MY_TOKEN": "t0ken"}
    settings = sandbox.user.home / ".atomic" / "config.toml"
    settings.write_text(settings.read_text() + '[checks]\nenv = ["DATABASE_URL"]\n')
    check = 'test "$JAVA_HOME" = /java && test -n "$DATABASE_URL" && test -z "$MY_TOKEN"'
    assert (await sandbox.ralph("--verify", check, GOAL)).status == DONE


# A project without a check


@pytest.mark.ci
async def test_a_check_that_comes_with_the_work_is_found_and_must_be_green(tmp_path: Path) -> None:
    first = worker("1", {"write": {"Makefile": "test:\n\ttest -f part2.txt\n"}})
    sandbox = Sandbox(tmp_path, PLAN, first, writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == DONE
    assert "check: make test (found in Makefile)" in outcome.warnings
    assert outcome.end["verified"] is True
    assert sandbox.evidence("2")["gates"][0]["command"] == "make test"


@pytest.mark.ci
async def test_a_check_that_comes_with_the_work_and_stays_red_blocks(tmp_path: Path) -> None:
    first = worker("1", {"write": {"Makefile": "test:\n\t@echo snake test fails; exit 1\n"}})
    fixer = {"role": "fixer", "do": [{"sh": "date +%N >> more.txt"}]}
    sandbox = Sandbox(tmp_path, PLAN, first, writing("2"), fixer, APPROVE)
    assert (await sandbox.ralph(GOAL)).status == RED
    assert "snake test fails" in sandbox.prompts[-1]["prompt"]


@pytest.mark.ci
async def test_the_plan_can_name_the_check(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, planning(2, check="test -f part2.txt"), writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == DONE
    assert "check: test -f part2.txt (named by the plan)" in outcome.warnings
    assert outcome.end["verified"] is True
    assert "named by the plan" in sandbox.report


@pytest.mark.ci
async def test_a_file_that_was_there_brings_no_check_without_approval(tmp_path: Path) -> None:
    first = worker("1", {"sh": "printf 'test:\\n\\ttouch ran\\n' >> Makefile"})
    sandbox = Sandbox(tmp_path, PLAN, first, writing("2"), APPROVE)
    (sandbox.project / "Makefile").write_text("X := $(shell touch ran)\nall:\n\techo all\n")
    sandbox.commit_all("Build")
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == DONE
    assert outcome.end["verified"] is False
    assert not (sandbox.project / "ran").exists()
    assert "make test (Makefile) is not run" in outcome.warnings


@pytest.mark.ci
async def test_a_run_that_never_had_a_check_is_reported(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == DONE
    assert outcome.end["verified"] is False
    assert sandbox.report.startswith("# Ralph completed, not verified: ")
    assert "not verified" in outcome.end["message"]


# A red tree


@pytest.mark.ci
async def test_no_task_starts_on_a_red_tree(tmp_path: Path) -> None:
    broken = worker("1", {"write": {"part1.txt": "BROKEN\n"}}, {"sh": "date +%N >> more.txt"})
    fixer = {"role": "fixer", "do": [{"sh": "date +%N >> more.txt"}]}
    sandbox = Sandbox(tmp_path, planning(10), broken, *(writing(str(id)) for id in range(2, 11)), fixer, APPROVE)
    outcome = await sandbox.ralph("--verify", f"grep -H BROKEN part1.txt; {CLEAN}", GOAL)
    assert outcome.status == RED
    assert len(sandbox.callers) <= 8
    assert sandbox.callers[4:] == [f"fixer check-1 {number}" for number in (1, 2, 3)]
    assert "part1.txt:BROKEN" in sandbox.prompts[4]["prompt"]
    others = {sandbox.statuses[str(id)] for id in range(2, 11)}
    assert (sandbox.statuses["1"], others, sandbox.statuses["check-1"]) == ("failed", {"pending"}, "failed")
    assert len(outcome.end["message"]) < 600


@pytest.mark.ci
async def test_after_the_repair_the_others_continue(tmp_path: Path) -> None:
    broken = worker("1", {"write": {"part1.txt": "BROKEN\n"}}, {"sh": "date +%N >> more.txt"})
    fixer = {"role": "fixer", "do": [{"write": {"part1.txt": "mended\n"}}]}
    sandbox = Sandbox(tmp_path, planning(4), broken, *(writing(str(id)) for id in range(2, 5)), fixer, APPROVE)
    outcome = await sandbox.ralph("--verify", CLEAN, GOAL)
    assert outcome.status == ("blocked", "nothing_runnable", 5)
    assert sandbox.callers[4:] == ["fixer check-1 1", "worker 2 1", "worker 3 1", "worker 4 1"]
    assert [sandbox.statuses[id] for id in ("1", "2", "3", "4")] == ["failed", *["completed"] * 3]


@pytest.mark.ci
async def test_a_tree_that_the_user_has_repaired_costs_no_turn(tmp_path: Path) -> None:
    broken = worker("1", {"write": {"part1.txt": "BROKEN\n"}}, {"sh": "date +%N >> more.txt"})
    fixer = {"role": "fixer", "do": [{"sh": "date +%N >> more.txt"}]}
    sandbox = Sandbox(tmp_path, planning(2), broken, writing("2"), fixer, APPROVE)
    assert (await sandbox.ralph("--verify", CLEAN, GOAL)).status == RED
    sandbox.play(planning(2), writing("1"), writing("2"), APPROVE)
    (sandbox.project / "part1.txt").unlink()
    assert (await sandbox.resume()).status == DONE
    assert [one for one in sandbox.callers[7:] if one.startswith("fixer")] == []


@pytest.mark.ci
async def test_a_check_that_is_found_after_the_work_runs_on_it(tmp_path: Path) -> None:
    adds_check = worker("2", {"sh": "printf 'test:\\n\\tfalse\\n' >> Makefile; echo 2 > part2.txt"})
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), adds_check, reviewing())
    (sandbox.project / "Makefile").write_text("all:\n\ttrue\n")
    sandbox.git("add", "Makefile")
    sandbox.git("commit", "-qm", "make")
    assert (await sandbox.ralph(GOAL)).status == ("blocked", "not_approved", 5)
    shown = await sandbox.user.atomic("trust", "--show", "--json", cwd=sandbox.project)
    assert (await sandbox.user.atomic("trust", json.loads(shown.stdout)["hash"], cwd=sandbox.project)).exit_code == 0
    idle = {"role": "fixer", "do": [{"sh": "date +%N >> more.txt"}]}
    sandbox.play(PLAN, writing("1"), adds_check, APPROVE, idle)
    assert (await sandbox.resume()).status == RED


# A tree that moves


@pytest.mark.ci
async def test_a_check_that_deletes_the_work_does_not_verify_it(tmp_path: Path) -> None:
    files = {"Makefile": "test:\n\trm -f part1.txt\n", "part1.txt": "1\n"}
    sandbox = Sandbox(tmp_path, PLAN, worker("1", {"write": files}, COMMIT), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status[0] == "blocked"
    assert "the checks deleted part1.txt" in outcome.warnings
    assert sandbox.evidence("1")["status"] == "failed"


@pytest.mark.parametrize(
    ("again", "reason"),
    [
        pytest.param({"sh": "git checkout -q README.md"}, "nothing_runnable", id="the worker restores them"),
        pytest.param({"write": {"part1.txt": "more\n"}}, "moving_tree", id="the worker leaves them"),
    ],
)
async def test_a_late_check_that_deletes_committed_files_verifies_nothing(
    tmp_path: Path, again: dict[str, Any], reason: str
) -> None:
    files = {"Makefile": "test:\n\trm -f README.md\n", "part1.txt": "1\n"}
    adds_check = worker("1", {"write": files}, COMMIT, attempt=1)
    sandbox = Sandbox(tmp_path, PLAN, adds_check, worker("1", again), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("blocked", reason, 5)
    assert "the checks deleted README.md" in outcome.warnings


@pytest.mark.ci
async def test_a_reviewer_that_changes_files_leads_to_another_look(tmp_path: Path) -> None:
    meddling = {"role": "reviewer", "do": [{"write": {"part1.txt": "BROKEN\n"}}, *APPROVE["do"]], "times": 1}
    fixer = {"role": "fixer", "do": [{"write": {"part1.txt": "mended\n"}}]}
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), meddling, APPROVE, fixer)
    outcome = await sandbox.ralph("--verify", CLEAN, GOAL)
    assert outcome.status == DONE
    assert "files changed after the last check (part1.txt)" in outcome.warnings
    assert sandbox.callers[-3:] == ["reviewer 1", "fixer check-1 1", "reviewer 1"]


@pytest.mark.ci
async def test_files_that_never_stop_changing_block(tmp_path: Path) -> None:
    meddling = {"role": "reviewer", "do": [{"sh": "date +%N >> drift.txt"}, *APPROVE["do"]]}
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), meddling)
    outcome = await sandbox.ralph("--verify", CLEAN, GOAL)
    assert outcome.status == ("blocked", "moving_tree", 5)
    assert sandbox.callers[3:] == ["reviewer 1"] * 3
    assert "drift.txt" in outcome.end["message"]


@pytest.mark.ci
async def test_files_that_change_while_the_checks_run_block(tmp_path: Path) -> None:
    flag = tmp_path / "moving"
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), worker("2", {"sh": f"touch {flag}; echo 2 > part2.txt"}), APPROVE)
    check = f"test ! -f {flag} || date +%N > drift.txt"
    assert (await sandbox.ralph("--verify", check, GOAL)).status == ("blocked", "moving_tree", 5)


@pytest.mark.ci
async def test_files_that_a_check_always_writes_are_not_changes(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "date +%N > coverage.xml", GOAL)).status == DONE
    assert sandbox.evidence("2")["changed_files"] == ["part2.txt"]


@pytest.mark.ci
async def test_caches_of_python_are_not_changes(tmp_path: Path) -> None:
    lazy = worker("1", {"sh": "mkdir -p __pycache__; date +%N > __pycache__/x.cpython-311.pyc"})
    sandbox = Sandbox(tmp_path, PLAN, lazy, APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("blocked", "stuck", 5)


# Also


@pytest.mark.ci
async def test_a_task_with_an_odd_number_in_its_id_does_not_crash(tmp_path: Path) -> None:
    tasks = [{"id": "fix-²-1", "title": "Write part one"}]
    plan = {"role": "planner", "do": [{"say": json.dumps({"tasks": tasks})}]}
    part = worker("fix-²-1", {"write": {"part1.txt": "part 1\n"}})
    finding = {"title": "Poor", "body": "really", "priority": 1}
    fixer = {"role": "fixer", "do": [{"write": {"part1.txt": "better\n"}}]}
    sandbox = Sandbox(tmp_path, plan, part, reviewing(finding, times=1), fixer, APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == DONE


@pytest.mark.ci
async def test_a_second_run_in_the_same_checkout_is_warned_about(tmp_path: Path) -> None:
    go = tmp_path / "go"
    slow = worker("1", {"sh": f"while [ ! -f {go} ]; do sleep 0.05; done; echo 1 > part1.txt"})
    sandbox = Sandbox(tmp_path, PLAN, slow, writing("2"), APPROVE)
    first = asyncio.create_task(sandbox.ralph("--verify", "true", GOAL))
    await eventually(lambda: "worker 1 1" in sandbox.callers)
    running = sandbox.session.name
    (sandbox.project / "mine.txt").write_text("mine\n")
    dry = await sandbox.ralph("--dry-run", "--verify", "true", GOAL)  # it changes nothing
    assert (dry.exit_code, "at the same time" in dry.warnings, "mine.txt" in dry.warnings) == (0, False, False)
    other = asyncio.create_task(sandbox.ralph("--verify", "true", "--max-iterations", "1", GOAL))
    await eventually(lambda: sandbox.callers.count("worker 1 1") == 2)
    go.touch()
    assert f"{running} works in this checkout at the same time" in (await other).warnings
    assert (await first).status == DONE


TELLS_THE_TIME = "date +%N; test -f part2.txt"  # another output each time


@pytest.mark.ci
async def test_the_question_comes_after_a_run_without_a_user(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", TELLS_THE_TIME, GOAL)).status != DONE
    async with in_terminal((ATOMIC, "resume", sandbox.session.name), env=sandbox.user.env, cwd=tmp_path) as terminal:
        await terminal.shows("It is the goal")
        terminal.type("2\n")
        assert await terminal.exit_code() == 0


@pytest.mark.parametrize(
    ("answer", "exit_code", "cast"),
    [
        pytest.param("1", 0, 4, id="ignore", marks=pytest.mark.ci),
        pytest.param("2", 0, 4, id="goal", marks=pytest.mark.ci),
        pytest.param("3", 5, 0, id="stop"),
    ],
)
async def test_the_user_decides_about_a_red_check(tmp_path: Path, answer: str, exit_code: int, cast: int) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    words = (ATOMIC, "run", "ralph", "--verify", TELLS_THE_TIME, GOAL)
    async with in_terminal(words, env=sandbox.user.env, cwd=sandbox.project) as terminal:
        await terminal.shows("It is the goal")
        terminal.type(f"{answer}\n")
        assert await terminal.exit_code() == exit_code
    assert len(sandbox.callers) == cast
    if exit_code:
        async with in_terminal((ATOMIC, "resume", sandbox.session.name), env=sandbox.user.env, cwd=tmp_path) as again:
            await again.shows("It is the goal")
            again.type("2\n")
            assert await again.exit_code() == 0
