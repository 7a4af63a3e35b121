"""Test each real agent with an empty home folder and the scripted model as its only server."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from atomic.processes import execute
from atomic.testing import (
    Call,
    CallState,
    ModelServer,
    claude_env,
    copilot_env,
    opencode_env,
)
from tests.testing.wire import LIMIT

pytestmark = pytest.mark.ci

PROGRAMS = Path(__file__).parents[2] / ".programs"


def claude_program() -> Path:
    import claude_agent_sdk

    return Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"


Agent = Callable[[ModelServer, Path], tuple[list[str | Path], dict[str, str]]]


def claude(server: ModelServer, home: Path) -> tuple[list[str | Path], dict[str, str]]:
    return [claude_program(), "-p", "--dangerously-skip-permissions"], claude_env(server, home)


def opencode(server: ModelServer, home: Path) -> tuple[list[str | Path], dict[str, str]]:
    return [PROGRAMS / "bin/opencode", "run"], opencode_env(server, home)


def copilot(server: ModelServer, home: Path) -> tuple[list[str | Path], dict[str, str]]:
    env = copilot_env(server, home, cache=PROGRAMS / "cache/copilot")
    return [PROGRAMS / "bin/copilot", "--allow-all-tools", "--silent", "-p"], env


@pytest.mark.parametrize("agent", [claude, opencode, copilot])
async def test_a_real_agent_runs_a_scripted_tool_and_prints_the_scripted_answer(agent: Agent, tmp_path: Path) -> None:
    shell = {"command": "echo it-really-ran > proof.txt; cat proof.txt", "description": "show"}
    script = [Call({"Bash": shell, "bash": shell}), "The tool printed: {{tool_result}}"]
    home = tmp_path / "home"
    work = tmp_path / "work"
    home.mkdir()
    work.mkdir()
    async with ModelServer({"go": script}) as server:
        argv, env = agent(server, home)
        result = await execute(*argv, "@@go@@ please", cwd=work, env=env, timeout=4 * LIMIT)
    assert result.exit_code == 0, result
    assert "The tool printed: it-really-ran" in result.stdout
    assert (work / "proof.txt").read_text() == "it-really-ran\n"
    assert [(call.turn, call.state) for call in server.calls if call.script == "go"] == [
        (0, CallState.ANSWERED),
        (1, CallState.ANSWERED),
    ]
    assert not server.other


@pytest.mark.parametrize("environment", [claude_env, opencode_env, copilot_env])
def test_the_environment_of_an_agent_contains_nothing_of_the_user(
    environment: Callable[[str, Path], dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("ANTHROPIC_AUTH_TOKEN", "OPENCODE_CONFIG", "COPILOT_GITHUB_TOKEN", "HTTPS_PROXY", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, "the user's")
    env = environment("http://127.0.0.1:1", tmp_path)
    assert "the user's" not in env.values()
    assert env["HOME"] == str(tmp_path)
    assert "http://127.0.0.1:1" in msgspec.json.encode(env).decode()
