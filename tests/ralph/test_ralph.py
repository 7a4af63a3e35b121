"""Ralph as a user runs it: finished work is proven, unfinished work is reported."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from atomic.processes import execute
from tests.ralph.sandbox import APPROVE, GOAL, PLAN, TASKS, Sandbox, finding, reviewing, worker, writing
from tests.support.user import ATOMIC
from tests.support.waits import HANG

DONE = ("completed", "done", 0)
CLEAN = "! grep -qs BROKEN part1.txt part2.txt"
BROKEN = {"write": {"part1.txt": "BROKEN\n"}}


def saying(role: str, text: str, **facts: Any) -> dict[str, Any]:
    return {"role": role, "do": [{"say": text}], **facts}


async def test_ralph_plans_works_reviews_and_proves(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--verify", CLEAN, GOAL)
    assert outcome.status == DONE
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert sandbox.statuses == {"1": "completed", "2": "completed"}
    proof = sandbox.evidence("2")
    assert (proof["status"], proof["attempt"], proof["commit"]) == ("passed", 1, sandbox.git("rev-parse", "HEAD"))
    assert proof["changed_files"] == ["part2.txt"]
    assert proof["diffstat"] == {"files": 1, "insertions": 1, "deletions": 0}
    [gate] = proof["gates"]
    assert (gate["command"], gate["exit_code"], gate["blocking"]) == (CLEAN, 0, True)
    assert "2 of 2 tasks" in outcome.end["message"]
    assert "Write part two" in sandbox.report


@pytest.mark.ci
async def test_each_role_gets_its_context_and_no_praise(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    (sandbox.project / "AGENTS.md").write_text("Be brief.\n")
    await sandbox.ralph("--verify", CLEAN, GOAL)
    plan, first, second, review = (one["prompt"] for one in sandbox.prompts)
    assert plan.startswith("[atomic role=planner attempt=1]\n")
    assert GOAL in plan
    assert first.startswith("[atomic role=worker task=1 attempt=1]\n")
    assert "Task 1: Write part one" in first
    assert "1: Write part one (part1.txt)" in second
    assert CLEAN in second
    assert "AGENTS.md" in second
    assert "+part 2" in review
    assert "Write part two" in review
    assert "excellent" not in review


async def test_a_red_gate_goes_back_with_its_output(tmp_path: Path) -> None:
    gate = "grep -n BROKEN part1.txt && exit 1 || exit 0"
    sandbox = Sandbox(tmp_path, PLAN, worker("1", BROKEN, attempt=1), writing("1", attempt=2), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", gate, GOAL)).status == DONE
    again = sandbox.prompts[2]
    assert (again["task"], again["attempt"]) == ("1", "2")
    assert "1:BROKEN" in again["prompt"]
    assert "exit code 1" in again["prompt"]
    assert sandbox.evidence("1")["attempt"] == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [('{"tasks": []}', "no tasks"), ("I would begin with the parts.", "no JSON")],
    ids=["empty", "unreadable"],
)
async def test_without_a_plan_no_worker_starts(tmp_path: Path, answer: str, why: str) -> None:
    sandbox = Sandbox(tmp_path, saying("planner", answer))
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("failed", "no_plan", 1)
    assert why in outcome.end["message"]
    assert sandbox.callers == ["planner 1", "planner 2"]
    assert why in sandbox.prompts[1]["prompt"]
    assert "no_plan" in sandbox.report or why in sandbox.report


@pytest.mark.ci
async def test_a_second_plan_that_can_be_read_is_taken(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, saying("planner", "Well…", times=1), PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph(GOAL)).status == DONE


async def test_a_claim_without_a_change_does_not_count(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1"), APPROVE)
    outcome = await sandbox.ralph("--verify", "true", GOAL)
    assert outcome.status == ("blocked", "stuck", 5)
    assert "3 attempts changed no file" in outcome.end["message"]
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 1 2", "worker 1 3"]
    assert sandbox.statuses == {"1": "failed", "2": "pending"}
    assert "changed no file" in sandbox.report or "no file has changed" in sandbox.report


@pytest.mark.ci
async def test_a_task_with_no_change_needs_no_change(tmp_path: Path) -> None:
    plan = {"tasks": [{"id": "1", "title": "Look whether it works", "no_change": True}]}
    sandbox = Sandbox(tmp_path, saying("planner", json.dumps(plan)), worker("1"), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == DONE


@pytest.mark.parametrize("deed", ["edits", pytest.param("deletes", marks=pytest.mark.ci)])
async def test_touched_tests_are_shown_everywhere(tmp_path: Path, deed: str) -> None:
    change = {"delete": ["tests/test_it.py"]} if deed == "deletes" else {"write": {"tests/test_it.py": "pass\n"}}
    sandbox = Sandbox(tmp_path, PLAN, worker("1", change), writing("2"), APPROVE)
    (sandbox.project / "tests").mkdir()
    (sandbox.project / "tests" / "test_it.py").write_text("assert False\n")
    sandbox.commit_all("Test it")
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == DONE
    assert sandbox.evidence("1")["protected_files"] == ["tests/test_it.py"]
    review = sandbox.prompts[-1]["prompt"]
    assert "`tests/test_it.py` (task 1)" in review
    assert "tests/test_it.py" in sandbox.report


@pytest.mark.parametrize("words", [[GOAL], pytest.param(["--yolo", GOAL], marks=pytest.mark.ci)], ids=["tasks", "yolo"])
async def test_a_rewritten_script_of_the_check_is_in_the_title_and_a_warning(tmp_path: Path, words: list[str]) -> None:
    steps = [{"write": {"check.sh": "exit 0\n"}}, {"say": "Done.\n<promise>COMPLETE</promise>"}]
    cheat = {"role": "worker", "times": 1, "do": steps}
    sandbox = Sandbox(tmp_path, PLAN, cheat, writing("2"), APPROVE)
    (sandbox.project / "check.sh").write_text("test ! -e bad.txt\n")
    sandbox.commit_all("Check")
    outcome = await sandbox.ralph("--verify", "sh check.sh", *words)
    assert outcome.status == DONE
    assert outcome.end["verified"]
    fact = "files that decide what the checks do were changed"
    assert outcome.warnings.count(f"{fact}: `check.sh`") == 1
    by_task = "" if "--yolo" in words else " (task `1`)"
    assert f"; {fact} by the run: `check.sh`{by_task}" in outcome.end["message"]
    assert f"; {fact} by the run: `check.sh`{by_task}" in sandbox.report.partition("\n")[0]


@pytest.mark.ci
async def test_a_script_of_the_check_that_the_run_has_made_is_not_in_the_title(tmp_path: Path) -> None:
    first = worker("1", {"write": {"check.sh": "exit 0\n"}})
    second = worker("2", {"write": {"check.sh": "true\n"}})
    sandbox = Sandbox(tmp_path, PLAN, first, second, APPROVE)
    outcome = await sandbox.ralph("--verify", "test ! -e check.sh || sh check.sh", GOAL)
    assert outcome.status == DONE
    assert "decide what the checks do" not in outcome.end["message"] + outcome.warnings


@pytest.mark.ci
async def test_a_gate_that_was_red_before_does_not_block(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--red-checks", "ignore", "--verify", "false", "--verify", "true", GOAL)
    assert outcome.status == DONE
    red, green = sandbox.evidence("1")["gates"]
    assert (red["exit_code"], red["baseline_exit_code"], red["blocking"]) == (1, 1, False)
    assert green["blocking"]
    assert "false: red before the run, and ignored" in outcome.warnings
    told = sandbox.prompts[1]["prompt"]
    assert "`false` (failed before this run, so it does not block; make it pass only if the task requires it)" in told
    assert "red before" in sandbox.report


async def test_a_gate_blocks_from_when_it_has_passed_once(tmp_path: Path) -> None:
    sandbox = Sandbox(
        tmp_path, PLAN, writing("1"), worker("2", {"sh": "git rm -q part1.txt && git commit -qm gone"}, attempt=1),
        worker("2", {"sh": "git revert --no-edit HEAD && git mv README.md READ.md && git commit -qm two"}), APPROVE,
    )  # fmt: skip
    assert (await sandbox.ralph("--red-checks", "goal", "--verify", "test -f part1.txt", GOAL)).status == DONE
    assert sandbox.callers[1:4] == ["worker 1 1", "worker 2 1", "worker 2 2"]


@pytest.mark.ci
async def test_a_gate_that_hangs_is_red(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1", attempt=1), worker("1", {"sh": "date +%N >> more.txt"}))
    gate = "test ! -f part1.txt || sleep 600"
    outcome = await sandbox.ralph("--gate-timeout", "1s", "--verify", gate, GOAL)
    assert outcome.status == ("blocked", "nothing_runnable", 5)
    assert "took too long" in outcome.end["message"]
    assert sandbox.evidence("1")["gates"][0]["timed_out"]


@pytest.mark.ci
async def test_a_flaky_gate_costs_no_turn_and_is_named(tmp_path: Path) -> None:
    counter = tmp_path / "runs"
    gate = f"echo x >> {counter}; test $(wc -l < {counter}) -ne 2"  # only the second run is red: the first after a turn
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", gate, GOAL)).status == DONE
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]
    assert sandbox.evidence("1")["gates"][0]["flaky"]
    assert "flaky" in sandbox.report or "second time" in sandbox.report


async def test_an_unreadable_review_is_not_approved(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), saying("reviewer", "Looks good to me!"))
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("blocked", "not_approved", 5)
    assert sandbox.callers[-2:] == ["reviewer 1", "reviewer 2"]
    assert "no JSON" in sandbox.prompts[-1]["prompt"]
    assert sandbox.statuses == {"1": "completed", "2": "completed"}
    assert outcome.steps("node_started") == outcome.steps("node_ended")
    assert [step for step in outcome.steps("node_ended") if ":review[0]" in step] == [
        f"{sandbox.session.name}:review[0]#1",
        f"{sandbox.session.name}:review[0]#2",
    ]


@pytest.mark.ci
async def test_a_repair_of_all_the_work_takes_no_name_of_the_list(tmp_path: Path) -> None:
    meddling = {"role": "reviewer", "do": [{"write": {"part2.txt": "BROKEN\n"}}, *APPROVE["do"]], "times": 1}
    mending = {"role": "fixer", "do": [{"write": {"part2.txt": "mended\n"}}, {"say": "ok"}]}
    sandbox = Sandbox(tmp_path, writing("check-1"), writing("check-3"), mending, meddling, APPROVE)
    (sandbox.project / "list.json").write_text('[{"id": "check-1", "title": "A"}, {"id": "check-3", "title": "B"}]')
    outcome = await sandbox.ralph("--verify", CLEAN, "--tasks", "list.json")
    assert outcome.status == DONE
    assert sandbox.callers == ["worker check-1 1", "worker check-3 1", "reviewer 1", "fixer check-2 1", "reviewer 1"]


@pytest.mark.ci
async def test_two_tasks_with_one_id_are_both_done_with_a_warning(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, writing("1"), writing("1-2"))
    (sandbox.project / "list.json").write_text('[{"id": 1, "title": "One"}, {"id": "#1", "title": "Another"}]')
    outcome = await sandbox.ralph("--tasks", "list.json", "--review-rounds", "0")
    assert outcome.status == DONE
    assert 'duplicate id "1": the task at position 2 becomes "1-2"' in outcome.warnings
    assert sandbox.statuses == {"1": "completed", "1-2": "completed"}


@pytest.mark.ci
async def test_a_finding_is_fixed_and_reviewed_again(tmp_path: Path) -> None:
    fixer = {"role": "fixer", "do": [{"write": {"part1.txt": "better\n"}}]}
    sandbox = Sandbox(
        tmp_path, PLAN, writing("1"), writing("2"), reviewing(finding("Part one is poor"), times=1), fixer, APPROVE
    )
    assert (await sandbox.ralph("--verify", CLEAN, GOAL)).status == DONE
    assert sandbox.callers[-3:] == ["reviewer 1", "fixer fix-1-1 1", "reviewer 1"]
    assert "Part one is poor" in sandbox.prompts[-2]["prompt"]
    assert "Part one is poor" in sandbox.prompts[-1]["prompt"]
    assert sandbox.statuses["fix-1-1"] == "completed"
    assert sandbox.evidence("fix-1-1")["status"] == "passed"
    shown = await sandbox.user.atomic("sessions", "show", sandbox.session.name)
    for ran in ("│✓plan ", "│✓begin ", "│✓work ", "│✓gate ", "│✓review ", "│✓settle "):  # in loops, tasks and maps too
        assert ran in shown.stdout
    assert "│ publish " in shown.stdout
    page = await sandbox.user.atomic("sessions", "show", sandbox.session.name, "--html")
    assert ">work ✓ 3×<" in page.stdout


@pytest.mark.ci
async def test_reviewer_and_fixer_know_the_goal(tmp_path: Path) -> None:
    fixer = {"role": "fixer", "do": [{"write": {"part1.txt": "better\n"}}]}
    sandbox = Sandbox(tmp_path, writing("1"), reviewing(finding("Part one is poor"), times=1), fixer, APPROVE)
    asked = {"id": "1", "title": "One", "description": "It rhymes\nwith moon.", "acceptance": ["it has two lines"]}
    (sandbox.project / "list.json").write_text(json.dumps([asked]))
    assert (await sandbox.ralph("--tasks", "list.json", "a poem")).status == DONE
    for one in sandbox.prompts:
        told = " ".join(one["prompt"].split())
        assert "It rhymes with moon." in told
        assert "it has two lines" in told
        assert ("a poem" in told) is (one["role"] != "worker")


@pytest.mark.ci
async def test_an_unreadable_review_is_repeated_by_the_same_agent(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, writing("1"), saying("reviewer", "LGTM", times=1), APPROVE)
    settings = (sandbox.user.home / ".atomic" / "config.toml").read_text()
    [command] = re.findall("^command = .*$", settings, re.MULTILINE)
    sandbox.user.sets(f"{settings}\n[acp.other]\n{command}\n")
    (sandbox.project / "list.json").write_text('[{"id": "1", "title": "One"}]')
    assert (await sandbox.ralph("--tasks", "list.json")).status == DONE
    lines = (sandbox.session / "logs" / "agent-calls.jsonl").read_text().splitlines()
    assert [json.loads(line)["provider"] for line in lines] == ["acp:actor", "acp:other", "acp:other"]


@pytest.mark.ci
async def test_the_same_finding_three_times_blocks_the_run(tmp_path: Path) -> None:
    fixer = {"role": "fixer", "do": [{"sh": "date +%N >> more.txt"}]}
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), reviewing(finding("Part one is poor")), fixer)
    outcome = await sandbox.ralph("--review-rounds", "5", GOAL)
    assert outcome.status == ("blocked", "same_blocker", 5)
    assert '"Part one is poor"' in outcome.end["message"]
    assert [one for one in sandbox.callers if one.startswith("reviewer")] == ["reviewer 1"] * 3
    assert "Part one is poor" in sandbox.report


@pytest.mark.ci
async def test_review_rounds_end_with_open_findings(tmp_path: Path) -> None:
    fixer = {"role": "fixer", "do": [{"sh": "date +%N >> more.txt"}]}
    reviews = [reviewing(finding(f"Fault {number}"), times=1) for number in (1, 2)]
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), *reviews, APPROVE, fixer)
    outcome = await sandbox.ralph("--review-rounds", "2", GOAL)
    assert outcome.status == ("blocked", "review_rounds", 5)
    assert '"Fault 2"' in outcome.end["message"]
    assert (await sandbox.resume()).status == DONE  # the user has looked: one more review
    assert sandbox.callers[-1] == "reviewer 1"


@pytest.mark.ci
async def test_only_minor_findings_are_reported(tmp_path: Path) -> None:
    minor = reviewing(finding("A typo", 3), verdict="approve")
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), minor)
    assert (await sandbox.ralph(GOAL)).status == DONE
    assert "A typo" in sandbox.report


@pytest.mark.ci
async def test_all_reviewers_must_approve(tmp_path: Path) -> None:
    fixer = {"role": "fixer", "do": [{"write": {"part1.txt": "better\n"}}]}
    once = reviewing(finding("Part one is poor"), times=1)
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), once, APPROVE, fixer)
    assert (await sandbox.ralph("--reviewers", "2", GOAL)).status == DONE
    assert [one for one in sandbox.callers if one.startswith("reviewer")] == ["reviewer 1"] * 4


@pytest.mark.ci
async def test_a_failed_task_blocks_only_its_dependents(tmp_path: Path) -> None:
    tasks = [*TASKS, {"id": "3", "title": "Write part three"}]
    plan = saying("planner", json.dumps({"tasks": tasks}))
    fixer = {"role": "fixer", "do": [{"write": {"part1.txt": "mended\n"}}]}  # no task starts on a red tree
    broken = worker("1", BROKEN, {"sh": "date +%N >> more.txt"})
    sandbox = Sandbox(tmp_path, plan, broken, fixer, writing("3"), APPROVE)
    outcome = await sandbox.ralph("--verify", CLEAN, GOAL)
    assert outcome.status == ("blocked", "nothing_runnable", 5)
    assert sandbox.statuses == {"1": "failed", "2": "pending", "3": "completed", "check-1": "completed"}
    assert not any(one.startswith("reviewer") for one in sandbox.callers)
    assert "exit code 1" in outcome.end["message"]
    assert '"1"' in outcome.end["message"]


async def test_a_blocked_run_names_its_report(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1"))
    done = await sandbox.user.atomic("run", "ralph", GOAL)
    assert done.exit_code == 5
    id = sandbox.session.name
    assert done.stderr.splitlines()[-2:] == [
        f"Report: {sandbox.session / 'report.md'}",
        f"Resume with: atomic resume {id}",
    ]


@pytest.mark.ci
async def test_a_blocked_run_can_continue(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1", BROKEN, {"sh": "date +%N >> more.txt"}))
    assert (await sandbox.ralph("--verify", CLEAN, GOAL)).status == ("blocked", "nothing_runnable", 5)
    assert (await sandbox.resume()).status == ("blocked", "nothing_runnable", 5)
    assert [one for one in sandbox.callers if one.startswith("worker")] == [
        f"worker 1 {number}" for number in range(1, 7)
    ]
    sandbox.play(PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.resume()
    assert outcome.status == DONE
    assert sandbox.callers.count("planner 1") == 1
    assert sandbox.statuses == {"1": "completed", "2": "completed"}


async def test_an_agent_that_dies_is_tried_again(tmp_path: Path) -> None:
    dying = worker("1", {"write": {"half.txt": "half\n"}}, {"exit": 9}, times=1)
    sandbox = Sandbox(tmp_path, PLAN, dying, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph(GOAL)).status == DONE
    assert sandbox.callers[1:3] == ["worker 1 1", "worker 1 2"]
    assert "did not end well" in sandbox.prompts[2]["prompt"]


@pytest.mark.ci
async def test_an_agent_that_always_dies_is_stuck(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1", {"exit": 9}))
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("blocked", "stuck", 5)
    assert "same error" in outcome.end["message"]


@pytest.mark.ci
async def test_max_iterations_pauses_and_can_be_raised(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph("--max-iterations", "1", GOAL)
    assert outcome.status == ("paused", "max_iterations", 6)
    assert "--max-iterations 2" in outcome.end["message"]
    assert sandbox.statuses == {"1": "completed", "2": "pending"}  # a task begins when its worker begins
    assert (await sandbox.resume()).status == ("paused", "max_iterations", 6)
    assert (await sandbox.resume("--max-iterations", "2")).status == DONE
    assert sandbox.callers == ["planner 1", "worker 1 1", "worker 2 1", "reviewer 1"]


@pytest.mark.ci
async def test_several_workers_share_the_checkout_with_a_warning(tmp_path: Path) -> None:
    tasks = [{"id": str(number), "title": f"Write part {number}"} for number in range(1, 5)]
    lock = "flock .git/one-at-a-time sh -c"
    parts = [
        worker(id, {"sh": f"echo {id} > part{id}.txt; {lock} 'git add part{id}.txt; git commit -qm {id} part{id}.txt'"})
        for id in "1234"
    ]
    sandbox = Sandbox(tmp_path, saying("planner", json.dumps({"tasks": tasks})), *parts, APPROVE)
    outcome = await sandbox.ralph("--workers", "4", "--verify", "true", GOAL)
    assert outcome.status == DONE
    assert "4 workers share one checkout" in outcome.warnings
    assert set(sandbox.statuses.values()) == {"completed"}


@pytest.mark.ci
async def test_without_a_check_it_warns(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == DONE
    assert "not verified by a check" in outcome.warnings
    assert "not verified by a check" in sandbox.report


@pytest.mark.ci
async def test_the_projects_own_gate_is_found_and_named(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    (sandbox.project / "Makefile").write_text("test:\n\t@echo fine\n")
    sandbox.commit_all("Make")
    await sandbox.user.atomic(
        "trust", json.loads((await sandbox.user.atomic("trust", "--show", "--json")).stdout)["hash"]
    )
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == DONE
    assert "make test" in outcome.warnings
    assert "Makefile" in outcome.warnings
    assert sandbox.evidence("1")["gates"][0]["command"] == "make test"


@pytest.mark.ci
async def test_outside_git_files_are_the_proof(tmp_path: Path) -> None:
    parts = [worker(id, {"write": {f"part{id}.txt": "x\n"}}) for id in "12"]
    sandbox = Sandbox(tmp_path, PLAN, *parts, APPROVE, git=False)
    assert (await sandbox.ralph(GOAL)).status == DONE
    assert sandbox.evidence("1")["commit"] is None
    assert sandbox.evidence("1")["changed_files"] == ["part1.txt"]


@pytest.mark.ci
async def test_a_repository_without_a_commit_is_accepted(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE, git=False)
    sandbox.git("init", "-q", "-b", "main")
    sandbox.git("config", "user.name", "A User")
    sandbox.git("config", "user.email", "user@example.invalid")
    assert (await sandbox.ralph(GOAL)).status == DONE
    assert all("Commit your work" in one["prompt"] for one in sandbox.prompts if one["role"] == "worker")
    assert sandbox.evidence("2")["commit"] == sandbox.git("rev-parse", "HEAD")


@pytest.mark.ci
async def test_uncommitted_work_is_named_and_can_be_undone(tmp_path: Path) -> None:
    commit = "git add part1.txt && git commit -q -m 'Write part one'"
    files = {"part1.txt": "part 1\n", "left over.txt": "more\n"}
    sandbox = Sandbox(tmp_path, worker("1", {"write": files}, {"sh": commit}))
    (sandbox.project / "list.json").write_text('[{"id": "1", "title": "One"}]')
    sandbox.commit_all("List")
    assert (await sandbox.ralph("--tasks", "list.json", "--review-rounds", "0")).status == DONE
    assert sandbox.evidence("1")["uncommitted"] == ["left over.txt"]
    assert "**not committed**: `left over.txt`" in sandbox.report
    for undo in [line for line in sandbox.report.splitlines() if line.endswith(("# undo", "newest first"))][:2]:
        await execute("sh", "-ec", undo, cwd=sandbox.project)
    assert not (sandbox.project / "left over.txt").exists()
    assert not (sandbox.project / "part1.txt").exists()


@pytest.mark.ci
async def test_a_moved_folder_ends_the_run_with_a_clear_message(tmp_path: Path) -> None:
    away = tmp_path / "away"
    sandbox = Sandbox(tmp_path, PLAN, worker("1", {"sh": f"mv {tmp_path / 'project'} {away}"}))
    outcome = await sandbox.ralph(GOAL)
    assert (outcome.end["status"], outcome.exit_code) in (("blocked", 5), ("failed", 1))
    assert "no longer exists" in outcome.end["message"]
    shutil.move(away, sandbox.project)
    sandbox.play(PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.resume()).status == DONE


@pytest.mark.ci
@pytest.mark.parametrize("blocks", [80, 260])  # 260: after the planner's turn
async def test_a_full_disk_ends_the_run_with_a_clear_message_and_loses_nothing(tmp_path: Path, blocks: int) -> None:
    """Files are limited to some blocks of 512 bytes; the journal is the first to fail."""
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    command = f"ulimit -f {blocks}; exec {shlex.join([str(ATOMIC), 'run', 'ralph', '--json', GOAL])}"
    done = await execute("sh", "-c", command, cwd=sandbox.project, env=sandbox.user.env, timeout=HANG)
    end = json.loads(done.stdout.splitlines()[-1])
    assert (end["status"], done.exit_code) == ("failed", 1)
    assert "the disk reports an error" in end["message"]
    assert (await sandbox.resume()).status == DONE
    assert sandbox.callers.count("planner 1") == 1


# How it is started


@pytest.mark.ci
async def test_a_dry_run_plans_and_stops(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"))
    outcome = await sandbox.ralph("--dry-run", "--verify", "make check", GOAL)
    assert outcome.exit_code == 0
    assert sandbox.callers == ["planner 1"]
    assert sandbox.statuses == {"1": "pending", "2": "pending"}
    for word in ("Write part two", "make check", "--tasks", "--max-iterations"):
        assert word in sandbox.report
        assert word in outcome.end["message"]


@pytest.mark.ci
async def test_a_task_file_is_worked_on_and_not_touched(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, writing("1"), writing("2"), APPROVE)
    file = sandbox.project / "todo.json"
    file.write_text(json.dumps({"tasks": TASKS}))
    before = file.read_bytes()
    assert (await sandbox.ralph("--tasks", "todo.json")).status == DONE
    assert file.read_bytes() == before
    assert sandbox.callers[0] == "worker 1 1"


@pytest.mark.ci
@pytest.mark.parametrize("name", ["tasks.json", "feature-list.json"])
async def test_without_words_it_takes_the_projects_list(tmp_path: Path, name: str) -> None:
    sandbox = Sandbox(tmp_path, {"role": "worker", "do": [{"sh": "date +%N >> work.txt"}]}, APPROVE)
    features = [{"category": "ui", "description": "Show it", "steps": ["look"], "passes": False}]
    (sandbox.project / "research").mkdir()
    listed: Any = {"tasks": TASKS} if name == "tasks.json" else features
    (sandbox.project / "research" / name).write_text(json.dumps(listed))
    assert (await sandbox.ralph()).status == DONE


STEPS = [
    {"category": "ui", "description": "Show it", "steps": ["look at it"], "passes": True},
    {"category": "ui", "description": "Hide it", "steps": ["see nothing"], "passes": False},
]
CRITERIA = [
    {"id": "1", "name": "Show it", "description": "", "acceptanceCriteria": ["look at it"], "status": "passing"},
    {"id": "2", "name": "Hide it", "description": "", "acceptanceCriteria": ["see nothing"], "status": "pending"},
]


@pytest.mark.ci
@pytest.mark.parametrize("words", ["--tasks list.json", "--feature-list list.json", "", "/ralph"])
@pytest.mark.parametrize("features", [STEPS, CRITERIA], ids=["steps", "criteria"])
async def test_a_feature_list_is_worked_on_from_where_it_is(tmp_path: Path, words: str, features: Any) -> None:
    sandbox = Sandbox(tmp_path)
    name = "list.json" if "list" in words else "research/feature-list.json"
    (sandbox.project / "research").mkdir()
    (sandbox.project / name).write_text(json.dumps({"features": features}))
    command = ["-p", "/ralph --dry-run"] if words == "/ralph" else ["run", "ralph", "--dry-run", *words.split()]
    done = await sandbox.user.atomic(*command)
    assert done.exit_code == 0, done.stderr
    tasks = json.loads((sandbox.session / "tasks.json").read_text())["tasks"]
    assert [(task["id"], task["title"], task["status"], task["acceptance"]) for task in tasks] == [
        ("1", "Show it", "completed", ["look at it"]),
        ("2", "Hide it", "pending", ["see nothing"]),
    ]


@pytest.mark.ci
async def test_a_feature_list_whose_features_all_pass_is_refused(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    (sandbox.project / "list.json").write_text(json.dumps({"features": STEPS[:1]}))
    done = await sandbox.user.atomic("run", "ralph", "--tasks", "list.json")
    assert (done.exit_code, "completed already" in done.stderr) == (2, True)


@pytest.mark.ci
@pytest.mark.parametrize("word", ["failing", "failed"])
async def test_a_failing_feature_of_a_list_is_work_to_do(tmp_path: Path, word: str) -> None:
    sandbox = Sandbox(tmp_path, writing("1"), writing("2"), APPROVE)
    features = [{"id": task["id"], "name": task["title"], "status": word} for task in TASKS]
    (sandbox.project / "list.json").write_text(json.dumps({"features": features}))
    outcome = await sandbox.ralph("--feature-list", "list.json")
    assert outcome.status == DONE
    assert sandbox.statuses == {"1": "completed", "2": "completed"}
    assert 'tasks: "1", "2" failed before this run, and will be worked on' in outcome.warnings


@pytest.mark.ci
@pytest.mark.parametrize("listed", [{"tasks": [{"id": "1"}]}, {"features": [{"foo": 1}]}], ids=["tasks", "features"])
async def test_a_task_without_any_text_is_refused_before_anything_is_paid(tmp_path: Path, listed: Any) -> None:
    sandbox = Sandbox(tmp_path)
    (sandbox.project / "list.json").write_text(json.dumps(listed))
    told = "1: has neither a title nor a description, so no worker can do it: add one"
    done = await sandbox.user.atomic("run", "ralph", "--tasks", "list.json")
    assert (done.exit_code, told in done.stderr) == (2, True)
    assert sandbox.callers == []
    checked = await sandbox.user.atomic("tasks", "check", "list.json")
    assert (checked.exit_code, checked.stdout) == (1, f"list.json: {told}\n")


@pytest.mark.ci
@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("--workers", "--workers has no effect with --yolo: one agent works on the prompt"),
        ("--reviewers", "--reviewers has no effect: a run with --yolo has no review"),
        ("--review-rounds", "--review-rounds has no effect: a run with --yolo has no review"),
    ],
)
async def test_a_flag_that_yolo_has_no_use_for_is_refused(tmp_path: Path, flag: str, why: str) -> None:
    sandbox = Sandbox(tmp_path)
    done = await sandbox.user.atomic("run", "ralph", "--yolo", flag, "4", GOAL)
    assert (done.exit_code, done.stderr) == (2, f"atomic: {why}; leave it out\n")


@pytest.mark.ci
async def test_workers_of_the_settings_cause_no_warning_of_yolo(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, {"role": "worker", "do": [{"write": {"a.txt": "a\n"}}, {"say": PROMISE}]})
    file = sandbox.user.home / ".atomic" / "config.toml"
    file.write_text(f"{file.read_text()}workers = 4\n")
    outcome = await sandbox.ralph("--yolo", GOAL)
    assert outcome.status == DONE
    assert "share one checkout" not in outcome.warnings
    assert sandbox.report.startswith(
        "# Ralph completed, not verified: the agent reports that it is done after 1 turn, not "
    )


@pytest.mark.ci
async def test_the_projects_list_is_found_from_a_folder_within_it(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path)
    for folder in ("research", "inner"):
        (sandbox.project / folder).mkdir()
    (sandbox.project / "research" / "tasks.json").write_text(json.dumps(TASKS))
    done = await sandbox.user.atomic("run", "ralph", "--dry-run", cwd=sandbox.project / "inner")
    assert done.exit_code == 0, done.stderr
    assert "2 tasks planned" in done.stdout


@pytest.mark.ci
async def test_all_prompts_name_the_rules_of_the_project(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    (sandbox.project / "AGENTS.md").write_text("Be kind.\n")
    (sandbox.project / "inner").mkdir()
    (sandbox.project / "inner" / "CLAUDE.md").write_text("Be brief.\n")
    done = await sandbox.user.atomic("run", "ralph", GOAL, cwd=sandbox.project / "inner")
    assert done.exit_code == 0, done.stderr
    assert len(sandbox.prompts) == 4
    for prompt in sandbox.prompts:
        assert "The project's rules are in `../AGENTS.md`, `CLAUDE.md`: they come first." in prompt["prompt"]


@pytest.mark.ci
async def test_a_spec_is_read_from_its_file(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    (sandbox.project / "spec.md").write_text("# The parts\n\nWrite them well.\n")
    assert (await sandbox.ralph("spec.md")).status == DONE
    assert "Write them well." in sandbox.prompts[0]["prompt"]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "give a prompt"),
        ((".",), ". is a folder, and no goal: give the path of a spec"),
        (("nowhere.md",), "nowhere.md does not exist: give the path of a spec"),
        (("--tasks", "nowhere.json"), "nowhere.json"),
        (("--tasks", "cycle.json"), "cycle"),
        (("--isolate", "vm", GOAL), '--isolate cannot be "vm": give auto, overlay, clone, worktree or none'),
        (("--accept", GOAL), "--accept has no effect with --isolate none"),
        (("--model", "planer=opus", GOAL), 'has no role "planer" (its roles: planner, worker, reviewer, fixer)'),
        (("--agent", "boss=acp:actor", GOAL), 'has no role "boss"'),
        (("--workers", "0", GOAL), "--workers"),
        (("--gate-timeout", "soon", GOAL), "--gate-timeout"),
        (("--yolo",), "needs a prompt"),
        (("--yolo", "--tasks", "cycle.json", GOAL), "choose one"),
        (("--reviewer", "2", GOAL), "--reviewers"),
    ],
    ids=str,
)
async def test_impossible_options_are_refused_before_a_run_exists(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    sandbox = Sandbox(tmp_path)
    cycle = [{"id": "1", "title": "a", "blocked_by": ["2"]}, {"id": "2", "title": "b", "blocked_by": ["1"]}]
    (sandbox.project / "cycle.json").write_text(json.dumps({"tasks": cycle}))
    outcome = await sandbox.ralph(*words)
    assert outcome.exit_code == 2
    assert why in outcome.end["message"]
    assert not (sandbox.user.home / ".atomic" / "sessions").exists()


# Yolo

PROMISE = "<promise>COMPLETE</promise>"
BUSY = {"sh": "date +%N >> work.txt"}


@pytest.mark.ci
async def test_yolo_ends_only_on_the_promise(tmp_path: Path) -> None:
    turns = [
        {"role": "worker", "attempt": 1, "do": [BUSY, {"say": "It is COMPLETE."}]},
        {"role": "worker", "attempt": 2, "do": [BUSY, {"say": f"Later I will say\n```\n{PROMISE}\n```"}]},
        {"role": "worker", "attempt": 3, "do": [BUSY, {"say": f"All done.\n\n{PROMISE}\n"}]},
    ]
    sandbox = Sandbox(tmp_path, *turns)
    outcome = await sandbox.ralph("--yolo", "--max-iterations", "0", GOAL)
    assert outcome.status == DONE
    assert sandbox.callers == ["worker 1", "worker 2", "worker 3"]
    assert sandbox.evidence("yolo")["status"] == "passed"
    assert "The run relies on the agent's promise" in outcome.warnings


@pytest.mark.ci
async def test_a_promise_that_the_gates_deny_is_not_kept(tmp_path: Path) -> None:
    promising = {"say": f"\n{PROMISE}"}
    turns = [
        {"role": "worker", "attempt": 1, "do": [{"write": {"part1.txt": "BROKEN"}}, promising]},
        {"role": "worker", "attempt": 2, "do": [{"write": {"part1.txt": "fine"}}, promising]},
    ]
    sandbox = Sandbox(tmp_path, *turns)
    assert (await sandbox.ralph("--yolo", "--verify", CLEAN, GOAL)).status == DONE
    assert sandbox.callers == ["worker 1", "worker 2"]
    assert "You promised that all is done, but checks fail" in sandbox.prompts[1]["prompt"]


@pytest.mark.ci
async def test_yolo_that_does_not_move_is_stuck(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, {"role": "worker", "do": [{"say": "I am thinking."}]})
    outcome = await sandbox.ralph("--yolo", GOAL)
    assert outcome.status == ("blocked", "stuck", 5)
    assert len(sandbox.prompts) == 3
    sandbox.play({"role": "worker", "do": [BUSY, {"say": PROMISE}]})
    assert (await sandbox.resume()).status == DONE


@pytest.mark.ci
async def test_promises_that_the_same_error_denies_are_stuck(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, {"role": "worker", "do": [BUSY, {"say": PROMISE}]})
    gate = "echo line 7 is wrong, said after 0.$(date +%N) s; ! test -e work.txt"
    outcome = await sandbox.ralph("--yolo", "--max-iterations", "9", "--verify", gate, GOAL)
    assert outcome.status == ("blocked", "stuck", 5)
    assert "3 promises were denied by the same error" in outcome.end["message"]
    assert len(sandbox.prompts) == 3
    assert "line 7 is wrong" in sandbox.report
    sandbox.play({"role": "worker", "do": [{"delete": ["work.txt"]}, {"say": PROMISE}]})
    assert (await sandbox.resume()).status == DONE


@pytest.mark.ci
@pytest.mark.parametrize("lines", [4, 9])
async def test_promises_that_a_silent_check_denies_are_stuck_later(tmp_path: Path, lines: int) -> None:
    sandbox = Sandbox(tmp_path, {"role": "worker", "do": [BUSY, {"say": PROMISE}]})
    check = f'test ! -e work.txt || test "$(wc -l < work.txt)" -ge {lines}'
    outcome = await sandbox.ralph("--yolo", "--verify", check, GOAL)
    if lines == 4:
        assert outcome.status == DONE
        assert len(sandbox.prompts) == 4
    else:
        assert outcome.status == ("blocked", "stuck", 5)
        assert "6 promises were denied by the same error" in outcome.end["message"]
        assert (await sandbox.resume()).status == DONE
        assert len(sandbox.prompts) == 9


@pytest.mark.ci
async def test_yolo_counts_its_turns(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, {"role": "worker", "do": [BUSY, {"say": "More to do."}]})
    outcome = await sandbox.ralph("--yolo", "--max-iterations", "2", GOAL)
    assert outcome.status == ("paused", "max_iterations", 6)
    assert len(sandbox.prompts) == 2


# Trust


@pytest.mark.ci
@pytest.mark.parametrize("source", ["Makefile", ".atomic/config.toml"])
async def test_a_gate_of_the_project_runs_only_when_it_is_trusted(tmp_path: Path, source: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    canary = tmp_path / "canary"
    if source == "Makefile":
        command = "make test"
        (sandbox.project / source).write_text(f"test:\n\ttouch {canary}\n")
    else:
        command = f"touch {canary}"
        sandbox.user.project_sets(f'[workflows.ralph]\nverify = ["{command}"]\n')
    sandbox.commit_all("Check it")
    refused = await sandbox.ralph(GOAL)
    assert refused.exit_code == 4
    assert command in refused.end["message"]
    assert not canary.exists()
    assert sandbox.prompts == []
    shown = await sandbox.user.atomic("trust", "--show", "--json")
    seen = json.loads(shown.stdout)
    assert [(item["kind"], item["path"]) for item in seen["items"]] == [("gate", source)]
    assert (await sandbox.ralph("--trust", seen["hash"], GOAL)).status == DONE
    assert canary.exists()


@pytest.mark.ci
async def test_a_gate_that_the_user_gives_needs_no_trust(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    (sandbox.project / "Makefile").write_text("test:\n\t@echo fine\n")
    sandbox.commit_all("Make")
    assert (await sandbox.ralph("--verify", "make test", GOAL)).status == DONE
    assert (await sandbox.ralph("--dry-run", GOAL)).exit_code == 0


@pytest.mark.ci
async def test_the_last_message_of_a_failed_attempt_reaches_the_next_one_and_the_report(tmp_path: Path) -> None:
    cannot = {"role": "worker", "task": "1", "do": [{"say": "Cannot be done because the \x1b[31mAPI is gone\x1b[0m."}]}
    sandbox = Sandbox(tmp_path, PLAN, cannot)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("blocked", "stuck", 5)
    second = next(one for one in sandbox.prompts if one["role"] == "worker" and one["attempt"] == "2")
    assert "The last message of that attempt, unproven" in second["prompt"]
    assert "Cannot be done because the" in second["prompt"]
    assert "\x1b" not in second["prompt"]
    report = sandbox.report
    assert report.count("the worker's last message, unproven: Cannot be done because the") == 1
    assert "\x1b" not in report


@pytest.mark.ci
async def test_the_last_message_of_a_turn_without_a_promise_reaches_the_next_one(tmp_path: Path) -> None:
    lazy = {"role": "worker", "do": [{"say": "The second half is left: the parser has no tests yet."}]}
    sandbox = Sandbox(tmp_path, lazy)
    outcome = await sandbox.ralph("--yolo", "write a parser")
    assert outcome.status == ("blocked", "stuck", 5)
    assert "The second half is left" in sandbox.prompts[1]["prompt"]
    assert "the worker's last message, unproven: The second half is left" in sandbox.report


@pytest.mark.ci
async def test_each_line_of_progress_names_task_attempt_and_result(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1", times=1), writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == DONE
    lines = [line.partition(" ")[2] for line in (sandbox.session / "progress.txt").read_text().splitlines()]
    told = [line for line in lines if line.startswith("task 1")]
    assert all(line.startswith("task 1 Write part one: attempt ") for line in told)
    first, second = ([line for line in told if f"attempt {number}, " in line] for number in (1, 2))
    assert [line.split(", ", 1)[1].split(" (")[0] for line in first] == [
        "worker begins",
        "worker ended",
        "failed: no file has changed",
    ]
    assert [line.split(", ", 1)[1].split(" (")[0] for line in second] == ["worker begins", "worker ended", "done"]
    assert "true passed in" in second[-1]
    assert "1 files changed" in second[-1]
    assert [line for line in lines if line.endswith("tasks are done")] == [
        f"{at} of 2 tasks are done" for at in range(3)
    ]


@pytest.mark.ci
async def test_a_failed_call_of_an_agent_is_in_the_log_of_errors(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1", {"exit": 3}, times=1), writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph(GOAL)).status == DONE
    errors = (sandbox.session / "logs" / "errors.log").read_text()
    assert "acp:actor: the call of the worker of task 1 failed (error)" in errors
