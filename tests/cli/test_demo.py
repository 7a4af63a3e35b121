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
from tests.support.ordered_checks import ordered_checks
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, SDKS, User
from tests.support.user_workflows import session, sessions

WANTED = Path(__file__).parents[2] / "scripts" / "demo" / "end"  # the files at the end
RULES = ["Add the rules of Life", "Let neighbours wrap around the edges"]
PATTERNS = ["Add patterns worth watching"]
PICTURE = ["Draw a board with half blocks"]
REST = ["Add the command that plays it", "Draw the last row of an odd board"]


@pytest.fixture
def newcomer(user: User) -> User:
    """Return a user without an agent, a name for git and a terminal."""
    user.lacks(*SDKS)
    user.env["ATOMIC_REPLAY_SPEED"] = "max"
    user.env["TMPDIR"] = str(user.home)
    return user


def line(done: ExecResult, name: str) -> str:
    """Return the text after a name, from the only line that begins with it."""
    [found] = re.findall(rf"^{name}: (.+)$", done.stdout + done.stderr, re.MULTILINE)
    return found


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True, timeout=60).stdout


async def test_the_demo_leaves_a_real_repository_and_report(newcomer: User) -> None:
    done = await newcomer.atomic("demo")
    assert done.exit_code == 0, done.stderr
    look_at_the_repository(newcomer, Path(line(done, "Repository")), line(done, "Tests"))
    assert "generation 90 · 51 cells" in done.stdout  # the program in the checkout prints it
    assert line(done, "Session") == session(newcomer)["id"]
    look_at_the_session(sessions(newcomer)[0])
    assert f"{line(done, 'Tests')} ended with exit code 1" in done.stderr
    assert "# Ralph completed: 4 of 4 tasks and 1 of 1 repair are done" in done.stdout
    assert list((newcomer.home / ".atomic" / "workspaces").iterdir()) == []
    shown = await newcomer.atomic("sessions", "show", session(newcomer)["id"][:8])
    assert (shown.exit_code, "2× gate[1]" in shown.stdout) == (0, True)
    last = done.stdout.splitlines()[-1].removeprefix("So that `atomic` is enough: ")
    found = subprocess.run(["sh", "-c", f"{last}; command -v atomic"], env=newcomer.env, capture_output=True, text=True)
    assert found.stdout.strip() == str(ATOMIC), last


def look_at_the_repository(user: User, folder: Path, command: str) -> list[str]:
    """Check that the work is in the checkout, and return the subjects of the commits of
    tasks 1 to 3.
    """
    tests = subprocess.run(
        command, shell=True, cwd=folder, env=user.env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (tests.returncode, "Ran 16 tests" in tests.stderr) == (0, True), tests.stderr
    assert git(folder, "status", "--porcelain") == ""
    assert git(folder, "symbolic-ref", "HEAD").strip() == "refs/heads/main"
    for wanted in WANTED.rglob("*"):
        if wanted.suffix in (".py", ".md"):
            assert (folder / wanted.relative_to(WANTED)).read_bytes() == wanted.read_bytes()
    first, *parts = git(folder, "log", "--format=%s", "--reverse").splitlines()
    assert (first, parts[-2:]) == ("Begin", REST)
    assert sorted(parts[:-2]) == sorted([*RULES, *PATTERNS, *PICTURE])  # the conflict left no commit twice
    return parts[:-2]


@pytest.mark.ci
@pytest.mark.parametrize(
    ("order", "commits"), [("231", [*PATTERNS, *PICTURE, *RULES]), ("321", [*PICTURE, *PATTERNS, *RULES])]
)
async def test_the_demo_solves_the_conflict_whichever_task_is_merged_first(
    newcomer: User, order: str, commits: list[str]
) -> None:
    """The checks of a task wait until others are merged, so all three must run at once."""
    async with ordered_checks(newcomer.bin, newcomer.home, order):
        done = await newcomer.atomic("demo", timeout=900)
    assert done.exit_code == 0, done.stderr
    second = max("23", key=order.index)
    assert f"task {second}: conflicts with other tasks in README.md; back to its worker" in done.stderr
    assert done.stderr.count("conflicts with other tasks") == 1
    assert look_at_the_repository(newcomer, Path(line(done, "Repository")), line(done, "Tests")) == commits
    look_at_the_session(sessions(newcomer)[0])


@pytest.mark.ci
async def test_the_demo_works_in_clones_where_overlays_do_not_work(newcomer: User) -> None:
    temporary = newcomer.home / ".atomic" / "workspaces" / "temporary"  # a project below it has no overlays
    temporary.mkdir(parents=True)
    newcomer.env["TMPDIR"] = str(temporary)
    done = await newcomer.atomic("demo")
    assert done.exit_code == 0, done.stderr
    assert "workspaces are copies (clone), because overlay: the project is inside of" in done.stderr
    look_at_the_repository(newcomer, Path(line(done, "Repository")), line(done, "Tests"))


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
    assert "generation 90 · 51 cells" in done.stdout  # it was accepted


@pytest.mark.ci
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
    assert sum(call["events"][-1][0] for call in calls) < 35  # seconds; the checks take their time too
    found = set(re.findall(r"(?<![\w.~<*])/(?:home|root|Users|tmp|work|opt|var)/[^\s\"'`\\]*", text))
    assert {path for path in found if not path.startswith("/home/demo/")} == set()
    assert {call["provider"] for call in calls} == {"claude"}  # it was made by the real program
    assert shlex.split(demo.tests)[0] == "{python}"
