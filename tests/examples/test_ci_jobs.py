"""The jobs of `examples/ci/` do what their page says, run by bash as GitHub runs them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from atomic.processes import ExecResult, execute
from tests.examples.test_cookbook import answers, git, has_script, is_repository
from tests.ralph.sandbox import APPROVE, PLAN, Sandbox, writing
from tests.support.user import ATOMIC, User
from tests.support.waits import HANG

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def step_of(job: str, name: str) -> str:
    """Return the commands of a step."""
    document: Any = yaml.safe_load((EXAMPLES / "ci" / f"{job}.yml").read_text(encoding="utf-8"))
    [step] = [step for step in document["jobs"][job]["steps"] if step.get("name") == name]
    return step["run"]


async def run_step(user: User, commands: str, **variables: str) -> ExecResult:
    """Run commands as a step with `shell: bash`."""
    env = {**user.env, "GITHUB_STEP_SUMMARY": str(user.home / "summary.md"), "RUNNER_TEMP": str(user.home), **variables}
    shell = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", commands)
    return await execute(*shell, cwd=user.project, env=env, timeout=HANG)


@pytest.fixture
def user(tmp_path: Path) -> User:
    """Return a user whose checkout is on the branch of a pull request."""
    user = User(tmp_path)
    (user.bin / "atomic").symlink_to(ATOMIC)
    workflows = user.project / ".atomic" / "workflows"
    workflows.mkdir(parents=True)
    shutil.copy(EXAMPLES / "workflows" / "ci_review.py", workflows)
    is_repository(user)
    git(user, "update-ref", "refs/remotes/origin/main", "main")
    (user.project / "a.py").write_text("x = 1\n")
    git(user, "add", "--all")
    git(user, "commit", "-q", "-m", "Add x")
    return user


async def review(user: User, answer: str, *, trust: str = "") -> ExecResult:
    shown = await user.atomic("trust", "--show", "--json")
    hash = trust or json.loads(shown.stdout)["hash"]
    agent = answers(user, ("[+]x = 1", answer))
    return await run_step(
        user, step_of("review", "Review"), GITHUB_BASE_REF="main", ATOMIC_TRUST=hash, ATOMIC_AGENT=agent
    )


def findings(*, blocking: bool) -> str:
    finding = {"file": "a.py", "line": 1, "text": "a bad name", "blocking": blocking}
    return json.dumps({"findings": [finding]})


async def test_the_review_is_green_without_a_blocking_finding(user: User) -> None:
    done = await review(user, findings(blocking=False))
    assert (done.exit_code, done.stdout) == (0, ""), done.stderr
    assert (user.home / "summary.md").read_text() == "a.py:1: a bad name\n"


async def test_the_review_is_red_if_a_finding_blocks(user: User) -> None:
    done = await review(user, findings(blocking=True))
    assert (done.exit_code, done.stdout) == (1, "::error::A finding blocks: see the summary of the job\n")
    assert (user.home / "summary.md").read_text() == "a.py:1: a bad name\n"


async def test_the_review_tells_a_broken_agent_from_a_finding(user: User) -> None:
    done = await review(user, "I cannot.")
    assert done.exit_code == 1
    assert done.stdout.startswith("::error::There is no review: review: ")


async def test_the_review_does_not_run_code_that_is_not_approved(user: User) -> None:
    done = await review(user, findings(blocking=False), trust="0" * 64)
    assert done.exit_code == 4
    assert done.stdout.startswith("::error::There is no review: --trust ")


async def test_ralph_works_on_the_goal_of_the_button(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    (sandbox.user.bin / "atomic").symlink_to(ATOMIC)
    has_script(sandbox.user.bin, "gh", 'echo "$@" >> "$HOME/gh.txt"')
    commands = step_of("ralph", "Work").replace("--pr ", "").replace('"make test"', "true")  # no forge and no makefile
    done = await run_step(sandbox.user, commands, GOAL="--write the parts")
    assert done.exit_code == 0, done.stderr
    assert (sandbox.user.home / "gh.txt").read_text() == "auth setup-git\n"
    await run_step(sandbox.user, step_of("ralph", "Report"))
    assert "--write the parts" in (sandbox.user.home / "summary.md").read_text()
