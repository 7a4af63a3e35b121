"""Test the options of a session and the settings of the user."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from atomic.providers import McpServer, Notice, ProviderError, ToolEnded, ToolStarted
from atomic.providers.claude import provider
from atomic.testing.model_server import Call, Say
from tests.providers.claude import mcp_box
from tests.providers.claude.sandbox import bash, sandbox
from tests.providers.processes import find
from tests.providers.turns import all_of, end, end_of, turn

pytestmark = pytest.mark.ci

PLACEHOLDER = {"DeferredToolPlaceholder"}  # for tools that would be listed later


async def test_a_session_has_its_tools_and_its_system_prompt(tmp_path: Path) -> None:
    file = tmp_path / "made.txt"
    scripts = {"write": [Call("Write", {"file_path": str(file), "content": "x"}), "{{tool_result}}"], "say": "hello"}
    prompt = "Write like a 日本 poet. " * 20_000  # longer than a command line may be
    async with sandbox(tmp_path, scripts) as here:
        async with here.open(tools=["read", "Bash"], system_prompt=prompt) as session:
            assert "No such tool available: Write" in (await end(session, "@@write@@ go")).text
            call = here.server.calls[-1]
            assert set(call.tools) - PLACEHOLDER == {"Read", "Bash"}
            assert prompt.strip() in call.system
            assert "Claude" in call.system.replace(prompt, "")  # in addition to the agent's own
        async with here.open(denied_tools=["write", "task"]) as session:
            assert "No such tool available: Write" in (await end(session, "@@write@@ go")).text
            assert not {"Write", "Agent", "Task"} & set(here.server.calls[-1].tools)
            assert "Bash" in here.server.calls[-1].tools
        async with here.open(tools=[]) as session:
            await end(session, "@@say@@ go")
            assert set(here.server.calls[-1].tools) - PLACEHOLDER == set()
        assert not file.exists()


async def test_a_resumed_session_has_the_new_system_prompt(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"say": "hello"}) as here:
        async with here.open(system_prompt="You are the FIRST.") as session:
            await end(session, "@@say@@ go")
        async with here.open(system_prompt="You are the SECOND.", resume=session.id) as session:
            await end(session, "@@say@@ go")
        assert "FIRST" in here.server.calls[0].system
        assert "SECOND" in here.server.calls[-1].system


async def test_custom_tools_may_return_raise_and_wait(tmp_path: Path) -> None:
    def add(a: int, b: int = 2) -> int:
        """Add two numbers."""
        return a + b

    async def fail(reason: str) -> str:
        """Fail."""
        raise ValueError(f"cannot: {reason}")

    async def wait() -> None:
        """Wait."""
        await asyncio.sleep(3)

    scripts = {
        "use": [
            [Call("mcp__atomic__add", {"a": 40})],
            [Say("{{tool_result}}"), Call("mcp__atomic__fail", {"reason": "ünïcode"})],
            [Call("mcp__atomic__wait", {})],
            [Call("mcp__atomic__add", {"a": "forty"})],
            "end",
        ]
    }
    async with sandbox(tmp_path, scripts) as here, here.open(custom_tools=[add, fail, wait], tools=["Read"]) as session:
        events = await turn(session, "@@use@@ go")
        assert [one.name for one in all_of(ToolStarted, events)] == ["add", "fail", "wait", "add"]
        first, second, third, fourth = all_of(ToolEnded, events)
        assert (first.output, first.error) == ("42", None)
        assert second.error == "cannot: ünïcode"
        assert (third.output, third.error) == ("done", None)
        assert fourth.error == "Expected `int`, got `str` - at `$.a`"  # the same for every agent
        custom = {f"mcp__atomic__{name}" for name in ("add", "fail", "wait")}
        assert set(here.server.calls[0].tools) - PLACEHOLDER == {"Read", *custom}


async def test_the_agent_uses_mcp_servers_on_stdio_and_over_http(tmp_path: Path) -> None:
    scripts = {
        "use": [[Call("mcp__box__add", {"a": 1, "b": 2}), Call("mcp__web__add", {"a": 3, "b": 4})], "end"],
    }
    command = [sys.executable, str(Path(mcp_box.__file__))]
    with mcp_box.serve_over_http() as url:
        servers = [
            McpServer(name="box", command=command, env={"SECRET": "from its environment"}),
            McpServer(name="web", url=url, headers={"x-secret": "from a header"}),
        ]
        async with sandbox(tmp_path, scripts) as here, here.open(mcp_servers=servers) as session:
            events = await turn(session, "@@use@@ go")
            [program] = find(session.id)
            assert b"header" not in Path(f"/proc/{program}/cmdline").read_bytes()  # every user can read it
    assert [one.name for one in all_of(ToolStarted, events)] == ["mcp__box__add", "mcp__web__add"]
    assert {one.output for one in all_of(ToolEnded, events)} == {"3 from its environment", "7 from a header"}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"mcp_servers": [McpServer(name="a")]}, 'MCP server "a" has neither a command nor a url'),
        ({"mcp_servers": [McpServer(name="a", url="http://127.0.0.1:1")] * 2}, "Two MCP servers have the same name"),
        ({"max_turns": 0}, "max_turns must be at least 1, not 0"),
    ],
)
async def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, Any], error: str) -> None:
    async with sandbox(tmp_path, {}) as here:
        with pytest.raises(ProviderError, match=error):
            async with here.open(**options):
                pass


async def test_the_users_servers_run_unless_the_tools_are_restricted(tmp_path: Path) -> None:
    server = {"command": sys.executable, "args": [str(Path(mcp_box.__file__))], "alwaysLoad": True}
    scripts = {"use": [[Call("mcp__own__add", {"a": 1, "b": 2})], "{{tool_result}}"]}
    async with sandbox(tmp_path, scripts) as here:
        here.user_settings().with_name(".claude.json").write_text(json.dumps({"mcpServers": {"own": server}}))
        async with here.open() as session:
            assert (await end(session, "@@use@@ go")).text == "3 None"
        async with here.open(tools=["read"]) as session:
            assert "No such tool available" in (await end(session, "@@use@@ go")).text


async def test_the_users_permission_rules_apply(tmp_path: Path) -> None:
    rules = {"permissions": {"ask": ["Bash(ls:*)"], "deny": ["Bash(touch:*)", "WebFetch"]}}
    scripts = {
        "ls": [[bash("ls -a")], "{{tool_result}}"],
        "touch": [[bash("touch made.txt")], "{{tool_result}}"],
    }
    async with sandbox(tmp_path, scripts) as here:
        here.user_settings().write_text(json.dumps(rules))
        async with here.open() as session:
            assert (await end(session, "@@ls@@ go")).text.startswith(".")  # allowed without a question
            assert "has been denied" in (await end(session, "@@touch@@ go")).text
            assert "WebFetch" not in here.server.calls[0].tools
        assert not (here.work / "made.txt").exists()


async def test_an_untrusted_repository_runs_none_of_its_code(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"work": [[bash("echo hi")], "done"]}) as here:
        canaries = plant_code(here.work, tmp_path / "canaries")
        async with here.open() as session:
            assert (await end(session, "@@work@@ go")).text == "done"
        assert list(canaries.iterdir()) == []
        assert "CANARY" not in str(here.server.calls[-1].body)
        async with here.open(trusted=True) as session:
            assert (await end(session, "@@work@@ go")).text == "done"
        assert {path.name for path in canaries.iterdir()} >= {"project", "local", "mcp"}


def plant_code(repository: Path, canaries: Path) -> Path:
    """Add hooks, an MCP server and a sub-agent to a repository; return the folder of their traces."""
    canaries.mkdir()
    events = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd")

    def hooks(name: str) -> str:
        run = [{"type": "command", "command": f"touch '{canaries / name}'"}]
        hooks = {event: [{"hooks": run}] for event in events}
        helper = {"apiKeyHelper": f"touch '{canaries / name}-helper'; echo key"}
        return json.dumps({"hooks": hooks, "enableAllProjectMcpServers": True, **helper})

    folder = repository / ".claude"
    folder.mkdir()
    (folder / "settings.json").write_text(hooks("project"))
    (folder / "settings.local.json").write_text(hooks("local"))
    server = {"command": "touch", "args": [str(canaries / "mcp")]}
    (repository / ".mcp.json").write_text(json.dumps({"mcpServers": {"canary": server}}))
    (folder / "agents").mkdir()
    (folder / "agents/canary.md").write_text("---\nname: CANARY\ndescription: CANARY\n---\nCANARY\n")
    return canaries


async def test_the_program_inherits_no_secrets_and_no_variables_of_an_outer_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outer = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "outer", "GITLAB_TOKEN": "hush", "OPENAI_API_KEY": "hush"}
    for name, value in {**outer, "PLAIN": "seen", "DISABLE_COST_WARNINGS": "1"}.items():
        monkeypatch.setenv(name, value)
    out = tmp_path / "environment"
    scripts = {"env": [[bash(f"env > '{out}'; tr '\\0' '\\n' < /proc/$CLAUDE_PID/environ > '{out}-program'")], "done"]}
    async with sandbox(tmp_path, scripts) as here, here.open() as session:
        await end(session, "@@env@@ go")
    program = dict(line.split("=", 1) for line in Path(f"{out}-program").read_text().splitlines())
    assert not {"CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "GITLAB_TOKEN", "OPENAI_API_KEY"} & program.keys()
    assert (program["PLAIN"], program["DISABLE_COST_WARNINGS"], program["PWD"]) == ("seen", "1", str(here.work))


async def test_the_notice_about_root_is_shown_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("IS_SANDBOX", "yes")  # a value that the program does not accept
    monkeypatch.setattr(provider, "_shown", set[str]())
    async with sandbox(tmp_path, {"say": "hello"}) as here:
        here.env.pop("IS_SANDBOX", None)
        async with here.open() as first, here.open() as second:
            events = await turn(first, "@@say@@ 1")
            assert [one for one in all_of(Notice, events) if "IS_SANDBOX=1" in one.text] == events[:1]
            assert end_of(events).text == "hello"
            assert all_of(Notice, await turn(first, "@@say@@ 2")) == []
            assert all_of(Notice, await turn(second, "@@say@@ 3")) == []
