"""MCP servers of the user's configuration in `atomic -p`, with real Claude Code on a scripted model."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from atomic.testing import Call, ModelServer, claude_env
from atomic.testing.conformance.cases.tools import MCP_SERVER
from tests.support.entity_files import agent, servers, skill, write
from tests.support.user import User, objects, processes, told

pytestmark = pytest.mark.ci

SUM = {"a": 40, "b": 2}
SCRIPTS = {
    "hello": "Hello there.",
    **{name: [[Call(f"mcp__{name}__add", SUM)], "Sum: {{tool_result}}"] for name in ("ours", "theirs", "own")},
}


@pytest.fixture(autouse=True)
async def server(user: User) -> AsyncGenerator[ModelServer]:
    async with ModelServer(SCRIPTS) as server:
        user.env |= claude_env(server, user.home) | {"PATH": user.env["PATH"], "ATOMIC_AGENT": "claude"}
        yield server


def box(started: Path | None = None, **env: str) -> dict[str, object]:
    """Return a server with the tool `add` that writes a file when it starts."""
    mark = "" if started is None else f"touch '{started}'; "
    return {"command": "/bin/sh", "args": ["-c", f"{mark}exec '{sys.executable}' '{MCP_SERVER}'"], "env": env}


def ours(user: User, **entries: object) -> Path:
    return servers(user.home / ".atomic" / "mcp.json", **entries)


def theirs(user: User, **entries: object) -> Path:
    """Write servers to a file that Claude Code does not read."""
    return servers(user.home / ".copilot" / "mcp-config.json", **entries)


async def test_atomics_own_servers_are_there_in_a_turn(user: User) -> None:
    ours(user, ours=box())
    done = await user.atomic("-p", "@@ours@@")
    assert (done.exit_code, done.stdout, done.stderr) == (0, "Sum: 42\n", "")
    assert processes(user.home) == {}


async def test_another_tools_servers_are_there_when_the_user_switched_them_on(user: User, tmp_path: Path) -> None:
    theirs(user, theirs=box(tmp_path / "started"))
    done = await user.atomic("-p", "@@theirs@@")
    assert "42" not in done.stdout
    assert not (tmp_path / "started").exists()
    await user.atomic("-p", "/mcp enable theirs")
    assert (await user.atomic("-p", "@@theirs@@")).stdout == "Sum: 42\n"


async def test_a_server_that_is_switched_off_is_off_for_the_agent_that_has_it(user: User, tmp_path: Path) -> None:
    own = {**box(tmp_path / "started"), "alwaysLoad": True}
    servers(Path(user.env.get("CLAUDE_CONFIG_DIR", str(user.home))) / ".claude.json", own=own)
    assert (await user.atomic("-p", "@@own@@")).stdout == "Sum: 42\n"
    assert (await user.atomic("-p", "/mcp disable own")).stdout == "own is off.\n"
    (tmp_path / "started").unlink()
    done = await user.atomic("-p", "@@own@@")
    assert done.exit_code == 0
    assert "42" not in done.stdout
    assert not (tmp_path / "started").exists()


async def test_a_strangers_servers_are_not_started(user: User, tmp_path: Path) -> None:
    servers(user.project / ".atomic" / "mcp.json", ours=box(tmp_path / "started"))
    ours(user, ours=box())  # the project's of that name does not take it away
    assert (await user.atomic("-p", "@@ours@@")).stdout == "Sum: 42\n"
    shown = (await user.atomic("-p", "/mcp")).stdout.splitlines()
    assert shown[0].split()[:3] == ["ours", "needs", "trust"]
    assert shown[1].split()[:2] == ["ours", "on"]
    assert shown[2] == "  tools: add"
    assert not (tmp_path / "started").exists()


async def test_a_server_that_does_not_start_is_reported_and_the_turn_continues(user: User) -> None:
    ours(user, gone={"command": "/no/such/program"}, ours=box())
    done = await user.atomic("-p", "@@ours@@")
    assert (done.exit_code, done.stdout) == (0, "Sum: 42\n")
    assert told(done).startswith('MCP server "gone" is left out: Program not found: "/no/such/program"')
    *events, end = objects(await user.atomic("-p", "@@hello@@", "--output", "stream-json"))
    assert [event for event in events if event["type"] == "notice" and '"gone" is left out' in str(event["text"])]
    assert end["text"] == "Hello there."


async def test_a_variable_is_filled_in_when_the_session_opens_and_a_missing_one_is_reported(user: User) -> None:
    ours(user, ours={**box(), "command": "${SHELL_OF_MINE}"})
    assert told(await user.atomic("-p", "@@hello@@")) == (
        'MCP server "ours" is left out: it needs the variable "SHELL_OF_MINE", which is not set'
    )
    user.env["SHELL_OF_MINE"] = "/bin/sh"
    assert (await user.atomic("-p", "@@ours@@")).stdout == "Sum: 42\n"


async def test_only_the_tools_that_a_skill_names_are_there(user: User) -> None:
    ours(user, ours=box())
    skill(user.project / ".claude", "with", "Add. @@ours@@", head="allowed-tools: Read, mcp__ours__add\n")
    skill(user.project / ".claude", "without", "Add. @@ours@@", head="allowed-tools: Read\n")
    assert (await user.atomic("-p", "/with")).stdout == "Sum: 42\n"
    assert "42" not in (await user.atomic("-p", "/without")).stdout


async def test_several_agents_have_the_servers_too(user: User) -> None:
    ours(user, ours=box(), gone={"command": "/no/such/program"})
    for name in ("one", "two"):
        agent(user.project / ".atomic", name, "You add.")
    done = await user.atomic("-p", "@one add @@ours@@ @two add @@ours@@")
    assert done.stdout == "## @one\n\nSum: 42\n\n## @two\n\nSum: 42\n"
    assert told(done).startswith('MCP server "gone" is left out: ')


async def test_a_broken_file_of_atomic_is_reported(user: User) -> None:
    file = write(user.home / ".atomic" / "mcp.json", "{")
    write(user.home / ".copilot" / "mcp-config.json", "{")  # is for its own tool to complain about
    done = await user.atomic("-p", "@@hello@@")
    assert (done.exit_code, done.stdout) == (0, "Hello there.\n")
    assert told(done).startswith(f"{file}:1: this is not JSON")


async def test_listing_servers_starts_none(user: User, tmp_path: Path) -> None:
    ours(user, ours=box(tmp_path / "started"))
    assert "ours" in (await user.atomic("mcp", "list")).stdout
    assert not (tmp_path / "started").exists()
    assert (await user.atomic("-p", "/mcp")).stdout.splitlines()[1] == "  tools: add"
    assert (tmp_path / "started").exists()


async def test_a_run_has_the_servers_too_and_reports_a_broken_one_once(user: User) -> None:
    ours(user, ours=box(), broken={"command": "no-such-program"})
    flow = 'from atomic.workflows import State, agent_node, graph\nclass S(State):\n    prompt: str = ""\n'
    chain = 'graph(S).then(agent_node("first", "@@ours@@")).then(agent_node("second", "@@hello@@"))'
    write(user.home / ".atomic" / "workflows" / "sums.py", f"{flow}workflow = {chain}.compile()\n")
    done = await user.atomic("run", "sums", "--json", "go")
    said = objects(done)
    assert (done.exit_code, said[-1]["reason"]) == (0, "done")
    assert '"text":"Sum: 42"' in done.stdout
    assert done.stdout.count('\\"broken\\" is left out') == 1
