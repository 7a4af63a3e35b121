"""In a hostile project, a user's MCP server runs the user's program."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from atomic.config import Settings
from atomic.providers import SessionOptions, require_provider
from atomic.testing.conformance.agents import AGENTS
from atomic.testing.conformance.cases.tools import MCP_SERVER
from atomic.testing.model_server import Script
from atomic.wiring import Project
from tests.hostile.repositories import PROJECTS, HostileProject
from tests.hostile.visit import Visit
from tests.providers.test_mcp_switching import Sandbox, sandbox
from tests.providers.turns import end_of, turn
from tests.support.entity_files import write

FULL = ("opencode", "copilot")  # slow to start
EVERY = [pytest.param("claude", marks=pytest.mark.ci), *(pytest.param(name, marks=pytest.mark.full) for name in FULL)]
BY_MODULE = [sys.executable, "-m", "users_server"]
NPX = shutil.which("npx") or "npx"


def users_module(home: Path) -> dict[str, str]:
    """Install a module for the user; return the environment that lets Python find it."""
    write(home / "lib" / "users_server.py", MCP_SERVER.read_text())
    return {"PYTHONPATH": str(home / "lib")}


def visited(folder: Path, **servers: Mapping[str, object]) -> Visit:
    visit = Visit(folder, "modules_of_the_users_servers")
    write(visit.user.home / ".atomic" / "mcp.json", json.dumps({"mcpServers": servers}))
    users_module(visit.user.home)
    visit.begin()
    return visit


async def test_atomic_starts_the_users_module_and_not_the_projects(tmp_path: Path) -> None:
    own = {"command": BY_MODULE[0], "args": BY_MODULE[1:], "env": {"PYTHONPATH": str(tmp_path / "home" / "lib")}}
    visit = visited(tmp_path, own=own, rel={"command": "./server.sh"})
    _, said = await visit.run(["-p", "/mcp"])
    assert "tools: add" in said
    _, said = await visit.run(["-p", "hi"])
    assert f'MCP server "rel" starts in {visit.user.home}: this project is not trusted (atomic trust)' in said
    snapshot = json.loads((await visit.user.atomic("trust", "--show", "--json")).stdout)
    await visit.user.atomic("trust", snapshot["hash"])
    assert (await visit.user.atomic("-p", "hi")).exit_code == 0
    assert visit.canary.exists(), "in a trusted project the folder is the project, or the test shows nothing"


@pytest.mark.full  # npx comes with the agents' programs
async def test_atomic_starts_the_users_package_and_not_the_projects(tmp_path: Path) -> None:
    visit = visited(tmp_path, own={"command": NPX, "args": ["--no-install", "users-server"]})
    visit.user.env["PATH"] += f":{Path(NPX).parent}"
    done = await visit.user.atomic("-p", "/mcp", cwd=visit.place)
    assert "own" in done.stdout
    assert not visit.canary.exists()


@asynccontextmanager
async def session_sandbox(agent: str, folder: Path) -> AsyncGenerator[Sandbox]:
    script: Script = [[AGENTS[agent].words.mcp("mine", "add", {"a": 40, "b": 2})], "Sum: {{tool_result}}"]
    async with sandbox(agent, folder, {"use": script}) as here:
        yield here


@pytest.mark.parametrize("agent", EVERY)
async def test_an_agents_own_server_is_the_users_and_not_the_projects(
    agent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with session_sandbox(agent, tmp_path) as here:
        PROJECTS["modules_of_the_users_servers"](HostileProject(here.work, tmp_path / "canary"))
        here.configure_servers(mine=BY_MODULE)
        for name in ("CLAUDE_CONFIG_DIR", "XDG_CONFIG_HOME", "COPILOT_HOME", "HOME"):
            monkeypatch.delenv(name, raising=False)
        for name, value in {**here.env, "HOME": str(here.home), **users_module(here.home)}.items():
            monkeypatch.setenv(name, value)
        provider = require_provider(agent, Settings())
        found = await Project(here.work).configured_servers(trusted=False).for_provider(provider)
        options = found.added_to(SessionOptions(cwd=here.work, env={**here.env, **users_module(here.home)}))
        async with provider.open(options) as session:
            text = end_of(await turn(session, "@@use@@ go")).text
    assert not (tmp_path / "canary").exists()
    assert "42" in text
