"""Test features that are special to OpenCode over ACP; the contract covers the rest."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from atomic.config import Settings
from atomic.providers import EndReason, PlanChanged, SessionOptions, SubagentEnded, SubagentStarted, UnsupportedError
from atomic.providers.acp.agents import find_agent
from atomic.providers.acp.environment import environment
from atomic.testing.conformance.case import descendants
from atomic.testing.model_server import Call, Script
from tests.providers.acp.sandbox import Sandbox, sandbox
from tests.providers.turns import all_of, end_of, text_of, turn

AGENT = "acp:opencode"


def without_permissions(here: Sandbox) -> dict[str, str]:
    """Return the configuration without permissions: OpenCode asks before it leaves the folder."""
    config = json.loads(here.env["OPENCODE_CONFIG_CONTENT"])
    del config["permission"]
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


async def test_opencode_does_not_hang_expose_its_port_or_lose_a_prompt(tmp_path: Path) -> None:
    """Use one session for all checks: the program is slow to start."""
    outside = tmp_path / "outside.txt"
    task = {"description": "x", "prompt": "@@part@@ go", "subagent_type": "general"}
    todos = [{"content": "one", "status": "completed", "priority": "high"}]
    scripts: dict[str, Script] = {
        "lead": [Call("task", task), "Lead: {{tool_result}}"],
        "part": [Call("write", {"filePath": str(outside), "content": "x"}), "PART"],
        "path": "It is fine.",
        "todo": [Call("todowrite", {"todos": todos}), "Noted."],
    }
    async with sandbox(AGENT, tmp_path, scripts) as here, here.open(env=without_permissions(here)) as session:
        # A sub-agent that asks for permission would hang.
        lead = await turn(session, "@@lead@@ go")
        assert outside.read_text() == "x"
        [started] = all_of(SubagentStarted, lead)
        [ended] = all_of(SubagentEnded, lead)
        assert (started.name, started.id, ended.text) == ("general", ended.id, "PART")
        assert end_of(lead).text.startswith("Lead: ")
        # A prompt that begins with a path would be parsed as a command and get no answer.
        assert text_of(await turn(session, "/etc/hosts @@path@@ is wrong")) == "It is fine."
        assert len(all_of(PlanChanged, await turn(session, "@@todo@@ go"))) == 1
        # The port that OpenCode also opens needs a password.
        ports = listening_ports(descendants(os.getpid()))
        assert ports
        for port in ports:
            assert b" 401 " in await get(port, "/session")
        # OpenCode cannot ask questions over this protocol: the tool would hang.
        assert not [call for call in here.server.calls if "question" in call.tools]
        # OpenCode makes no model calls for titles.
        assert all(call.tools for call in here.server.calls)
        with pytest.raises(UnsupportedError, match="focus"):
            await session.compact("numbers")


async def test_deny_rules_of_the_user_apply(tmp_path: Path) -> None:
    scripts: dict[str, Script] = {"go": [Call("bash", {"command": "touch made.txt", "description": "x"}), "Tried."]}
    async with sandbox(AGENT, tmp_path, scripts) as here:
        folder = here.home / ".config" / "opencode"
        folder.mkdir(parents=True)
        (folder / "opencode.json").write_text('{"permission": {"bash": "deny", "edit": "ask"}}')
        async with here.open(env=without_permissions(here)) as session:
            assert end_of(await turn(session, "@@go@@ go")).reason is EndReason.DONE
        assert "bash" not in here.server.calls[0].tools
    assert not (here.work / "made.txt").exists()


def test_everything_is_allowed_except_denials_of_the_user(tmp_path: Path) -> None:
    assert permission_rules(tmp_path) == {"**": "allow"}
    assert permission_rules(tmp_path, OPENCODE_PERMISSION='{"bash": "ask"}') == {"bash": "ask", "**": "allow"}
    for prohibition in ('{"permission": {"bash": "deny"}}', '{"tools": {"bash": false}}'):
        assert permission_rules(tmp_path, OPENCODE_CONFIG_CONTENT=prohibition) is None
    assert permission_rules(tmp_path, OPENCODE_PERMISSION='{"bash": "deny"}') == {"bash": "deny"}
    (tmp_path / "opencode.json").write_text('{"permission": {"bash": "deny"}}')
    assert permission_rules(tmp_path) == {"**": "allow"}  # an untrusted file is not read
    assert permission_rules(tmp_path, trusted=True) is None


def permission_rules(folder: Path, *, trusted: bool = False, **variables: str) -> Any:
    given = {"HOME": str(folder / "home"), "XDG_CONFIG_HOME": "", **variables}
    env = environment(
        find_agent("opencode", Settings()), Settings(), SessionOptions(env=given, trusted=trusted), folder
    )
    assert env["OPENCODE_ENABLE_QUESTION_TOOL"] == "0"
    assert len(env["OPENCODE_SERVER_PASSWORD"]) > 30
    assert env.get("OPENCODE_DISABLE_PROJECT_CONFIG") == (None if trusted else "1")
    rules = env.get("OPENCODE_PERMISSION")
    return None if rules is None else json.loads(rules)


def listening_ports(pids: list[int]) -> list[int]:
    """Return the ports on which these processes listen."""
    sockets = {os.readlink(link) for pid in pids for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()}
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets]


async def get(port: int, path: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"GET {path} HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n".encode())
    try:
        return await reader.readline()
    finally:
        writer.close()
        await writer.wait_closed()
