"""The branch of a run, while its user looks at it: in the checkout or in a linked worktree."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.base.errors import ExitCode
from tests.ralph.sandbox import APPROVE, Sandbox, worker, writing
from tests.ralph.test_isolated import task, tasks_file
from tests.support.user_workflows import started
from tests.support.waits import eventually


@pytest.mark.ci
@pytest.mark.parametrize("is_linked", [False, True])
async def test_the_branch_does_not_move_under_a_checkout_of_the_user(tmp_path: Path, is_linked: bool) -> None:
    sandbox = Sandbox(tmp_path, isolate="clone")
    home = sandbox.user.home
    waiting = worker("1", {"sh": f"touch {home}/began; while [ ! -e {home}/go ]; do sleep 0.05; done; echo 1 > part1"})
    sandbox.play(waiting, writing("2"), APPROVE)
    listed = tasks_file(sandbox, task("1"), task("2", blocked_by=["1"]))
    folder = home / "linked" if is_linked else sandbox.project
    async with started(sandbox.user, "run", "ralph", "--json", "--tasks", listed, "--verify", "true") as run:
        await eventually((home / "began").exists)
        branch = f"atomic/{sandbox.session.name[:8]}"
        sandbox.git(*(("worktree", "add", "-q", str(folder)) if is_linked else ("switch", "-q")), branch)
        (home / "go").touch()
        await run.over()
    assert sandbox.git("status", "--porcelain", cwd=folder) == ""
    again = await sandbox.resume()
    switch = f"git -C {folder} switch {'--detach' if is_linked else 'main'}"
    assert again.status[:2] == ("paused", "branch_changed"), again.end
    assert f"The checkout {folder} is on the branch {branch}" in again.end["message"]
    assert f"({switch}), then atomic resume {sandbox.session.name}" in again.end["message"]
    assert sandbox.git("status", "--porcelain", cwd=folder) == ""
    sandbox.git(*switch.split()[1:])
    done = await sandbox.resume()
    assert done.status == ("completed", "done", 0), done.end
    assert sandbox.callers == ["worker 1 1", "worker 2 1", "reviewer 1"]
    assert sandbox.git("ls-tree", "--name-only", branch).split() == ["README.md", "part1", "part2.txt"]


async def test_a_run_whose_branch_is_gone_pauses_before_it_pays_a_turn(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, writing("1"), worker("2", attempt="1"), worker("3", attempt="1"), isolate="clone")
    listed = tasks_file(sandbox, task("1"), task("2"), task("3"))
    done = await sandbox.ralph("--tasks", listed, "--verify", "true", "--workers", "3", "--max-iterations", "3")
    assert done.status[0] == "paused", done.end
    branch = f"atomic/{sandbox.session.name[:8]}"
    tip = sandbox.git("rev-parse", branch)
    sandbox.git("branch", "-D", branch)
    paid = len(sandbox.prompts)
    sandbox.play(writing("2"), writing("3"), APPROVE)
    again = await sandbox.user.atomic("resume", sandbox.session.name, "--max-iterations", "9")
    assert again.exit_code == ExitCode.WAITING, again
    assert len(sandbox.prompts) == paid
    assert f"The branch {branch} was deleted" in again.stderr
    said = again.stderr + sandbox.report.partition("## Commands")[2]
    assert f"git branch {branch} {tip[:12]}" in said
    for verb in ("accept", "undo", "diff", "discard"):
        assert f"atomic {verb}" not in said
        assert f"git {verb}" not in said
    sandbox.git("branch", branch, tip)
    assert (await sandbox.resume("--max-iterations", "9")).status == ("completed", "done", 0)
