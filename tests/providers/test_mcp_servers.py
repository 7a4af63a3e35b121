"""Test which configured MCP servers the sessions of each agent get."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from atomic.mcp import Transport
from atomic.providers import McpServer, SessionOptions, require_provider
from atomic.providers.mcp_servers import SessionMcp
from atomic.testing.conformance.cases.tools import MCP_SERVER
from atomic.wiring import Project
from tests.mcp.servers import over_events

BOX = {"command": sys.executable, "args": [str(MCP_SERVER)]}
REMOTE = {"type": "local", "command": [sys.executable, str(MCP_SERVER)]}
FILES: Mapping[str, Mapping[str, Mapping[str, object]]] = {
    "project/.atomic/mcp.json": {"mcpServers": {"p-atomic": BOX}},
    "project/.mcp.json": {"mcpServers": {"p-claude": BOX}},
    "project/opencode.json": {"mcp": {"p-opencode": REMOTE}},
    "project/.vscode/mcp.json": {"servers": {"p-vscode": BOX}},
    "home/.atomic/mcp.json": {"mcpServers": {"u-atomic": BOX}},
    "home/.claude.json": {"mcpServers": {"u-claude": BOX}},
    "home/.config/opencode/opencode.json": {"mcp": {"u-opencode": REMOTE, "u-off": {**REMOTE, "enabled": False}}},
    "home/.copilot/mcp-config.json": {"mcpServers": {"u-copilot": BOX}},
}
ALL = sorted(name for content in FILES.values() for table in content.values() for name in table)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    for file, content in FILES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(json.dumps(content))
    return Project(tmp_path / "project", tmp_path / "home")


async def servers_for(agent: str, project: Project, *, trusted: bool = False) -> SessionMcp:
    return await project.configured_servers(trusted=trusted).for_provider(require_provider(agent))


async def passed(project: Project, agent: str, *, trusted: bool = False) -> list[str]:
    found = await servers_for(agent, project, trusted=trusted)
    assert not found.notices
    passed_on = [server for server in found.servers if not server.takes_place]
    assert all(server.optional and server.tools == ["add"] for server in passed_on)
    return sorted(server.name for server in passed_on)


@pytest.mark.parametrize("agent", ["claude", "opencode", "copilot"])
async def test_by_default_only_servers_of_atomics_own_files_are_passed(project: Project, agent: str) -> None:
    assert await passed(project, agent) == ["u-atomic"]
    assert await passed(project, agent, trusted=True) == ["p-atomic", "u-atomic"]
    assert (await servers_for(agent, project)).disabled == []


@pytest.mark.parametrize(
    ("agent", "by_itself"),
    [
        ("claude", {"p-claude", "u-claude"}),
        ("opencode", {"p-opencode", "u-opencode"}),
        ("copilot", {"u-copilot"}),
    ],
)
async def test_an_enabled_server_is_passed_unless_the_agent_loads_it_itself(
    project: Project, agent: str, by_itself: set[str]
) -> None:
    for name in ALL:
        project.switch_mcp_server(name, True)
    wanted = sorted(set(ALL) - by_itself)
    assert await passed(project, agent, trusted=True) == wanted
    assert await passed(project, agent) == [name for name in wanted if name.startswith("u-")]


async def test_a_disabled_server_is_neither_passed_nor_loaded(project: Project) -> None:
    for name in ("u-atomic", "u-claude"):
        project.switch_mcp_server(name, False)
    found = await servers_for("claude", project)
    assert (found.servers, sorted(found.disabled), found.notices) == ([], ["u-atomic", "u-claude"], [])


async def test_a_notice_names_servers_that_an_agent_cannot_use_or_leave_out(project: Project) -> None:
    project.switch_mcp_server("u-claude", False)
    gemini = await servers_for("acp:gemini", project)
    assert (gemini.servers, gemini.disabled) == ([], ())
    assert gemini.notices == ["gemini takes no MCP servers: u-atomic left out"]
    claude = await servers_for("acp:claude", project)
    assert [server.name for server in claude.servers] == ["u-atomic"]
    assert claude.disabled == ()
    assert claude.notices == ["acp:claude uses MCP servers that are switched off: u-claude"]


async def test_a_server_cannot_have_the_name_of_atomics_own_tools(tmp_path: Path) -> None:
    file = tmp_path / "home" / ".atomic" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"mcpServers": {"atomic": BOX}}))
    found = await servers_for("claude", Project(tmp_path, tmp_path / "home"))
    assert found.servers == []
    assert found.notices == ['MCP server "atomic" is left out: the name is taken (give it another)']


async def test_a_server_with_events_over_http_keeps_its_transport(tmp_path: Path) -> None:
    file = tmp_path / "home" / ".atomic" / "mcp.json"
    file.parent.mkdir(parents=True)
    with over_events(["add"]) as server:
        entries = {"web": {"type": Transport.SSE, "url": server.url, "headers": {"x": "y"}}}
        file.write_text(json.dumps({"mcpServers": entries}))
        found = await servers_for("claude", Project(tmp_path, tmp_path / "home"))
    assert found.servers == [
        McpServer(name="web", url=server.url, headers={"x": "y"}, sse=True, optional=True, tools=["add"])
    ]


async def test_a_replay_starts_no_servers(project: Project, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"atomic_recording": 1}\n')
    assert await servers_for(f"replay:{tmp_path}/in.jsonl", project) == SessionMcp()


def test_servers_named_by_the_caller_are_kept() -> None:
    named = McpServer(name="a", command=["a"])
    same_name = McpServer(name="a", command=["b"])
    other = McpServer(name="c", command=["c"])
    options = SessionOptions(mcp_servers=[named], disabled_mcp_servers=["x"])
    added = SessionMcp([same_name, other], ["a", "y"]).added_to(options)
    assert added.mcp_servers == [named, other]
    assert added.disabled_mcp_servers == ["x", "y"]


@pytest.mark.parametrize("agent", ["claude", "acp:claude"])
async def test_an_agents_server_without_its_variable_is_left_out_if_the_agent_can(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    (tmp_path / "home").mkdir()
    entries = {"needy": {**BOX, "env": {"TOKEN": "${NOT_SET_HERE}"}}}
    (tmp_path / "home" / ".claude.json").write_text(json.dumps({"mcpServers": entries}))
    found = await servers_for(agent, Project(tmp_path, tmp_path / "home"))
    expected = {
        "claude": 'MCP server "needy" is left out: it needs the variable "NOT_SET_HERE", which is not set',
        "acp:claude": 'acp:claude starts its MCP server "needy" itself, in this project, which is not trusted: '
        'Atomic cannot start it elsewhere, because it needs the variable "NOT_SET_HERE", which is not set '
        "(set it, or remove the server from the settings of the agent)",
    }
    assert found.notices == [expected[agent]]
    assert list(found.disabled) == (["needy"] if agent == "claude" else [])
