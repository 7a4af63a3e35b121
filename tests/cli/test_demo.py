"""`atomic demo` for a user who has only Python, git and Atomic."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from atomic.loading.catalog import builtin_workflows
from atomic.processes import ExecResult
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, SDKS, User
from tests.support.user_workflows import session, sessions


@pytest.fixture
def newcomer(user: User) -> User:
    """Return a user without an agent, a name for git and a terminal."""
    user.lacks(*SDKS)
    user.env["ATOMIC_REPLAY_SPEED"] = "max"
    user.env["TMPDIR"] = str(user.home)
    return user


def line(done: ExecResult, name: str) -> str:
    """Return the text after a name, from the only line that begins with it."""
    [found] = re.findall(rf"^{name}: (.+)$", done.stdout, re.MULTILINE)
    return found


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


async def test_the_demo_leaves_a_real_repository_and_report(newcomer: User) -> None:
    done = await newcomer.atomic("demo")
    assert done.exit_code == 0, done.stderr
    look_at_the_repository(newcomer, Path(line(done, "Repository")), line(done, "Tests"))
    assert "generation 90 · 51 cells" in done.stdout  # the program prints it
    assert line(done, "Session") == session(newcomer)["id"]
    look_at_the_session(sessions(newcomer)[0])
    assert f"{line(done, 'Tests')} ended with exit code 1" in done.stderr
    assert "# Ralph completed: 4 of 4 tasks and 1 of 1 repair are done" in done.stdout
    shown = await newcomer.atomic("sessions", "show", session(newcomer)["id"][:8])
    assert (shown.exit_code, "2× gate[1]" in shown.stdout) == (0, True)


def look_at_the_repository(user: User, folder: Path, command: str) -> None:
    tests = subprocess.run(
        command, shell=True, cwd=folder, env=user.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (tests.returncode, "Ran 16 tests" in tests.stderr) == (0, True), tests.stderr
    assert git(folder, "status", "--porcelain") == ""
    assert git(folder, "log", "--format=%s").splitlines() == [
        "Draw the last row of an odd board",
        "Add the command that plays it",
        "Draw a board with half blocks",
        "Add patterns worth watching",
        "Let neighbours wrap around the edges",
        "Add the rules of Life",
        "Begin",
    ]


def look_at_the_session(folder: Path) -> None:
    """Check that a check failed once, the reviewer found a problem, and both were fixed."""
    proof = json.loads((folder / "evidence" / "1.json").read_text())
    assert (proof["status"], proof["attempt"]) == ("passed", 2)
    tasks = json.loads((folder / "tasks.json").read_text())["tasks"]
    assert {task["id"]: task["status"] for task in tasks} == dict.fromkeys(("1", "2", "3", "4", "fix-1-1"), "completed")
    assert tasks[-1]["title"] == "The last row of a board with an odd height is not drawn"
    assert json.loads((folder / "evidence" / "fix-1-1.json").read_text())["status"] == "passed"


@pytest.mark.full
async def test_the_demo_does_not_use_the_users_configuration(newcomer: User) -> None:
    newcomer.sets('agent = "claude"\nmodel = "opus"\n[caps]\nmax_tokens = 1\n[workflows.ralph]\nreview_rounds = 0\n')
    (newcomer.home / ".gitconfig").write_text("[commit]\ngpgsign = true\n[core]\nhooksPath = /nowhere\n")
    own = newcomer.home / ".atomic" / "workflows" / "ralph.py"
    own.parent.mkdir()
    own.write_text("raise SystemExit(9)\n")
    done = await newcomer.atomic("demo")
    assert (done.exit_code, session(newcomer)["status"]) == (0, "completed"), done.stderr


async def test_the_demo_shows_running_steps_in_a_terminal(newcomer: User) -> None:
    newcomer.env |= {"TERM": "xterm", "ATOMIC_REPLAY_SPEED": "4"}
    async with in_terminal([ATOMIC, "demo"], env=newcomer.env, cwd=newcomer.project) as terminal:
        await terminal.shows(", tasks ")  # how far it is, in the line that changes
        await terminal.shows("With a real agent")
        assert await terminal.exit_code() == 0


async def test_the_demo_without_git_explains_what_to_do(newcomer: User) -> None:
    newcomer.env["PATH"] = str(newcomer.bin)
    done = await newcomer.atomic("demo")
    assert (done.exit_code, "install git" in done.stderr) == (1, True)


def test_the_recording_is_short_and_names_no_machine() -> None:
    [demo] = [one.demo for one in builtin_workflows() if one.demo is not None]
    text = Path(demo.folder, "recording.jsonl").read_text("utf-8")
    calls = [json.loads(line) for line in text.splitlines()[1:]]
    assert sum(call["events"][-1][0] for call in calls) < 30  # seconds; the gates take their time too
    found = set(re.findall(r"(?<![\w.~<*])/(?:home|root|Users|tmp|work|opt|var)/[^\s\"'`\\]*", text))
    assert {path for path in found if not path.startswith("/home/demo/")} == set()
    assert {call["provider"] for call in calls} == {"claude"}  # it was made by the real program
    assert shlex.split(demo.tests)[0] == "{python}"
