"""Git and a worker's commit: hooks that refuse it, repositories inside the repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, worker, writing


async def test_a_commit_hook_that_refuses_is_in_the_title(tmp_path: Path) -> None:
    try_to_commit = {"sh": "git add -A && (git commit -q -m one 2>/dev/null || git reset -q)"}
    workers = [worker(task, {"write": {f"part{task}.txt": "x\n"}}, try_to_commit) for task in ("1", "2")]
    sandbox = Sandbox(tmp_path, PLAN, *workers, APPROVE)
    hook = sandbox.project / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho no lint, no commit >&2\nexit 1\n")
    hook.chmod(0o755)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    title = sandbox.report.partition("\n")[0]
    assert "2 files are not committed" in title
    assert "`pre-commit`" in title
    assert "pre-commit" in outcome.end["message"]


async def test_a_hook_is_not_blamed_if_everything_is_committed(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    hook = sandbox.project / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 0\n")
    hook.chmod(0o755)
    assert (await sandbox.ralph(GOAL)).status == ("completed", "done", 0)
    assert "pre-commit" not in sandbox.report


async def test_a_worker_may_add_a_submodule(tmp_path: Path) -> None:
    other = tmp_path / "other"
    for words in (["init", "-q", str(other)], ["-C", str(other), "commit", "-q", "--allow-empty", "-m", "Begin"]):
        name = ("-c", "user.name=A User", "-c", "user.email=user@example.invalid")
        subprocess.run(["git", *name, *words], check=True)
    (other / "lib.py").write_text("x = 1\n")
    subprocess.run(["git", "-C", str(other), "add", "."], check=True)
    subprocess.run(["git", "-C", str(other), *name, "commit", "-q", "-m", "Lib"], check=True)
    add = (
        f"git -c protocol.file.allow=always submodule add -q {other} vendor/other && git commit -q -m 'Add a submodule'"
    )
    sandbox = Sandbox(tmp_path, PLAN, worker("1", {"sh": add}), writing("2"), APPROVE)
    outcome = await sandbox.ralph(GOAL)
    assert outcome.status == ("completed", "done", 0)
    assert ".gitmodules" in sandbox.evidence("1")["changed_files"]
    assert "vendor/other" in sandbox.evidence("1")["changed_files"]
