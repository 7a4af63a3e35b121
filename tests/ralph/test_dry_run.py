"""The command of a dry run does what the user requested and approved, and no more."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from tests.ralph.sandbox import APPROVE, GOAL, PLAN, Sandbox, writing

UNTRUSTED = 4


def suggested(report: str) -> list[str]:
    """Return the arguments of the command in the report."""
    command = report.partition("```sh\n")[2].partition("\n```")[0]
    return shlex.split(command)


async def test_the_command_of_a_dry_run_does_not_run_an_untrusted_makefile(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN, writing("1"), writing("2"), APPROVE)
    (sandbox.project / "Makefile").write_text("test:\n\ttouch ran\n")
    sandbox.commit_all("Add a check")
    assert (await sandbox.ralph("--dry-run", GOAL)).exit_code == 0
    words = suggested(sandbox.report)
    assert "--verify" not in words
    done = await sandbox.user.atomic(*words[1:])
    assert not (sandbox.project / "ran").exists()
    assert done.exit_code == UNTRUSTED, done.stderr


@pytest.mark.parametrize("owner", ["the user", "the project"])
async def test_the_report_names_the_configuration_of_a_check(tmp_path: Path, owner: str) -> None:
    sandbox = Sandbox(tmp_path, PLAN)
    verify = 'verify = ["touch ran"]\n'
    if owner == "the user":
        file = sandbox.user.home / ".atomic" / "config.toml"
        file.write_text(file.read_text() + verify)  # its last table is that of Ralph
    else:
        sandbox.user.project_sets(f"[workflows.ralph]\n{verify}")
    outcome = await sandbox.ralph("--dry-run", GOAL)
    assert outcome.exit_code == 0, outcome.stderr
    assert "--verify" not in suggested(sandbox.report)
    told = "your own configuration" if owner == "the user" else "the project's `.atomic/config.toml`"
    assert f"Check: `touch ran` (given by `verify` in {told})" in sandbox.report
    assert not (sandbox.project / "ran").exists()


async def test_the_command_of_a_dry_run_has_every_flag_that_was_given(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, PLAN)
    flags = [
        *("--max-cost", "2.5", "--max-tokens", "900000", "--max-time", "1h30m", "--turn-limit", "90s"),
        *("--idle-limit", "0", "--on-limit", "stop", "--agent", "worker=acp:actor", "--model", "worker=a model"),
        *("--verify", "test -f 'a b'", "--verify", "true", "--gate-timeout", "45s", "--red-checks", "goal"),
        *("--review-rounds", "3", "--reviewers", "2", "--workers", "2", "--max-iterations", "7", "--pr"),
    ]
    outcome = await sandbox.ralph("--dry-run", *flags, GOAL)
    assert outcome.exit_code == 0, outcome.events
    words = suggested(sandbox.report)
    pairs = {*pairwise(words)}
    expected = [pair for pair in zip(flags[:-1:2], flags[1::2], strict=True) if pair[0] != "--max-time"]
    assert [pair for pair in expected if pair not in pairs] == []
    assert ("--max-time", "5400s") in pairs
    assert "--pr" in words
    assert "--dry-run" not in words
    assert words[-2:] == ["--tasks", str(sandbox.session / "tasks.json")]
