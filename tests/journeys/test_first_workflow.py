"""The tutorials: a workflow that is written, run, killed, continued and tested."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.conftest import Newcomer
from tests.support.plain_install import ROOT
from tests.support.terminal import in_terminal
from tests.support.user_workflows import call, end, recording, started
from tests.support.waits import eventually

pytestmark = pytest.mark.full
TUTORIALS = ROOT / "docs" / "tutorials"
ENTRIES = '{"entries": ["Add a login page"]}'


def blocks(page: str) -> dict[str, str]:
    """Return the files that a tutorial shows, by the name of the example."""
    text = (TUTORIALS / page).read_text(encoding="utf-8")
    found = re.findall(r"<!-- file: (\S+) -->\n```\w+\n(.*?)```", text, re.DOTALL)
    return {Path(name).name: code for name, code in found}


async def writes_the_workflow(newcomer: Newcomer) -> None:
    newcomer.makes_repository()
    for line in ("atomic init", "atomic workflows new changelog"):
        assert newcomer.types(line).returncode == 0
    file = newcomer.project / ".atomic" / "workflows" / "changelog.py"
    file.write_text(blocks("first-workflow.md")["changelog.py"])
    async with in_terminal([newcomer.program, "trust"], env=newcomer.env, cwd=newcomer.project) as terminal:
        await terminal.shows("[y/N] ")
        terminal.type("y\n")
        assert await terminal.exit_code() == 0


def steps(newcomer: Newcomer, run: str) -> list[str]:
    """Return the finished steps of a run, in order."""
    shown = newcomer.types(f"atomic sessions show {run} --json")
    assert shown.returncode == 0, shown.stderr
    rows: list[dict[str, Any]] = json.loads(shown.stdout)["steps"]
    return [row["node"] for row in rows if row["status"] == "completed"]


async def test_the_first_workflow_is_killed_and_continues(newcomer: Newcomer) -> None:
    await writes_the_workflow(newcomer)
    assert newcomer.types("atomic workflows check").returncode == 0
    assert "commits" in newcomer.types("atomic workflows graph changelog").stdout

    # The answer comes an hour after the prompt, so the process is killed while the agent works.
    newcomer.env["ATOMIC_AGENT"] = recording(newcomer, call({"type": "text_delta", "text": "{"}, end(), pause=3600.0))
    del newcomer.env["ATOMIC_REPLAY_SPEED"]
    async with started(newcomer, "run", "changelog", "--json") as running:
        begun = await running.until("node_started", node="write")
        running.signal(signal.SIGKILL)
        await running.over()
    run = begun["run"][:8]
    await eventually(lambda: "interrupted" in newcomer.types("atomic sessions").stdout)
    assert run in newcomer.types("atomic sessions").stdout
    assert steps(newcomer, run) == ["commits"]

    recording(newcomer, call(end(ENTRIES)))
    resumed = newcomer.types(f"atomic resume {run}")
    assert resumed.returncode == 5, resumed.stderr
    assert f"atomic answer {run}" in resumed.stdout + resumed.stderr
    [line] = re.findall(r"^atomic answer \S+ publish yes$", (TUTORIALS / "first-workflow.md").read_text(), re.MULTILINE)
    answered = newcomer.types(line.replace("3f2a9c1e", run))
    assert answered.returncode == 0, answered.stderr
    assert (newcomer.project / "CHANGELOG.md").read_text() == "# Changelog\n\n* Add a login page\n"
    assert steps(newcomer, run).count("commits") == 1


async def test_the_first_test_of_a_workflow(newcomer: Newcomer) -> None:
    await writes_the_workflow(newcomer)
    files = blocks("first-test.md")
    folder = newcomer.project / "tests"
    folder.mkdir()
    for name in ("changelog.jsonl", "test_changelog.py", "test_step.py"):
        (folder / name).write_text(files[name])
    done = newcomer.types("pytest -q tests/test_changelog.py tests/test_step.py")
    assert (done.returncode, "2 passed" in done.stdout) == (0, True), done.stdout + done.stderr
    # A test that could not fail would prove nothing.
    (folder / "changelog.jsonl").write_text(files["changelog.jsonl"].replace("login", "logout"))
    assert "1 failed, 1 passed" in newcomer.types("pytest -q tests").stdout


def test_the_program_of_the_readme_pauses_and_continues(newcomer: Newcomer) -> None:
    """Run it as it stands with only the wheel installed, then ask the question in one process and answer in another."""
    code = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (newcomer.project / "ship.py").write_text(code)
    done = newcomer.types("python ship.py")
    said = ["building 1.2", "Deploy app-1.2.tar.gz?", "app-1.2.tar.gz is live"]
    assert done.stdout.splitlines() == said, done.stderr

    asks = code.partition("    # The process may end here")[0] + "\n\nasyncio.run(main())\n"
    answers = 'print(asyncio.run(ship.resume("again.db", "mine", answers={"go": "no"})).result)\n'
    (newcomer.project / "ship.py").write_text(asks.replace("runs.db", "again.db"))
    assert newcomer.types("python ship.py").stdout.splitlines() == said[:2]
    (newcomer.project / "later.py").write_text(asks.partition("async def main")[0] + answers)
    assert newcomer.types("python later.py").stdout.splitlines() == ["app-1.2.tar.gz is kept back"]
