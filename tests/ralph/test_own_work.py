"""A task is done only by its own turns; changes between processes are the user's."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from pathlib import Path
from typing import Any

import pytest

from atomic.ralph.turn_changes import ALIVE, keep_alive
from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, worker, writing
from tests.support.waits import eventually

DONE = ("completed", "done", 0)
KILL = {"sh": "kill -9 $(awk '{print $4}' /proc/$PPID/stat)"}  # the parent of the agent is Atomic
PROMISE = "<promise>COMPLETE</promise>"


def planning(count: int) -> dict[str, Any]:
    tasks = [{"id": str(number), "title": f"Write part {number}"} for number in range(1, count + 1)]
    return {"role": "planner", "do": [{"say": json.dumps({"tasks": tasks})}]}


def workers(sandbox: Sandbox) -> list[str]:
    return [one for one in sandbox.callers if one.startswith("worker")]


def edit_readme(sandbox: Sandbox) -> None:
    (sandbox.project / "README.md").write_text("the user's own text\n")


async def test_a_stuck_task_is_not_done_by_the_users_edit(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("blocked", "stuck", 5)
    edit_readme(sandbox)
    assert (await sandbox.resume()).status == ("blocked", "stuck", 5)
    assert workers(sandbox) == [f"worker 1 {number}" for number in range(1, 7)]
    assert sandbox.evidence("1")["changed_files"] == []


async def test_only_changes_of_a_resumed_worker_are_its_evidence(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1"), writing("2"), APPROVE)
    await sandbox.ralph("--verify", "true", GOAL)
    edit_readme(sandbox)
    sandbox.commit_all("The user's commit")
    mine = sandbox.git("rev-parse", "HEAD")
    sandbox.play(PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.resume()).status == DONE
    assert sandbox.evidence("1")["changed_files"] == ["part1.txt"]
    undo = sandbox.report.partition("## Commands to accept or undo")[2].partition("### `2`")[0]
    assert f"git revert --no-edit {mine}.." in undo


@pytest.mark.ci
async def test_undoing_all_of_a_run_keeps_commits_of_the_user(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status == ("paused", "max_iterations", 6)
    edit_readme(sandbox)
    sandbox.commit_all("The user's commit")
    assert (await sandbox.resume("--max-iterations", "9")).status == DONE
    commands = sandbox.report.partition("### All of it")[2].splitlines()
    for command in [line for line in commands if line.startswith("git revert")]:
        sandbox.git(*shlex.split(command, comments=True)[1:])
    assert (sandbox.project / "README.md").read_text() == "the user's own text\n"
    assert sandbox.git("ls-files") == "README.md"


@pytest.mark.ci
async def test_an_edit_by_the_user_between_turns_is_credited_to_no_task(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status == ("paused", "max_iterations", 6)
    edit_readme(sandbox)
    assert (await sandbox.resume("--max-iterations", "9")).status == ("blocked", "stuck", 5)
    assert sandbox.evidence("1")["changed_files"] == []


@pytest.mark.ci
async def test_an_edit_by_the_user_after_a_kill_is_credited_to_no_task(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    killed = tmp_path / "killed"
    check = f"test ! -f part1.txt || test -f {killed} || {{ touch {killed}; kill -9 $PPID; }}"
    assert (await sandbox.ralph("--verify", check, GOAL)).exit_code == -9
    edit_readme(sandbox)
    assert (await sandbox.resume()).status == DONE
    assert workers(sandbox) == ["worker 1 1", "worker 2 1"]
    assert sandbox.evidence("1")["changed_files"] == ["part1.txt"]
    assert sandbox.evidence("2")["changed_files"] == ["part2.txt"]


@pytest.mark.ci
async def test_a_kill_during_a_turn_leaves_its_work_and_nothing_that_came_later(tmp_path: Path) -> None:
    dying = worker("1", {"write": {"part1.txt": "part 1\n"}}, KILL, times=1)
    sandbox = Sandbox(tmp_path, PLAN, dying, worker("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).exit_code == -9
    assert (await sandbox.resume()).status == DONE  # the second worker found nothing left to do
    assert sandbox.evidence("1")["changed_files"] == ["part1.txt"]


@pytest.mark.ci
async def test_a_kill_during_a_turn_does_not_make_the_users_edit_its_work(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, worker("1", KILL, times=1), worker("1"), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).exit_code == -9
    a_minute_passes(sandbox)
    edit_readme(sandbox)
    assert (await sandbox.resume()).status == ("blocked", "stuck", 5)
    assert sandbox.evidence("1")["changed_files"] == []


def a_minute_passes(sandbox: Sandbox) -> None:
    alive = sandbox.session / ALIVE
    os.utime(alive, (alive.stat().st_atime, alive.stat().st_mtime - 60))


async def test_files_that_the_user_makes_after_a_kill_are_protected_from_the_resumed_worker(tmp_path: Path) -> None:
    """A new file, a changed one and a deleted one, as after a pause."""
    careless = worker("2", {"sh": "rm mine.txt"}, {"write": {"part2.txt": "part 2\n"}}, times=1)
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), worker("2", KILL, times=1), careless, writing("2"), APPROVE)
    (sandbox.project / "old.txt").write_text("old\n")
    sandbox.commit_all("Add a file")
    assert (await sandbox.ralph("--verify", "true", GOAL)).exit_code == -9
    a_minute_passes(sandbox)
    (sandbox.project / "mine.txt").write_text("mine\n")
    (sandbox.project / "old.txt").unlink()
    edit_readme(sandbox)
    outcome = await sandbox.resume()
    assert outcome.status == DONE
    [_, resumed, again] = [one["prompt"] for one in sandbox.prompts if one.get("task") == "2"]
    assert "These files are uncommitted work of the user: `README.md`, `mine.txt`, `old.txt`." in resumed
    assert "`mine.txt` was deleted" in again
    assert "your uncommitted work was touched by a turn or by you: `mine.txt` was deleted" in outcome.end["message"]
    assert "`mine.txt` was deleted" in sandbox.report.partition("\n")[0]
    assert (await sandbox.user.atomic("salvage", sandbox.session.name)).exit_code == 0
    assert (sandbox.project / "mine.txt").read_text() == "mine\n"
    assert not (sandbox.project / "old.txt").exists()


@pytest.mark.ci
async def test_a_draft_that_is_deleted_after_a_kill_is_not_blamed_on_the_worker_and_can_be_restored(
    tmp_path: Path,
) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), worker("2", KILL, times=1), writing("2"), APPROVE)
    (sandbox.project / "draft.md").write_text("a draft\n")
    assert (await sandbox.ralph("--verify", "true", GOAL)).exit_code == -9
    a_minute_passes(sandbox)
    (sandbox.project / "draft.md").unlink()
    assert (await sandbox.resume()).status == DONE
    assert workers(sandbox) == ["worker 1 1", "worker 2 1", "worker 2 1"]
    assert "your uncommitted work was touched" not in sandbox.report
    assert "draft.md" in sandbox.report
    salvage = await sandbox.user.atomic("salvage", sandbox.session.name)
    assert salvage.exit_code == 0
    assert [path.read_text() for path in sandbox.project.glob("draft.md*")] == ["a draft\n"]


async def test_files_of_a_killed_turn_are_not_the_users(tmp_path: Path) -> None:
    dying = worker("1", {"write": {"part1.txt": "half\n"}}, KILL, times=1)
    sandbox = Sandbox(tmp_path, PLAN, dying, writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).exit_code == -9
    assert (await sandbox.resume()).status == DONE
    assert "uncommitted work of the user" not in sandbox.prompts[2]["prompt"]
    assert sandbox.evidence("1")["changed_files"] == ["part1.txt"]


@pytest.mark.ci
async def test_yolo_is_not_credited_with_the_users_edit(tmp_path: Path) -> None:
    idle = {"role": "worker", "do": [{"say": "thinking"}]}
    sandbox = Sandbox(tmp_path, idle)
    assert (await sandbox.ralph("--yolo", "--max-iterations", "2", GOAL)).status == ("paused", "max_iterations", 6)
    edit_readme(sandbox)
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == ("blocked", "stuck", 5)
    assert len(sandbox.callers) == 3
    edit_readme(sandbox)
    sandbox.play({"role": "worker", "do": [{"write": {"new.txt": "new\n"}}, {"say": PROMISE}]})
    assert (await sandbox.resume()).status == DONE
    assert sandbox.evidence("yolo")["changed_files"] == ["new.txt"]


async def test_a_finished_task_that_the_user_reverts_during_a_pause_is_named_and_not_paid_again(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, planning(3), writing("1"), writing("2"), APPROVE)
    assert (await sandbox.ralph("--max-iterations", "1", GOAL)).status[0] == "paused"
    sandbox.git("revert", "--no-edit", "HEAD")
    sandbox.play(writing("2"), writing("3"), APPROVE)
    outcome = await sandbox.resume("--max-iterations", "9")
    assert outcome.status == DONE
    assert "the changes of task 1 were undone while no agent worked; the run does not do it again" in outcome.warnings
    assert workers(sandbox) == ["worker 1 1", "worker 2 1", "worker 3 1"]
    assert not (sandbox.project / "part1.txt").exists()
    assert "**Its changes were undone while no agent worked.**" in sandbox.report
    assert "undone while no agent worked: the changes of task `1`" in sandbox.report.partition("\n")[0]


async def test_a_finished_task_that_the_user_reverts_after_a_kill_is_named(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), worker("2", KILL, times=1), writing("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).exit_code == -9
    a_minute_passes(sandbox)
    sandbox.git("revert", "--no-edit", "HEAD")
    outcome = await sandbox.resume()
    assert outcome.status == DONE
    assert "the changes of task 1 were undone while no agent worked; the run does not do it again" in outcome.warnings
    assert "undone while no agent worked: the changes of task `1`" in outcome.end["message"]
    assert "undone while no agent worked: the changes of task `1`" in sandbox.report.partition("\n")[0]


@pytest.mark.ci
async def test_a_finished_task_that_the_user_undoes_before_the_review_is_in_the_title(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), worker("2"), APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == ("blocked", "stuck", 5)
    (sandbox.project / "part1.txt").unlink()
    sandbox.play(PLAN, writing("2"), APPROVE)
    assert (await sandbox.resume()).status == DONE
    assert workers(sandbox)[-1] == "worker 2 4"
    assert "undone while no agent worked: the changes of task `1`" in sandbox.report.partition("\n")[0]


@pytest.mark.ci
async def test_a_later_task_may_undo_an_earlier_one(tmp_path: Path) -> None:
    undoing = worker("2", {"sh": "git rm -q part1.txt; echo 2 > part2.txt; git add part2.txt; git commit -q -m Two"})
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), undoing, APPROVE)
    assert (await sandbox.ralph("--verify", "true", GOAL)).status == DONE
    assert workers(sandbox) == ["worker 1 1", "worker 2 1"]


# Caps


@pytest.mark.parametrize("workers_at_once", [pytest.param("1", marks=pytest.mark.ci), "3"])
async def test_a_cap_starts_no_task_and_is_reported_once(tmp_path: Path, workers_at_once: str) -> None:
    sandbox = Sandbox(tmp_path, planning(5), *(writing(id) for id in "12345"), APPROVE)
    words = ("--workers", workers_at_once, "--verify", "true")
    outcome = await sandbox.ralph("--max-iterations", "2", *words, GOAL)
    assert outcome.status == ("paused", "max_iterations", 6)
    assert len(outcome.end["message"]) < 300
    assert outcome.end["message"].count("max_iterations reached") == 1
    assert sorted(sandbox.statuses.values()) == ["completed", "completed", "pending", "pending", "pending"]
    assert (await sandbox.resume("--max-iterations", "20")).status == DONE


@pytest.mark.ci
async def test_after_a_cap_no_lazy_worker_is_credited_with_the_work_of_another(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, planning(5), *(writing(id) for id in "123"), *(worker(id) for id in "45"), APPROVE)
    await sandbox.ralph("--max-iterations", "2", "--verify", "true", GOAL)
    assert (await sandbox.resume("--max-iterations", "20")).status == ("blocked", "stuck", 5)
    assert sandbox.statuses == {"1": "completed", "2": "completed", "3": "completed", "4": "failed", "5": "failed"}


@pytest.mark.ci
async def test_a_cap_over_a_hundred_tasks_is_one_short_sentence(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, planning(100), *(writing(str(id)) for id in range(1, 4)), APPROVE)
    outcome = await sandbox.ralph("--max-iterations", "2", "--verify", "true", GOAL)
    assert outcome.status == ("paused", "max_iterations", 6)
    assert len(outcome.end["message"]) < 300
    assert list(sandbox.statuses.values()).count("pending") == 98


@pytest.mark.ci
async def test_turns_at_the_same_time_share_one_sign_of_life_until_the_last_ends(tmp_path: Path) -> None:
    async def touched() -> None:
        (tmp_path / ALIVE).unlink(missing_ok=True)
        await eventually(lambda: (tmp_path / ALIVE).exists())

    before = asyncio.all_tasks()
    first = keep_alive(tmp_path)
    second = keep_alive(tmp_path)
    async with asyncio.timeout(60):
        first.__enter__()
        with second:
            assert len(asyncio.all_tasks() - before) == 1
            await touched()
            first.__exit__(None, None, None)
            await touched()
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
