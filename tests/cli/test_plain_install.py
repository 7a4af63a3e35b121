"""The wheel in a virtual environment of its own, without any extra, and the user's own agents on PATH.

Nothing is hidden or simulated: packages that are not dependencies are missing.
"""

from __future__ import annotations

import asyncio
import json
import re
import tomllib
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from atomic.processes import execute
from tests.ralph.agents import Stage, stage_for
from tests.ralph.nim import APPROVAL
from tests.support.plain_install import CLAUDE, ROOT, install_wheel
from tests.support.programs import FOLDER
from tests.support.user import User
from tests.support.waits import HANG as LIMIT
from tests.support.window import window

NAMES = ("claude", "opencode", "copilot")
PROGRAMS = {
    "claude": CLAUDE,
    "opencode": FOLDER / "opencode",
    "copilot": FOLDER / "copilot",
}
TASKS = {"tasks": [{"id": "1", "content": "Write hello.txt", "status": "pending"}]}
CHECK = "git log -1"  # green before the run and after it


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, install it with only pip, and return the folder of its programs."""
    return install_wheel(tmp_path_factory.mktemp("plain"))


@pytest.fixture
def user(installed: Path, tmp_path: Path) -> User:
    """Return a user who has installed only the wheel."""
    user = User(tmp_path)
    user.program = installed / "atomic"
    del user.env["PYTHONPATH"]
    return user


@pytest.fixture(params=NAMES)
async def stage(request: pytest.FixtureRequest, user: User, tmp_path: Path) -> AsyncGenerator[Stage]:
    """Prepare one agent's own program on PATH, a repository, and a model that plays Ralph's parts."""
    name: str = request.param
    (user.bin / name).symlink_to(PROGRAMS[name])
    async with stage_for(tmp_path, name, user=user) as stage:
        for variable in ("ATOMIC_AGENT", "ATOMIC_OPENCODE_PATH", "ATOMIC_COPILOT_PATH"):
            user.env.pop(variable, None)
        stage.model.play(
            {
                "hello": "Hello there.",
                "worker": stage.work({"hello.txt": "hello\n"}),
                "reviewer": [[stage.words.custom("submit_review", APPROVAL)], "Done."],
            }
        )
        yield stage


async def test_the_users_own_agent_is_found_answers_and_runs_ralph(stage: Stage) -> None:
    doctor = await stage.user.atomic("doctor", "--json", timeout=LIMIT)
    usable = [agent["name"] for agent in json.loads(doctor.stdout)["providers"] if agent["ok"]]
    assert (usable, doctor.stderr) == ([stage.name, "replay"], ""), doctor.stdout

    said = await stage.user.atomic("-p", "@@hello@@", timeout=LIMIT)
    assert (said.exit_code, said.stdout, said.stderr) == (0, "Hello there.\n", "")

    stage.leaves("todo.json", TASKS)
    outcome = await stage.ralph("--verify", CHECK, "--tasks", "todo.json")
    assert outcome.status == ("completed", "done", 0), outcome.end["message"]
    assert not (stage.project / "hello.txt").exists()
    accepted = await stage.user.atomic("accept", stage.session.name[:8], timeout=LIMIT)
    assert accepted.exit_code == 0, accepted.stderr
    assert (stage.project / "hello.txt").read_text() == "hello\n"
    assert stage.subjects == ["Write hello.txt"]
    if stage.name == "claude":
        await asyncio.to_thread(_talk_on_the_screen, stage.user)


def _talk_on_the_screen(user: User) -> None:
    with window((user.program,), env=user.env, cwd=user.project, columns=120) as screen:
        screen.shows("claude", timeout=LIMIT)
        screen.type("@@hello@@\r")
        screen.shows("Hello there.", timeout=LIMIT)
        screen.type("/exit\r")
        assert screen.exit_code(timeout=LIMIT) == 0


async def test_nothing_but_the_named_dependencies_is_there(installed: Path, user: User) -> None:
    code = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    done = await execute(installed / "python", "-c", code, env=user.env, timeout=LIMIT)
    names = set(done.stdout.split())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {re.split(r"[<>=;]", line)[0].lower() for line in project["dependencies"]} <= names
    assert not names & {"claude-agent-sdk", "httpx", "httpx2", "mcp", "pytest", "textual-serve"}
    for extra in ("acp", "copilot", "opencode"):
        assert project["optional-dependencies"][extra] == []
