"""What a worker reaches outside of its workspace, and what that does to the run and its checks."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.ralph.sandbox import APPROVE, Sandbox, worker, writing
from tests.ralph.test_isolated import task, tasks_file

COMMIT = "git add -A && git commit -qm 'All done'"


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["overlay", "clone"])
async def test_a_worker_sees_no_session_and_no_terminal_of_the_user(tmp_path: Path, kind: str) -> None:
    sandbox = Sandbox(tmp_path, isolate=kind)
    home = sandbox.user.home
    terminals = home / f"tmux-{os.getuid()}"
    terminals.mkdir(mode=0o700)
    (terminals / "default").touch()
    sandbox.user.env["TMUX_TMPDIR"] = str(home)
    sessions = home / ".atomic" / "sessions"
    look = f"ls -A {sessions} {terminals} > seen.txt; rm -rf {sessions}/* {terminals}/*; {COMMIT}"
    sandbox.play(worker("1", {"sh": look}), writing("2"), APPROVE)
    words = ("--tasks", tasks_file(sandbox, task("1"), task("2", blocked_by=["1"])))
    done = await sandbox.ralph(*words, "--verify", f'test -z "$(ls -A {sessions} | grep -v :)"')
    assert done.status == ("completed", "done", 0), done.end
    assert sandbox.git("show", f"atomic/{sandbox.session.name[:8]}:seen.txt") == f"{sessions}:\n\n{terminals}:"
    assert [one.name for one in terminals.iterdir()] == ["default"]
    assert sandbox.statuses == {"1": "completed", "2": "completed"}


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["overlay", "clone", "none"])
async def test_a_check_does_not_count_while_a_file_above_the_project_steers_it(tmp_path: Path, kind: str) -> None:
    sandbox = Sandbox(tmp_path, isolate=kind)
    above = sandbox.user.home.parent
    (sandbox.user.home / ".npmrc").write_text("fund=false\n")  # of the user, and left as it is
    steer = f"echo '[pytest]' > {above}/pytest.ini; echo 1 > part1.txt; {COMMIT}"
    honest = f"test -f {above}/pytest.ini && rm {above}/pytest.ini"
    sandbox.play(worker("1", {"sh": steer}, attempt=1), worker("1", {"sh": honest}, attempt=2), APPROVE)
    done = await sandbox.ralph("--tasks", tasks_file(sandbox, task("1")), "--verify", "true")
    assert done.status == ("completed", "done", 0), done.end
    assert sandbox.callers == ["worker 1 1", "worker 1 2", "reviewer 1"]
    [again] = [one["prompt"] for one in sandbox.prompts if one["attempt"] == "2"]
    assert f"This result does not count (exit code 0): {above}/pytest.ini, above the project" in again
    assert f"true does not count: {above}/pytest.ini" in done.warnings
