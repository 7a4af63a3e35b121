"""Whatever happens to an isolated run, the user's checkout is byte for byte as before."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, finding, reviewing, worker, writing
from tests.ralph.test_isolated import KINDS, task, tasks_file
from tests.support.checkouts import CheckoutState, checkout_state
from tests.support.user import processes
from tests.support.user_workflows import started
from tests.support.waits import eventually
from tests.workspaces.worst import START, WORST

FAILING = worker("1", {"write": {"broken.txt": "BROKEN\n"}})
FINDING = reviewing(finding("Part one is poor"))


def prepared(sandbox: Sandbox) -> CheckoutState:
    """Leave everything in the checkout that a user may have there, and return its state."""
    project = sandbox.project
    (project / ".gitignore").write_text(".env\nnode_modules/\n")
    sandbox.commit_all("Ignore")
    sandbox.git("branch", "feature")
    (project / "stashed.txt").write_text("stashed\n")
    sandbox.git("stash", "-u")
    (project / "node_modules").mkdir()
    (project / "node_modules" / "index.js").write_text("dependency\n")
    for name, text in {
        ".env": "KEY=1\n",
        "draft.txt": "draft\n",
        "staged.txt": "staged\n",
        "README.md": "mine\n",
    }.items():
        (project / name).write_text(text)
    sandbox.git("add", "staged.txt")
    hook = project / ".git" / "hooks" / "post-commit"
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    return checkout_state(project)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("script", "status"),
    [
        pytest.param([PLAN, writing("1"), writing("2"), APPROVE], "completed", id="completed"),
        pytest.param([PLAN, FAILING, APPROVE], "blocked", id="failed", marks=pytest.mark.ci),
        pytest.param([PLAN, writing("1"), writing("2"), FINDING], "blocked", id="blocked", marks=pytest.mark.ci),
        pytest.param([{"role": "planner", "do": [{"exit": 1}]}], "failed", id="no plan", marks=pytest.mark.ci),
    ],
)
async def test_the_checkout_is_untouched_however_a_run_ends(
    tmp_path: Path, kind: str, script: list[dict[str, Any]], status: str
) -> None:
    sandbox = Sandbox(tmp_path, *script, isolate=kind)
    before = prepared(sandbox)
    done = await sandbox.ralph("--verify", "! grep -rqs BROKEN .", "--review-rounds", "1", GOAL)
    assert done.end["status"] == status, done.end
    assert before.changes_to(checkout_state(sandbox.project)) == []


@pytest.mark.ci
@pytest.mark.parametrize("kind", KINDS)
async def test_the_checkout_is_untouched_by_a_run_that_is_killed_and_resumed(tmp_path: Path, kind: str) -> None:
    sandbox = Sandbox(tmp_path, isolate=kind)
    home = sandbox.user.home
    dying = worker("1", {"sh": f"echo half > half.txt; touch {home}/began; sleep 600"}, times=1)
    sandbox.play(dying, writing("1"), APPROVE)
    before = prepared(sandbox)
    words = ("run", "ralph", "--json", "--tasks", tasks_file(sandbox, task("1")))
    async with started(sandbox.user, *words) as run:
        await eventually((home / "began").exists)
        run.signal(signal.SIGKILL)
        await run.over()
    assert before.changes_to(checkout_state(sandbox.project)) == []
    done = await sandbox.resume()
    assert done.status == ("completed", "done", 0), done.end
    assert before.changes_to(checkout_state(sandbox.project)) == []


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["overlay", pytest.param("clone", marks=pytest.mark.full)])  # a minute of work each
async def test_the_checkout_is_untouched_by_workers_that_do_their_worst(tmp_path: Path, kind: str) -> None:
    """The scripts of all of them are tasks of one run, which has four workers."""
    sandbox = Sandbox(tmp_path, isolate=kind)
    project = sandbox.project
    home = sandbox.user.home / ".atomic"
    with subprocess.Popen(["sleep", "3600"]) as victim:
        variables = (
            f"PROJECT={project} ORIGIN={project} HOME_OF_ATOMIC={home} VICTIM={victim.pid} WITNESS={tmp_path}/witness"
        )
        workers = [
            worker(id_of(name), {"sh": f"export {variables}; {START}; {script}\ntrue"})
            for name, script in WORST.items()
        ]
        sandbox.play(*workers, APPROVE)
        (project / "a.txt").write_text("one\n")
        (project / "src").mkdir()
        (project / "src" / "b.txt").write_text("two\n")
        before = prepared(sandbox)
        listed = tasks_file(sandbox, *(task(id_of(name)) for name in WORST))
        done = await sandbox.ralph("--tasks", listed, "--verify", "true", "--workers", "4", timeout=1800)
        assert victim.poll() is None
        victim.kill()
    assert done.end["status"] in ("completed", "blocked"), done.end
    assert {"completed", "failed"} >= set(sandbox.statuses.values())
    assert not (tmp_path / "witness").exists()
    await eventually(lambda: not processes(sandbox.user.home))
    assert before.changes_to(checkout_state(project)) == []


def id_of(name: str) -> str:
    return name.replace(" ", "-").replace("'", "")
