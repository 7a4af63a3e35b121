"""Test configured MCP servers in sessions of real agents: disabled, restricted or failing."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from atomic.providers import (
    McpServer,
    Notice,
    ProviderError,
    UnsupportedError,
)
from atomic.providers.tool_names import spelled
from atomic.testing.conformance.agents import AGENTS
from atomic.testing.model_server import ModelServer, Script
from tests.providers.acp.sandbox import open_puppet, run_steps
from tests.providers.sandbox import Sandbox as AgentSandbox
from tests.providers.turns import all_of, end_of, turn
from tests.support.programs import CACHE

pytestmark = pytest.mark.ci

BOX = Path(__file__).with_name("two_tools.py")
PLUS = {"a": 40, "b": 2}
MINUS = {"a": 50, "b": 2}
FULL = ("opencode", "copilot")  # starting them takes seconds
EVERY = ["claude", *(pytest.param(name, marks=pytest.mark.full) for name in FULL)]


class Sandbox(AgentSandbox):
    """A sandbox whose agent has servers in its own configuration."""

    def __init__(self, agent: str, server: ModelServer, folder: Path) -> None:
        self.kind = AGENTS[agent]
        super().__init__(agent, server, folder, lambda home: dict(self.kind.environment(server, home, CACHE)))

    def configure_servers(self, **servers: list[str]) -> None:
        """Write servers into the agent's own configuration file."""
        match self.kind.program:
            case "claude":
                file = Path(self.env.get("CLAUDE_CONFIG_DIR", self.home)) / ".claude.json"
                entries = {name: _plain(command) for name, command in servers.items()}
                content: Mapping[str, Any] = {"mcpServers": entries}
            case "opencode":
                config = Path(self.env.get("XDG_CONFIG_HOME", self.home / ".config"))
                file = config / "opencode" / "opencode.json"
                content = {"mcp": {name: {"type": "local", "command": command} for name, command in servers.items()}}
            case _:
                file = self.home / ".copilot" / "mcp-config.json"
                content = {"mcpServers": {name: _local(command) for name, command in servers.items()}}
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(content))


def _plain(command: list[str]) -> dict[str, Any]:
    return {"command": command[0], "args": command[1:], "alwaysLoad": True}


def _local(command: list[str]) -> dict[str, Any]:
    return {"type": "local", "command": command[0], "args": command[1:], "tools": ["*"]}


def server_with_mark(canary: Path) -> list[str]:
    """Return the command of a server that creates a file when it starts."""
    return ["/bin/sh", "-c", f"touch '{canary}'; exec '{sys.executable}' '{BOX}'"]


@asynccontextmanager
async def sandbox(agent: str, folder: Path, scripts: Mapping[str, Script]) -> AsyncGenerator[Sandbox]:
    async with ModelServer(scripts) as server:
        yield Sandbox(agent, server, folder)


@pytest.mark.parametrize("agent", EVERY)
async def test_a_disabled_server_is_not_started(agent: str, tmp_path: Path) -> None:
    words = AGENTS[agent].words
    scripts: dict[str, Script] = {"use": [[words.mcp("mine", "plus", PLUS)], "Sum: {{tool_result}}"]}
    async with sandbox(agent, tmp_path, scripts) as here:
        here.configure_servers(mine=server_with_mark(tmp_path / "mine"), other=server_with_mark(tmp_path / "other"))
        async with here.open() as session:
            assert "42" in end_of(await turn(session, "@@use@@ go")).text
        assert (tmp_path / "mine").exists()
        (tmp_path / "mine").unlink()
        async with here.open(disabled_mcp_servers=["mine", "unknown"]) as session:
            assert "42" not in end_of(await turn(session, "@@use@@ go")).text
        assert not (tmp_path / "mine").exists()
        assert (tmp_path / "other").exists()


@pytest.mark.parametrize("agent", EVERY)
async def test_only_the_named_tools_of_a_configured_server_are_available(agent: str, tmp_path: Path) -> None:
    words = AGENTS[agent].words
    scripts: dict[str, Script] = {
        "plus": [[words.mcp("box", "plus", PLUS)], "Sum: {{tool_result}}"],
        "minus": [[words.mcp("box", "minus", MINUS)], "Difference: {{tool_result}}"],
    }
    box = McpServer(name="box", command=[sys.executable, str(BOX)], optional=True, tools=["plus", "minus"])
    unnamed = McpServer(
        name="unnamed", command=server_with_mark(tmp_path / "unnamed"), optional=True, tools=["plus", "minus"]
    )
    async with sandbox(agent, tmp_path, scripts) as here:
        async with here.open(mcp_servers=[box, unnamed], tools=["read", "mcp__box__plus"]) as session:
            assert "42" in end_of(await turn(session, "@@plus@@ go")).text
            assert "48" not in end_of(await turn(session, "@@minus@@ go")).text
        async with here.open(mcp_servers=[box], tools=["read", "mcp__box"]) as session:
            assert "48" in end_of(await turn(session, "@@minus@@ go")).text
    assert not (tmp_path / "unnamed").exists()


@pytest.mark.parametrize("agent", EVERY)
async def test_a_configured_server_that_fails_does_not_end_the_turn(agent: str, tmp_path: Path) -> None:
    gone = McpServer(name="gone", command=[str(tmp_path / "no-such-program")], optional=True)
    async with sandbox(agent, tmp_path, {"say": "Hello."}) as here, here.open(mcp_servers=[gone]) as session:
        events = await turn(session, "@@say@@ go")
    assert end_of(events).text == "Hello."
    if agent == "opencode":  # the only agent that reports it before the turn
        assert [event.text for event in all_of(Notice, events) if 'The MCP server "gone" cannot be used' in event.text]


async def test_a_server_cannot_be_both_requested_and_disabled(tmp_path: Path) -> None:
    box = McpServer(name="box", command=["box"])
    async with sandbox("claude", tmp_path, {}) as here:
        with pytest.raises(ProviderError, match=r'^MCP server "box" is in both mcp_servers and disabled_mcp_servers'):
            async with here.open(mcp_servers=[box], disabled_mcp_servers=["box"]):
                pass


async def test_a_configured_server_that_the_agent_does_not_support_is_a_notice(tmp_path: Path) -> None:
    web = McpServer(name="web", url="http://127.0.0.1:1/mcp", optional=True)
    async with open_puppet(tmp_path, mcp_servers=[web]) as session:
        first = await run_steps(session)
        second = await run_steps(session)
    (notice,) = all_of(Notice, first)
    assert notice.text.startswith('acp:puppet does not support MCP servers with a url ("web")')
    assert all_of(Notice, second) == []


async def test_disabling_servers_is_refused_if_the_agent_cannot(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"^acp:puppet cannot leave out MCP servers"):
        async with open_puppet(tmp_path, disabled_mcp_servers=["box"]):
            pass


def test_tools_of_servers_are_named_as_copilot_names_them() -> None:
    assert spelled(["mcp__box__add_all", "mcp__box", "mcp__other__*"], "copilot") == ["box-add_all", "box", "other"]
