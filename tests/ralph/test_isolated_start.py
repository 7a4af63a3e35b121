"""The start of a run with workspaces: its set-up, and the checks in a copy and in the checkout."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from atomic.base.errors import ExitCode
from tests.ralph.sandbox import APPROVE, Sandbox, worker, writing
from tests.ralph.test_isolated import task, tasks_file
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, complaint

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
        f" (overlay) · check: {UNITTEST} (green, 2 tests)" in done.warnings
    )


async def test_the_first_line_says_where_the_work_goes_also_after_a_resume(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path)
    listed = tasks_file(sandbox, task("1"))
    words = ("run", "ralph", "--tasks", listed, "--verify", "true", "--review-rounds", "0", "--max-iterations", "1")
    sandbox.play(worker("1", attempt="1"), writing("1"))
    done = await sandbox.user.atomic(*words)
    lines = done.stderr.splitlines()
    id = sandbox.session.name
    start = sandbox.git("rev-parse", "--short=7", "HEAD")
    first = (
        f"branch atomic/{id[:8]} from main ({start}) · 4 workers, each in its own copy of the project (overlay)"
        " · check: true (green)"
    )
    assert lines[:3] == [first, f"Session: {id}", "look at the project and its checks"]
    again = await sandbox.user.atomic("resume", id, "--max-iterations", "5")
    assert again.exit_code == 0, again
    assert again.stderr.splitlines()[:2] == [first, f"Resuming {id}"]


async def test_at_a_terminal_the_first_line_says_where_the_work_goes(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path)
    words = (
        ATOMIC,
        "run",
        "ralph",
        "--tasks",
        tasks_file(sandbox, task("1")),
        "--verify",
        "true",
        "--isolate",
        "none",
        "--review-rounds",
        "0",
    )
    async with in_terminal(words, env=sandbox.user.env, cwd=sandbox.project) as terminal:
        await terminal.shows("Session: ")
    first = "in your checkout itself (--isolate none) · one worker · check: true (green)"
    assert terminal.screen.index(first) < terminal.screen.index("Session: ")


async def test_a_run_that_is_blocked_by_its_checks_begins_with_the_first_line(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path)
    done = await sandbox.user.atomic("run", "ralph", *flags(sandbox, "test -f fixed"))
    assert done.exit_code == ExitCode.WAITING
    lines = done.stderr.splitlines()
    assert lines[0].endswith("each in its own copy of the project (overlay) · check: test -f fixed (red)")
    assert lines[1].startswith("Session: ")
    assert done.stderr.count("in its own copy") == 1


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
    shown = await sandbox.user.atomic("trust", "--show")
    digest = re.findall("[0-9a-f]{64}", shown.stdout + shown.stderr)[-1]
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
    assert "there is no local\n--- in your checkout:" in done.end["message"]
    assert done.end["message"].endswith("\n--- in your checkout:\nneeded")
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
    assert sandbox.git("for-each-ref", "--format=%(refname)", "refs/heads/atomic") == ""
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


@pytest.mark.ci
async def test_a_check_that_is_the_goal_keeps_the_run_open_until_it_is_green(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, writing("1"), {"role": "fixer", "do": [{"say": "nothing"}]}, APPROVE, isolate="overlay")
    done = await sandbox.ralph(*flags(sandbox, "test -f part2.txt"), "--red-checks", "goal")
    assert done.status == ("blocked", "check_red", ExitCode.WAITING), done.end
    assert "fixer" in sandbox.callers[1]
    sandbox.play({"role": "fixer", "do": [{"write": {"part2.txt": "2\n"}}, {"say": "fixed"}]}, APPROVE)
    assert (await sandbox.resume()).status == ("completed", "done", 0)


@pytest.mark.parametrize("is_empty", [True, pytest.param(False, marks=pytest.mark.ci)])
async def test_a_folder_that_the_commit_does_not_have_is_named_before_anything_is_paid(
    tmp_path: Path, is_empty: bool
) -> None:
    sandbox = one_task(tmp_path)
    new = sandbox.project / "deep" / "new"
    new.mkdir(parents=True)
    if not is_empty:
        (new / "draft.txt").write_text("draft\n")
    words = ("run", "ralph", "--tasks", tasks_file(sandbox, task("1")), "--verify", "true")
    done = await sandbox.user.atomic(*words, cwd=new)
    assert done.exit_code == ExitCode.WAITING, done
    assert "has no folder deep/new/, in which the run was started" in done.stderr
    assert ("start again with --include-uncommitted or in" in done.stderr) is not is_empty
    assert sandbox.prompts == []
    (new / "draft.txt").write_text("draft\n")
    commit(sandbox)
    again = await sandbox.resume()
    assert again.status == ("completed", "done", 0), again.end
    branch = f"atomic/{sandbox.session.name[:8]}"
    assert "deep/new/part1.txt" in sandbox.git("ls-tree", "-r", "--name-only", branch)


@pytest.mark.parametrize("place", ["branch", "check", "path"])
async def test_bytes_that_are_not_utf_8_are_one_sentence_and_no_session(tmp_path: Path, place: str) -> None:
    sandbox = one_task(tmp_path)
    bad = os.fsdecode(b"in\xffval")
    cwd = sandbox.project
    words = ["run", "ralph", "--verify", "true", "Write a part"]
    if place == "branch":
        sandbox.git("update-ref", f"refs/heads/{bad}", "HEAD")
        sandbox.git("symbolic-ref", "HEAD", f"refs/heads/{bad}")
    elif place == "path":
        cwd = sandbox.project.with_name(bad)
        sandbox.project.rename(cwd)
    else:
        words[3] = f"echo {bad}"
    done = await sandbox.user.atomic(*words, cwd=cwd)
    assert done.exit_code == ExitCode.USAGE, done
    assert "has bytes that are not UTF-8, and Atomic stores only UTF-8" in complaint(done)
    assert not list((sandbox.user.home / ".atomic" / "sessions").glob("*"))


MAKEFILE = "test:\n\t@python3 -m unittest suite\nlint:\n\t@! grep -qs BADSTYLE style.txt\n"
FIXED_AND_BAD = {"style.txt": "BADSTYLE\n", "fixed": ""}
CRASH = SUITE + "import atexit\natexit.register(lambda: os.kill(os.getpid(), 11))\n"
HIDDEN = "python3 -m unittest suite; a=$?; make -s lint || a=1; exit $a"


@pytest.mark.parametrize(
    ("check", "broken"),
    [
        pytest.param(
            "make -k test lint",
            {"style.txt": "BADSTYLE\n"},
            id="another target fails, same exit code",
            marks=pytest.mark.ci,
        ),
        pytest.param(
            f"{UNITTEST}; a=$?; make -s lint || exit 7; exit $a",
            FIXED_AND_BAD,
            id="all tests pass, another exit code",
            marks=pytest.mark.ci,
        ),
        pytest.param(HIDDEN, FIXED_AND_BAD, id="all tests pass, same exit code"),
        pytest.param(UNITTEST, {"suite.py": CRASH}, id="a signal after the tests", marks=pytest.mark.ci),
        pytest.param(
            f"{UNITTEST}; exit $?", {"suite.py": CRASH}, id="a signal that the shell reports", marks=pytest.mark.ci
        ),
    ],
)
async def test_a_check_with_known_failures_is_red_if_anything_else_fails(
    tmp_path: Path, check: str, broken: dict[str, str]
) -> None:
    sandbox = one_task(tmp_path, **{"suite.py": SUITE, "Makefile": MAKEFILE, ".gitignore": "__pycache__/\n"})
    sandbox.play(worker("1", {"write": broken}), APPROVE)
    commit(sandbox)
    done = await sandbox.ralph(*flags(sandbox, check))
    assert done.status == ("blocked", "nothing_runnable", 5), done.end
    [result] = sandbox.evidence("1")["gates"]
    assert result["exit_code"] != 0
    assert "tolerated" not in result


async def test_a_check_that_was_never_green_is_compared_and_proves_nothing(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path, **{"suite.py": SUITE, "Makefile": "# moves lines\n" + MAKEFILE})
    sandbox.play(worker("1", {"write": {"part1.txt": "1\n", "Makefile": MAKEFILE}}), APPROVE)
    commit(sandbox)
    done = await sandbox.ralph(*flags(sandbox, "make test"))
    assert done.status == ("completed", "done", 0), done.end
    assert done.end["verified"] is False
    title = sandbox.report.splitlines()[0]
    assert "completed, not verified" in title
    assert "make test: 1 known failure is left (only tests were compared)" in title
    assert "proven" not in sandbox.report
    assert "proves nothing" not in sandbox.report
    assert "no other test fails than before the run. Nothing else was compared." in sandbox.report
    [review] = [one["prompt"] for one in sandbox.prompts if one["role"] == "reviewer"]
    assert "Nothing else of its output was compared" in review


@pytest.mark.ci
async def test_a_check_with_known_failures_must_pass_once_it_has_passed(tmp_path: Path) -> None:
    sandbox = one_task(tmp_path, **{"suite.py": SUITE})
    unfixing = worker("2", {"sh": "rm fixed"})
    sandbox.play(worker("1", {"write": {"fixed": ""}}), unfixing, APPROVE)
    commit(sandbox)
    listed = tasks_file(sandbox, task("1"), {**task("2"), "depends_on": ["1"]})
    done = await sandbox.ralph("--tasks", listed, "--verify", UNITTEST)
    assert done.status == ("blocked", "nothing_runnable", 5), done.end
    assert sandbox.statuses == {"1": "completed", "2": "failed"}
