"""Test that an untrusted repository runs none of its code and the user's settings apply."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from atomic.providers import EndReason, McpServer, ToolEnded, ToolStarted
from atomic.testing.conformance.cases.tools import MCP_SERVER
from atomic.testing.model_server import Call, Script
from tests.providers.copilot.canaries import Canaries
from tests.providers.copilot.sandbox import Sandbox, bash, sandbox, settings, task
from tests.providers.turns import all_of, end, end_of, turn

pytestmark = pytest.mark.ci


def scripts(repository: Path) -> dict[str, Script]:
    code = str(repository / "code.py")
    look = Call("lsp", {"operation": "documentSymbol", "file": code})
    work = [
        [bash("echo hi"), Call("view", {"path": code}), Call("skill", {"skill": "evil"}), look],
        [Call("edit", {"path": code, "old_str": "1", "new_str": "2"})],
        [task("part"), task("part", agent="evil")],
        "done",
    ]
    return {"work": work, "part": [[look], "part done"]}


def trust_in_copilot(here: Sandbox, repository: Path) -> None:
    """Trust a repository in Copilot's own settings, but not in Atomic."""
    here.write_user_settings(trustedFolders=[str(repository)])
    (here.copilot_home / "config.json").write_text(json.dumps({"trustedFolders": [str(repository)]}))


@pytest.mark.parametrize("known_to_copilot", [False, True])
async def test_nothing_of_an_untrusted_repository_runs(tmp_path: Path, known_to_copilot: bool) -> None:
    canaries = Canaries(tmp_path)
    async with sandbox(tmp_path, scripts(canaries.repository)) as here:
        if known_to_copilot:
            trust_in_copilot(here, canaries.repository)
        env = {"COPILOT_ALLOW_ALL": "true"} if known_to_copilot else {}
        async with here.open(cwd=canaries.repository, env=env, tools=None) as session:
            assert (await end(session, "@@work@@ go")).reason is EndReason.DONE
            id = session.id
        async with here.open(cwd=canaries.repository, env=env, resume=id) as session:
            assert (await end(session, "@@work@@ go")).reason is EndReason.DONE
        assert "lsp" not in {tool for call in here.server.calls for tool in call.tools}
    assert canaries.ran == set()


async def test_a_trusted_repository_runs_its_hooks_servers_and_plugins(tmp_path: Path) -> None:
    canaries = Canaries(tmp_path)
    async with sandbox(tmp_path, scripts(canaries.repository)) as here:
        async with here.open(cwd=canaries.repository, trusted=True) as session:
            await end(session, "@@work@@ go")
        wanted = {"hook-.github-hooks-x.json", "mcp-.mcp.json", "hook-market-evil", "agent-mcp", "lsp"}
        assert wanted <= canaries.ran


async def test_a_session_can_be_resumed_as_trusted(tmp_path: Path) -> None:
    canaries = Canaries(tmp_path)
    async with sandbox(tmp_path, {"say": "hello"}) as here:
        async with here.open(cwd=canaries.repository) as session:
            await end(session, "@@say@@ go")
        assert canaries.ran == set()
        async with here.open(cwd=canaries.repository, trusted=True, resume=session.id) as session:
            await end(session, "@@say@@ go")
        assert {"hook-.github-hooks-x.json", "mcp-.mcp.json"} <= canaries.ran


async def test_the_users_hooks_servers_agents_and_skills_are_used(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"work": [[Call("mine-add", {"a": 40, "b": 2})], "Sum: {{tool_result}}"]}) as here:
        server = {"type": "local", "command": sys.executable, "args": [str(MCP_SERVER)], "tools": ["*"]}
        files = {
            "mcp-config.json": json.dumps({"mcpServers": {"mine": server}}),
            "hooks/x.json": json.dumps(
                {"version": 1, "hooks": {"sessionStart": [{"type": "command", "bash": f"touch '{tmp_path}/ran'"}]}}
            ),
            "agents/helper.agent.md": "---\nname: helper\ndescription: my own helper\n---\nYou help.",
            "skills/knack/SKILL.md": "---\nname: knack\ndescription: my own knack\n---\nDo it so.",
        }
        for path, text in files.items():
            (here.copilot_home / path).parent.mkdir(parents=True, exist_ok=True)
            (here.copilot_home / path).write_text(text)
        async with here.open() as session:
            assert "42" in (await end(session, "@@work@@ go")).text
        request = str(here.server.calls[0].body)
        assert "my own helper" in request or "helper" in request
        assert "my own knack" in request
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("trusted", [False, True])
async def test_denials_of_the_user_apply(tmp_path: Path, trusted: bool) -> None:
    work: Script = [
        [bash("git push origin main"), bash("curl -s http://127.0.0.1:9/secret"), bash("echo fine")],
        "done",
    ]
    async with sandbox(tmp_path, {"work": work}) as here:
        here.write_user_settings(deniedUrls=["http://127.0.0.1:9"])
        using = settings(args=["--deny-tool=shell(git push)", "--deny-tool", "write"])
        async with here.open(using=using, trusted=trusted) as session:
            events = await turn(session, "@@work@@ go")
            assert end_of(events).reason is EndReason.DONE
        commands = {event.id: event.input["command"].split()[0] for event in all_of(ToolStarted, events)}
        errors = {commands[event.id]: event.error for event in all_of(ToolEnded, events)}
        assert "denied" in str(errors["git"]).lower()
        assert "deny access to http://127.0.0.1:9/secret" in str(errors["curl"])
        assert errors["echo"] is None


async def test_an_mcp_server_of_the_caller_needs_no_trust(tmp_path: Path) -> None:
    async with sandbox(tmp_path, {"work": [[Call("box-add", {"a": 40, "b": 2})], "Sum: {{tool_result}}"]}) as here:
        box = McpServer(name="box", command=[sys.executable, str(MCP_SERVER)])
        async with here.open(mcp_servers=[box]) as session:
            assert "42" in (await end(session, "@@work@@ go")).text
