"""`atomic run --every`: lines for cron and units for systemd that start the same run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from atomic.base.arguments import UsageError
from atomic.cli.schedule import crontab_line, read_interval, without_every
from tests.support.user import User
from tests.support.user_workflows import ledger, sessions, workflow

CODE = """
async def tell(ctx):
    note(ctx.state.prompt)

workflow = graph(S).node("tell", tell).compile()
"""
STRANGE = """it's 100% "sure" $HOME `id` \\ ; && # ü"""


@pytest.fixture
def user(tmp_path: Path) -> User:
    user = User(tmp_path)
    workflow(user, "w", CODE)
    return user


def as_cron_runs(line: str, folder: Path) -> None:
    """Run a line of a crontab: five fields, then a command in which only `\\%` is special."""
    command = line.split(" ", 5)[5]
    assert "%" not in command.replace("\\%", "")
    home = str(folder)
    subprocess.run(
        ["/bin/sh", "-c", command.replace("\\%", "%")], env={"HOME": home, "PATH": "/usr/bin:/bin"}, cwd="/", check=True
    )


async def test_the_crontab_line_starts_the_same_run(user: User) -> None:
    folder = user.project / "a % 'strange' folder"
    folder.mkdir()
    user.env["ATOMIC_HOME"] = str(user.home / ".atomic")
    done = await user.atomic("run", "--every", "1d", "w", STRANGE, cwd=folder)
    assert done.exit_code == 0, done.stderr
    assert sessions(user) == []
    lines = done.stdout.splitlines()
    assert lines[0] == "# Add this line to your crontab (crontab -e):"
    assert lines[1].startswith("0 0 * * * cd ")
    as_cron_runs(lines[1], user.home)
    assert (folder / "ledger.txt").read_text().splitlines() == [STRANGE]
    assert len(sessions(user)) == 1


async def test_the_units_of_systemd_name_the_same_command(user: User) -> None:
    done = await user.atomic("run", "w", "--every=6h", "--park", "-a", "claude", 'say "100%" for $5')
    assert done.exit_code == 0, done.stderr
    text = done.stdout
    start = next(line for line in text.splitlines() if line.startswith("ExecStart=") and '"run"' in line)
    assert start.endswith('"run" "w" "--park" "-a" "claude" "say \\"100%%\\" for $$5"')
    assert "--every" not in text
    assert f"WorkingDirectory={user.project}\n" in text
    assert "OnCalendar=0/6:00\n" in text
    assert "systemctl --user enable --now atomic-w.timer" in text
    wake = next(line for line in text.splitlines() if line.startswith("*/5 * * * * "))
    assert wake.endswith(" wake")
    assert "atomic-wake.timer" in text
    as_cron_runs(wake, user.home)
    assert ledger(user) == []


@pytest.mark.parametrize(
    ("text", "cron", "calendar"),
    [
        ("15m", "*/15 * * * *", "*:0/15"),
        ("60m", "0 */1 * * *", "0/1:00"),
        ("1h", "0 */1 * * *", "0/1:00"),
        ("6h", "0 */6 * * *", "0/6:00"),
        ("24h", "0 0 * * *", "daily"),
        ("1d", "0 0 * * *", "daily"),
        ("7d", "0 0 * * 0", "weekly"),
        ("1w", "0 0 * * 0", "weekly"),
    ],
)
def test_intervals(text: str, cron: str, calendar: str) -> None:
    assert read_interval(text) == (cron, calendar)


@pytest.mark.parametrize(
    "text", ["7m", "90m", "5h", "2d", "2w", "0m", "-1h", "daily", "1.5h", "", "1y", "1h30m", "１h"]
)
def test_other_intervals_are_refused_in_one_sentence(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_interval(text)
    assert str(refused.value).startswith(f'--every cannot be "{text}"')
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "rest"),
    [
        (["run", "--every", "1d", "w", "go"], ["run", "w", "go"]),
        (["run", "w", "--every=1d", "--", "--every", "x"], ["run", "w", "--", "--every", "x"]),
    ],
)
def test_the_flag_itself_is_left_out(words: list[str], rest: list[str]) -> None:
    assert without_every(words) == rest


async def test_what_cannot_be_scheduled_is_refused(user: User) -> None:
    for words, text in (
        (("--every", "1d"), "atomic run --every needs a WORKFLOW"),
        (("--every", "1d", "nope"), 'atomic run: "nope"'),
        (("--every", "1d", "w", "two\nlines"), "a crontab has one line for a command"),
        (("--every", "1d", "w", "-"), "the prompt cannot be -"),
        (("--every", "1d", "--resume", "12345678", "w"), "--every starts new runs, and --resume continues one"),
        (("--every",), "--every needs a value"),
    ):
        done = await user.atomic("run", *words)
        assert done.exit_code == 2, words
        assert text.removeprefix("atomic run: ") in done.stderr, done.stderr
    assert sessions(user) == []


def test_a_percent_sign_is_escaped_for_cron() -> None:
    assert crontab_line("0 0 * * *", ["date", "+%Y"]).endswith(r"date +\%Y")
