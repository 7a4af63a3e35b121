"""What workers do to the history of their copies, and what becomes of tasks that cannot be merged."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from atomic.workspaces.merging import MergeQueue
from tests.ralph.sandbox import APPROVE, Sandbox, worker, writing
from tests.support.waits import eventually

WRITE = "echo {0} > same.txt && git add same.txt && git commit -qm 'Write {0}'"


def tasks_file(sandbox: Sandbox, *tasks: dict[str, Any]) -> str:
    path = sandbox.user.home / "tasks.json"
    path.write_text(json.dumps({"tasks": [{"title": f"Write part {one['id']}", **one} for one in tasks]}))
    return str(path)


def branch_of(sandbox: Sandbox) -> str:
    return f"atomic/{sandbox.session.name[:8]}"


def prompts_of(sandbox: Sandbox, task: str) -> list[str]:
    return [one["prompt"] for one in sandbox.prompts if one.get("task") == task]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("rewrite", "repair"),
    [
        pytest.param(
            "git commit -q --amend -m Mine", "git reset -q --soft main && git commit -qm Mine", id="amended start"
        ),
        pytest.param(
            "git checkout -q --detach HEAD~1 && git commit -qm Mine",
            "git rebase -q main",
            id="older commit",
            marks=pytest.mark.ci,
        ),
    ],
)
async def test_commits_without_the_start_of_the_task_are_no_result(tmp_path: Path, rewrite: str, repair: str) -> None:
    """The work of others that the start has would be lost."""
    first = worker("1", {"sh": f"echo one > one.txt && git add one.txt && {rewrite}"}, attempt=1)
    second = worker("1", {"sh": repair}, match="does not contain the commit")
    sandbox = Sandbox(tmp_path, first, second, APPROVE, isolate="overlay")
    (sandbox.project / "second.txt").write_text("the second commit\n")
    sandbox.commit_all("Add a second commit")
    done = await sandbox.ralph("--tasks", tasks_file(sandbox, {"id": "1"}), "--verify", "test -f README.md")
    assert done.status == ("completed", "done", 0), done.end
    assert sandbox.callers == ["worker 1 1", "worker 1 2", "reviewer 1"]
    assert sandbox.git("merge-base", "main", branch_of(sandbox)) == sandbox.git("rev-parse", "main")
    assert sandbox.git("ls-tree", "--name-only", branch_of(sandbox)).split() == ["README.md", "one.txt", "second.txt"]


async def test_a_rebase_that_is_left_in_progress_is_no_result(tmp_path: Path) -> None:
    """The files have both sides of the conflict in them, and no check of this project sees it."""
    workers = [worker(id, {"sh": WRITE.format(word)}, attempt=1) for id, word in (("1", "one"), ("2", "two"))]
    leave = {"sh": "git rebase -q atomic-tip; true"}
    finish = {"sh": "printf 'one\\ntwo\\n' > same.txt; git add same.txt; GIT_EDITOR=: git rebase --continue"}
    parts = [worker(id, finish, match="a rebase in progress") for id in "12"]
    parts += [worker(id, leave, match="`atomic-tip`") for id in "12"]
    sandbox = Sandbox(tmp_path, *parts, *workers, APPROVE, isolate="overlay")
    listed = tasks_file(sandbox, {"id": "1"}, {"id": "2"})
    done = await sandbox.ralph("--tasks", listed, "--workers", "2", "--verify", "test -f README.md")
    assert done.status == ("completed", "done", 0), done.end
    assert sandbox.git("show", f"{branch_of(sandbox)}:same.txt") == "one\ntwo"


@pytest.mark.ci
async def test_lines_of_others_that_a_worker_drops_are_shown_to_the_reviewer_and_the_user(tmp_path: Path) -> None:
    workers = [worker(id, {"sh": WRITE.format(word)}, attempt=1) for id, word in (("1", "one"), ("2", "two"))]
    mine = "git checkout -q -B mine atomic-tip && echo {0} > same.txt && git commit -qam 'Write {0}'"
    takers = [worker(id, {"sh": mine.format(word)}, match="`atomic-tip`") for id, word in (("1", "one"), ("2", "two"))]
    sandbox = Sandbox(tmp_path, *takers, *workers, APPROVE, isolate="overlay")
    listed = tasks_file(sandbox, {"id": "1"}, {"id": "2"})
    done = await sandbox.ralph("--tasks", listed, "--workers", "2", "--verify", "test -f README.md")
    assert done.status == ("completed", "done", 0), done.end
    [dropped] = [found for id in "12" if (found := sandbox.evidence(id).get("dropped"))]
    assert dropped in ({"same.txt": ["one"]}, {"same.txt": ["two"]})
    [review] = [one["prompt"] for one in sandbox.prompts if one["role"] == "reviewer"]
    assert "Merging a task took lines away that another task had added" in review
    assert "Merging took lines away that another task had added" in sandbox.report
    assert "merging took 1 line away that another task had added to same.txt" in done.warnings


async def move_branch(sandbox: Sandbox, number: int) -> None:
    """Wait for the turn of this number, put another line on the run's branch, and let the turn end."""
    home = sandbox.user.home
    await eventually((home / f"turn-{number}").exists)
    branch = branch_of(sandbox)
    blob = sandbox.git("hash-object", "-w", "--", str(home / f"theirs-{number}"))
    readme = sandbox.git("ls-tree", branch, "README.md")
    listed = home / "listed"
    listed.write_text(f"{readme}\n100644 blob {blob}\tsame.txt\n")
    tree = sandbox.git("-c", f"alias.make=!git mktree < {listed}", "make")
    commit = sandbox.git("commit-tree", tree, "-p", branch, "-m", "Theirs")
    sandbox.git("update-ref", f"refs/heads/{branch}", commit)
    (home / f"moved-{number}").touch()


@pytest.mark.ci
async def test_a_task_that_never_fits_is_given_up_with_both_sides(tmp_path: Path) -> None:
    """Each time that it is to be merged, the same line is already another one."""
    sandbox = Sandbox(tmp_path, isolate="overlay")
    parts: list[Any] = []
    for number in range(1, 6):
        (sandbox.user.home / f"theirs-{number}").write_text(f"theirs-{number}\n")
        mine = f"echo mine-{number} > same.txt && git add same.txt && git commit -qm Mine && touch ~/turn-{number}"
        wait = f"for i in $(seq 6000); do test -e ~/moved-{number} && break; sleep 0.02; done"
        parts.append(worker("1", {"sh": mine}, {"sh": wait}, attempt=number))
    sandbox.play(*parts)
    listed = tasks_file(sandbox, {"id": "1"})
    run = asyncio.create_task(sandbox.ralph("--tasks", listed, "--verify", "test -f README.md"))
    for number in range(1, 6):
        await move_branch(sandbox, number)
    done = await run
    assert done.status == ("blocked", "nothing_runnable", 5), done.end
    assert len(sandbox.callers) == 5
    prompts = prompts_of(sandbox, "1")
    assert ["begin again on top of theirs" in prompt for prompt in prompts] == [False, False, False, True, False]
    assert "+mine-" in prompts[3]
    assert "not merged: conflicts with other tasks in same.txt" in sandbox.report
    sides = sandbox.report.partition("Both sides of the conflict")[2]
    assert "theirs-" in sides
    assert "mine-" in sides


@pytest.mark.ci
async def test_the_dependants_of_a_failed_task_wait_and_the_others_are_done(tmp_path: Path) -> None:
    bad = worker("bad", {"sh": "echo BROKEN > broken.txt"})
    sandbox = Sandbox(tmp_path, bad, writing("1"), writing("2"), writing("3"), APPROVE, isolate="overlay")
    listed = tasks_file(
        sandbox, {"id": "bad"}, {"id": "1", "blocked_by": ["bad"]}, {"id": "2", "blocked_by": ["1"]}, {"id": "3"}
    )
    done = await sandbox.ralph("--tasks", listed, "--workers", "4", "--verify", "! grep -rqs BROKEN .")
    assert done.status == ("blocked", "nothing_runnable", 5), done.end
    assert sandbox.statuses == {"bad": "failed", "1": "pending", "2": "pending", "3": "completed"}
    assert sandbox.git("ls-tree", "--name-only", branch_of(sandbox)).split() == ["README.md", "part3.txt"]
    assert '- not done: "bad" failed\n' in sandbox.report
    assert '- not done: "bad" failed, further up the chain\n' in sandbox.report


@pytest.mark.ci
async def test_two_tasks_that_make_the_same_commit_are_both_done(tmp_path: Path) -> None:
    """Their checks do not use the same folder at the same time."""
    date = "GIT_AUTHOR_DATE=@1700000000 GIT_COMMITTER_DATE=@1700000000"
    same = {"sh": f"echo same > same.txt && git add same.txt && {date} git commit -qm Same"}
    sandbox = Sandbox(tmp_path, worker("1", same), worker("2", same), APPROVE, isolate="overlay")
    listed = tasks_file(sandbox, {"id": "1"}, {"id": "2"})
    done = await sandbox.ralph("--tasks", listed, "--workers", "2", "--verify", "sleep 1; test -f README.md")
    assert done.status == ("completed", "done", 0), done.end
    assert sandbox.evidence("1")["commit"] == sandbox.evidence("2")["commit"]


@pytest.mark.ci
async def test_of_the_tasks_that_wait_the_first_of_the_list_is_merged_next() -> None:
    queue = MergeQueue()
    served: list[int] = []

    async def merge(order: int) -> None:
        async with queue.turn(order):
            served.append(order)

    async with queue.turn(0):
        waiting = [asyncio.create_task(merge(order)) for order in (3, 1, 4, 2)]
        await asyncio.sleep(0)
        waiting[2].cancel()  # one that waits is given up
        await asyncio.sleep(0)
    await asyncio.gather(*waiting, return_exceptions=True)
    assert served == [1, 2, 3]
