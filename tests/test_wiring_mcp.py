"""Which servers of the user's configuration a session gets, for each agent."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from atomic.mcp import Transport
from atomic.providers import AgentProvider, McpServer, SessionOptions, require_provider
from atomic.testing.conformance.cases.tools import MCP_SERVER
from atomic.wiring import SessionMcp, Wiring
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
def wiring(tmp_path: Path) -> Wiring:
    for file, content in FILES.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(json.dumps(content))
    return Wiring(tmp_path / "project", tmp_path / "home")


def provider(name: str) -> AgentProvider:
    return require_provider(name)


async def passed(wiring: Wiring, agent: str, *, trusted: bool = False) -> list[str]:
    found = await wiring.session_mcp(provider(agent), trusted=trusted)
    assert not found.notices
    handed = [server for server in found.servers if not server.takes_place]
    assert all(server.optional and server.tools == ["add"] for server in handed)
    return sorted(server.name for server in handed)


@pytest.mark.parametrize("agent", ["claude", "opencode", "copilot", "acp:opencode"])
async def test_unless_the_user_says_more_only_atomics_own_are_passed(wiring: Wiring, agent: str) -> None:
    assert await passed(wiring, agent) == ["u-atomic"]
    assert await passed(wiring, agent, trusted=True) == ["p-atomic", "u-atomic"]
    assert (await wiring.session_mcp(provider(agent))).disabled == []


@pytest.mark.parametrize(
    ("agent", "by_itself"),
    [
        ("claude", {"p-claude", "u-claude"}),
        ("opencode", {"p-opencode", "u-opencode"}),
        ("acp:opencode", {"p-opencode", "u-opencode"}),
        ("copilot", {"u-copilot"}),
    ],
)
async def test_what_the_user_switches_on_is_passed_unless_the_agent_loads_it_by_itself(
    wiring: Wiring, agent: str, by_itself: set[str]
) -> None:
    for name in ALL:
        wiring.switch_mcp_server(name, True)
    wanted = sorted(set(ALL) - by_itself)
    assert await passed(wiring, agent, trusted=True) == wanted
    assert await passed(wiring, agent) == [name for name in wanted if name.startswith("u-")]


async def test_what_the_user_switches_off_is_neither_passed_nor_loaded(wiring: Wiring) -> None:
    for name in ("u-atomic", "u-claude"):
        wiring.switch_mcp_server(name, False)
    found = await wiring.session_mcp(provider("claude"))
    assert (found.servers, sorted(found.disabled), found.notices) == ([], ["u-atomic", "u-claude"], [])


async def test_an_agent_that_cannot_is_said_to(wiring: Wiring) -> None:
    wiring.switch_mcp_server("u-claude", False)
    gemini = await wiring.session_mcp(provider("acp:gemini"))
    assert (gemini.servers, gemini.disabled) == ([], ())
    assert gemini.notices == ["acp:gemini takes no MCP servers: u-atomic left out"]
    claude = await wiring.session_mcp(provider("acp:claude"))
    assert [server.name for server in claude.servers] == ["u-atomic"]
    assert claude.disabled == ()
    assert claude.notices == ["acp:claude uses MCP servers that are switched off: u-claude"]


async def test_a_name_that_sessions_need_is_not_given_away(tmp_path: Path) -> None:
    file = tmp_path / "home" / ".atomic" / "mcp.json"
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps({"mcpServers": {"atomic": BOX}}))
    found = await Wiring(tmp_path, tmp_path / "home").session_mcp(provider("claude"))
    assert found.servers == []
    assert found.notices == ['MCP server "atomic" is left out: the name is taken (give it another)']


async def test_the_older_way_over_http_is_passed_as_such(tmp_path: Path) -> None:
    file = tmp_path / "home" / ".atomic" / "mcp.json"
    file.parent.mkdir(parents=True)
    with over_events(["add"]) as server:
        entries = {"web": {"type": Transport.SSE, "url": server.url, "headers": {"x": "y"}}}
        file.write_text(json.dumps({"mcpServers": entries}))
        found = await Wiring(tmp_path, tmp_path / "home").session_mcp(provider("claude"))
    assert found.servers == [
        McpServer(name="web", url=server.url, headers={"x": "y"}, sse=True, optional=True, tools=["add"])
    ]


async def test_a_replay_starts_nothing(wiring: Wiring, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"atomic_recording": 1}\n')
    assert await wiring.session_mcp(provider(f"replay:{tmp_path}/in.jsonl")) == SessionMcp()


def test_what_the_caller_names_is_the_callers() -> None:
    theirs, ours, more = (McpServer(name=name, command=[word]) for name, word in ("aa", "ab", "cc"))
    options = SessionOptions(mcp_servers=[theirs], disabled_mcp_servers=["x"])
    added = SessionMcp([ours, more], ["a", "y"]).added_to(options)
    assert added.mcp_servers == [theirs, more]
    assert added.disabled_mcp_servers == ["x", "y"]


@pytest.mark.parametrize("agent", ["claude", "acp:claude"])
async def test_a_server_of_the_agent_that_lacks_a_variable_is_left_out_only_where_it_can_be(
    tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET_HERE", raising=False)
    (tmp_path / "home").mkdir()
    entries = {"needy": {**BOX, "env": {"TOKEN": "${NOT_SET_HERE}"}}}
    (tmp_path / "home" / ".claude.json").write_text(json.dumps({"mcpServers": entries}))
    found = await Wiring(tmp_path, tmp_path / "home").session_mcp(provider(agent))
    expected = {
        "claude": 'MCP server "needy" is left out: it needs the variable "NOT_SET_HERE", which is not set',
        "acp:claude": 'acp:claude starts its MCP server "needy" itself, in this project, which is not trusted: '
        'Atomic cannot start it elsewhere, because it needs the variable "NOT_SET_HERE", which is not set '
        "(set it, or remove the server from the settings of the agent)",
    }
    assert found.notices == [expected[agent]]
    assert list(found.disabled) == (["needy"] if agent == "claude" else [])
