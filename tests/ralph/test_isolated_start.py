"""The start of a run with workspaces: its set-up, and the checks in a copy and in the checkout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from atomic.base.errors import ExitCode
from tests.ralph.sandbox import APPROVE, Sandbox, worker, writing
from tests.ralph.test_isolated import task, tasks_file

SUITE = """\
import os, unittest

class Test(unittest.TestCase):
    def test_a_old(self):
        self.assertTrue(os.path.exists("fixed"))

    def test_b_good(self):
        self.assertFalse(os.path.exists("broken"))
"""
UNITTEST = "python3 -m unittest suite"


def one_task(tmp_path: Path, **files: str) -> Sandbox:
    """Return a project with these files, and a list with one task that writes part1.txt."""
    sandbox = Sandbox(tmp_path, writing("1"), APPROVE, isolate="overlay")
    for name, text in files.items():
        path = sandbox.project / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return sandbox


def commit(sandbox: Sandbox) -> None:
    sandbox.git("add", "-A")
    sandbox.git("commit", "-qm", "Prepare")


def add_settings(sandbox: Sandbox, text: str) -> None:
    path = sandbox.user.home / ".atomic" / "config.toml"
    path.write_text(path.read_text() + text)


def flags(sandbox: Sandbox, check: str) -> tuple[str, ...]:
    return ("--tasks", tasks_file(sandbox, task("1")), "--verify", check)


async def test_the_start_names_branch_workers_and_the_check(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path, **{"suite.py": SUITE.replace('"fixed"', '"."')})
    commit(sandbox)
    done = await sandbox.ralph(*flags(sandbox, UNITTEST))
    assert done.status == ("completed", "done", 0), done.end
    start = sandbox.git("rev-parse", "--short=7", "HEAD")
    assert (
        f"branch atomic/{sandbox.session.name[:8]} from main ({start}) · 4 workers, each in its own copy of the project"
        f" · check: {UNITTEST} (green, 2 tests)" in done.warnings
    )


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["overlay", "clone"])
async def test_the_users_command_sets_the_copies_up_once(tmp_path: Path, kind: str) -> None:
    count = tmp_path / "count"
    sandbox = Sandbox(tmp_path, writing("1"), writing("2"), APPROVE, isolate=kind)
    add_settings(sandbox, f'[workspace]\nsetup = "mkdir installed && echo x >> {count}"\n')
    (sandbox.project / ".gitignore").write_text("installed\n")
    commit(sandbox)
    (sandbox.project / "installed").mkdir()
    listed = tasks_file(sandbox, task("1"), task("2"))
    done = await sandbox.ralph("--tasks", listed, "--verify", "test -d installed")
    assert done.status == ("completed", "done", 0), done.end
    assert count.read_text() == "x\n"
    assert "set up by mkdir installed" in done.warnings


@pytest.mark.ci
async def test_the_projects_script_needs_trust_and_runs_as_approved(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path, **{".atomic__workspace-setup": "#!/bin/sh\ntouch made\n", ".gitignore": "made\n"})
    commit(sandbox)
    (sandbox.project / "made").touch()
    words = flags(sandbox, "test -f made")
    refused = await sandbox.ralph(*words)
    assert refused.exit_code == ExitCode.UNTRUSTED
    assert "set-up of workspaces (.atomic/workspace-setup)" in refused.stderr
    assert sandbox.callers == []
    [digest] = re.findall("--trust ([0-9a-f]{64})", refused.stderr)
    (sandbox.project / ".atomic/workspace-setup").write_text("touch other\n")
    assert (await sandbox.ralph("--trust", digest, *words)).exit_code == ExitCode.UNTRUSTED
    sandbox.git("checkout", "-q", ".")
    done = await sandbox.ralph("--trust", digest, *words)
    assert done.status == ("completed", "done", 0), done.end


async def test_a_failing_set_up_stops_the_run_before_anything_is_paid(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path)
    add_settings(sandbox, '[workspace]\nsetup = "echo no network; exit 3"\n')
    done = await sandbox.ralph(*flags(sandbox, "true"))
    assert done.status == ("blocked", "workspace", 5), done.end
    assert "failed (exit code 3)" in done.end["message"]
    assert "no network" in done.end["message"]
    assert sandbox.callers == []


async def test_a_check_that_fails_only_in_the_copy_stops_the_run_with_both_outputs(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path, **{".gitignore": "local\n.worktreeinclude\n"})
    commit(sandbox)
    (sandbox.project / "local").write_text("needed\n")
    check = "cat local || { echo there is no local; exit 1; }"
    done = await sandbox.ralph(*flags(sandbox, check))
    assert done.status == ("blocked", "workspace", 5), done.end
    assert "passes in your checkout and fails in a copy of it (exit code 1)" in done.end["message"]
    assert "there is no local" in done.end["message"]
    assert 'In your checkout: "needed"' in done.end["message"]
    assert sandbox.callers == []
    (sandbox.project / ".worktreeinclude").write_text("local\n")
    again = await sandbox.resume()
    assert again.status == ("completed", "done", 0), again.end


@pytest.mark.ci
async def test_fewer_tests_in_the_copy_stop_the_run(tmp_path: Path) -> None:
    suite = (
        "import os, unittest\nclass Test(unittest.TestCase):\n    def test_a(self): pass\n"
        "    if os.path.exists('local'):\n        def test_b(self): pass\n"
    )
    sandbox = one_task(tmp_path, **{".gitignore": "local\n", "suite.py": suite})
    commit(sandbox)
    (sandbox.project / "local").touch()
    done = await sandbox.ralph(*flags(sandbox, UNITTEST))
    assert done.status == ("blocked", "workspace", 5), done.end
    assert "runs 2 tests in your checkout and only 1 in a copy of it" in done.end["message"]


@pytest.mark.ci
async def test_a_resume_begins_with_the_commit_that_repairs_the_check(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path)
    done = await sandbox.ralph(*flags(sandbox, "test -f fixed"))
    assert done.status == ("blocked", "check_red", 5), done.end
    (sandbox.project / "fixed").touch()
    commit(sandbox)
    again = await sandbox.resume()
    assert again.status == ("completed", "done", 0), again.end
    branch = f"atomic/{sandbox.session.name[:8]}"
    assert sandbox.git("ls-tree", "--name-only", branch).split() == ["README.md", "fixed", "part1.txt"]
    assert sandbox.git("merge-base", branch, "main") == sandbox.git("rev-parse", "main")


@pytest.mark.ci
async def test_tests_that_failed_before_the_run_may_fail_and_no_others(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path, **{"suite.py": SUITE})
    breaking = worker("2", {"write": {"broken": ""}})
    sandbox.play(writing("1"), breaking, APPROVE)
    commit(sandbox)
    listed = tasks_file(sandbox, task("1"), task("2"))
    done = await sandbox.ralph("--tasks", listed, "--verify", UNITTEST)
    assert done.status == ("blocked", "nothing_runnable", 5), done.end
    assert sandbox.statuses == {"1": "completed", "2": "failed"}
    assert "red, 2 tests, 1 of them fail and may stay so" in done.warnings
    [check] = sandbox.evidence("1")["gates"]
    assert (check["exit_code"], check["tolerated"]) == (1, True)


@pytest.mark.ci
async def test_the_report_shows_first_that_fewer_tests_ran(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path, **{"suite.py": SUITE.replace('"fixed"', '"."')})
    sandbox.play(
        worker("1", {"write": {"suite.py": SUITE.partition("    def test_b_good")[0].replace("fixed", ".")}}), APPROVE
    )
    commit(sandbox)
    done = await sandbox.ralph(*flags(sandbox, UNITTEST))
    assert done.status == ("completed", "done", 0), done.end
    fewer = f"{UNITTEST} ran 1 tests after task 1, and 2 before the run"
    assert fewer in sandbox.report.splitlines()[0]
    [review] = [one["prompt"] for one in sandbox.prompts if one["role"] == "reviewer"]
    assert fewer in review
