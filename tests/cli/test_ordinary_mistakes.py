"""Mistakes that every user makes: each one gets a true message, and nothing is left behind."""

from __future__ import annotations

import pytest

from atomic.processes import execute
from tests.support.terminal import in_terminal
from tests.support.user import ATOMIC, User, complaint
from tests.support.user_workflows import recording, session, sessions, workflow

ASKS = "workflow = graph(S).ask_user('q', 'Go on?').compile()\n"
FAILS = """
def boom(state):
    raise ValueError("the database is gone")

workflow = graph(S).tool("boom", boom).compile()
"""


@pytest.mark.parametrize("blocks", [1, 8])
async def test_a_run_that_a_full_disk_prevents_leaves_nothing_and_is_not_resumed(user: User, blocks: int) -> None:
    workflow(user, "asks", ASKS)
    # A limit of a file's size is as good as a full disk, and needs no disk.
    done = await execute(
        "/bin/sh", "-c", f'ulimit -f {blocks}; exec "$0" "$@" 2>&1 | cat', ATOMIC, "run", "asks", "x",
        cwd=user.project, env={**user.env, "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.stdout.startswith("atomic: Nothing was started: ")
    assert (
        "make room there, or correct its permissions, or set ATOMIC_HOME to another folder, then try again"
        in done.stdout
    )
    assert "resume" not in done.stdout
    assert sessions(user) == []


async def test_a_failed_run_is_shown_with_its_reason(user: User) -> None:
    workflow(user, "fails", FAILS)
    assert (await user.atomic("run", "fails", "x")).exit_code == 1
    shown = (await user.atomic("sessions", "show", session(user)["id"])).stdout.splitlines()
    place = "~/.atomic/workflows/fails.py:16"
    assert shown[2:4] == ["status    failed", f"reason    ValueError: the database is gone, at {place}"]


@pytest.mark.parametrize(
    "code",
    [
        "workflow = graph(S).agent('draft', lambda state: state.promt).compile()\n",
        "workflow = graph(S).if_(lambda state: state.promt, then=graph(S).tool('a', lambda: 1)).compile()\n",
        "workflow = graph(S).tool('one', lambda: 1, output_mapper=lambda answer, state: state.promt).compile()\n",
    ],
)
async def test_an_error_in_a_lambda_has_file_line_and_the_nearest_name(user: User, code: str) -> None:
    workflow(user, "typo", code)
    done = await user.atomic("run", "typo", "-a", recording(user), "x")
    expected = "'S' object has no attribute 'promt' (did you mean \"prompt\"?), at ~/.atomic/workflows/typo.py:14"
    assert (done.exit_code, "atomic: failed: " in done.stderr, expected in done.stderr) == (1, True, True), done.stderr


async def test_a_status_that_no_run_has_is_not_called_an_empty_list(user: User) -> None:
    workflow(user, "asks", ASKS)
    assert (await user.atomic("run", "asks", "x")).exit_code == 5
    done = await user.atomic("sessions", "list", "--status", "failed")
    assert (done.exit_code, done.stdout) == (0, "No run matches: atomic ps shows all.\n")
    elsewhere = user.home / "elsewhere"
    elsewhere.mkdir()
    done = await user.atomic("status", cwd=elsewhere)
    assert (done.exit_code, done.stdout.partition(":")[0]) == (0, "No runs of this folder yet")


async def test_a_cancelled_run_refuses_an_answer_with_the_true_reason(user: User) -> None:
    workflow(user, "asks", ASKS)
    assert (await user.atomic("run", "asks", "x")).exit_code == 5
    id = session(user)["id"]
    assert (await user.atomic("stop", "--cancel", id)).exit_code == 0
    done = await user.atomic("answer", id, "yes")
    assert done.exit_code == 2
    assert f"Run {id} was cancelled for good" in complaint(done)
    shown = (await user.atomic("sessions", "show", id)).stdout.splitlines()
    assert shown[2] == "status    cancelled"


async def test_a_completed_run_has_no_open_question(user: User) -> None:
    workflow(user, "asks", ASKS)
    assert (await user.atomic("run", "asks", "x")).exit_code == 5
    id = session(user)["id"]
    assert (await user.atomic("answer", id, "yes")).exit_code == 0
    done = await user.atomic("answer", id, "other", "no")
    assert (done.exit_code, complaint(done)) == (2, f"Run {id} has no open question: it is completed")


async def test_a_missing_recording_is_reported_before_there_is_a_run(user: User) -> None:
    workflow(user, "asks", ASKS)
    done = await user.atomic("run", "asks", "-a", "replay:nowhere.jsonl", "x")
    assert (done.exit_code, complaint(done)) == (
        2,
        "replay: nowhere.jsonl: it cannot be read: No such file or directory",
    )
    assert sessions(user) == []


async def test_an_unknown_conversation_opens_no_screen(user: User) -> None:
    words = (ATOMIC, "chat", "--resume", "12345678")
    async with in_terminal(words, env={**user.env, "TERM": "xterm"}, cwd=user.project) as terminal:
        assert await terminal.exit_code() == 2
        shown = await terminal.rest()
    assert shown == 'atomic: No session "12345678" (atomic sessions lists them)\n'


async def test_a_run_is_not_opened_as_a_conversation(user: User) -> None:
    workflow(user, "asks", ASKS)
    assert (await user.atomic("run", "asks", "x")).exit_code == 5
    id = session(user)["id"]
    done = await user.atomic("chat", "--plain", "--resume", id)
    assert (done.exit_code, complaint(done)) == (2, f"{id} is a run, not a conversation: atomic resume {id}")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('workers = "two"', 'a whole number for the built-in ralph, not "two"'),
        ("verify = 3", "a command or a list of commands for the built-in ralph, not 3"),
    ],
)
async def test_a_wrong_value_for_ralph_is_reported_with_its_file_and_line(user: User, line: str, expected: str) -> None:
    (user.home / ".atomic").mkdir()
    config = user.home / ".atomic" / "config.toml"
    config.write_text(f"[workflows.ralph]\n{line}\n")
    done = await user.atomic("run", "ralph", "-a", recording(user), "x")
    assert done.exit_code == 2
    key = line.partition(" ")[0]
    assert done.stderr.splitlines()[0] == f'atomic: warning: {config}:2: "workflows.ralph.{key}" must be {expected}'


async def test_the_plan_of_a_dry_run_is_on_standard_output(user: User) -> None:
    tasks = user.project / "todo.json"
    tasks.write_text('{"tasks": [{"id": "a", "title": "Write a.txt"}]}')
    done = await user.atomic("run", "ralph", "-a", recording(user), "--dry-run", "--tasks", str(tasks))
    assert done.exit_code == 0, done.stderr
    assert "Write a.txt" in done.stdout
    assert "Write a.txt" not in done.stderr


async def test_the_report_of_a_run_that_is_cancelled_later_says_so(user: User) -> None:
    workflow(user, "asks", ASKS)
    assert (await user.atomic("run", "asks", "x")).exit_code == 5
    (folder,) = sessions(user)
    report = folder / "report.md"
    report.write_text("# asks: paused\n\n- **To continue**: atomic answer\n")
    assert (await user.atomic("stop", "--cancel", folder.name)).exit_code == 0
    assert report.read_text().startswith("> **This run was cancelled for good")
    assert "To continue" not in report.read_text()


@pytest.mark.ci
@pytest.mark.parametrize(
    ("node", "code"),
    [("node", "async def work(ctx):\n    await asyncio.sleep(600)"), ("tool", "def work(state):\n    time.sleep(600)")],
)
async def test_the_cap_of_time_ends_a_function_of_a_workflow(user: User, node: str, code: str) -> None:
    (user.home / ".atomic").mkdir()
    (user.home / ".atomic" / "config.toml").write_text('[caps]\ngrace = "1s"\n')
    workflow(user, "slow", f"import time\n{code}\nworkflow = graph(S).{node}('work', work).compile()\n")
    done = await user.atomic("run", "slow", "--max-time", "1s", "x")
    assert done.exit_code == 6, done.stderr
    assert "the step work was interrupted, and a resume runs it again" in done.stderr
    assert (session(user)["status"], session(user)["reason"]) == ("paused", "max_time")
