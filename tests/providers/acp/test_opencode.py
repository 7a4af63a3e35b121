"""Test what is special about OpenCode over ACP; the contract tests the rest."""

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
from tests.providers.acp.stage import Stage, stage
from tests.providers.turns import all_of, end_of, text_of, turn

AGENT = "acp:opencode"


def without_permissions(place: Stage) -> dict[str, str]:
    """Return the configuration without permissions: OpenCode asks before it leaves the folder."""
    config = json.loads(place.env["OPENCODE_CONFIG_CONTENT"])
    del config["permission"]
    return {"OPENCODE_CONFIG_CONTENT": json.dumps(config)}


async def test_it_does_not_hang_expose_its_port_or_lose_a_prompt(tmp_path: Path) -> None:
    """One session for all of it: the program takes its time to start."""
    outside = tmp_path / "outside.txt"
    task = {"description": "x", "prompt": "@@part@@ go", "subagent_type": "general"}
    todos = [{"content": "one", "status": "completed", "priority": "high"}]
    scripts: dict[str, Script] = {
        "lead": [Call("task", task), "Lead: {{tool_result}}"],
        "part": [Call("write", {"filePath": str(outside), "content": "x"}), "PART"],
        "path": "It is fine.",
        "todo": [Call("todowrite", {"todos": todos}), "Noted."],
    }
    async with stage(AGENT, tmp_path, scripts) as place, place.open(env=without_permissions(place)) as session:
        # A sub-agent that asks for leave would wait for ever.
        lead = await turn(session, "@@lead@@ go")
        assert outside.read_text() == "x"
        [started], [ended] = all_of(SubagentStarted, lead), all_of(SubagentEnded, lead)
        assert (started.name, started.id, ended.text) == ("general", ended.id, "PART")
        assert end_of(lead).text.startswith("Lead: ")
        # A prompt that begins with a path would be taken for a command, and answered with nothing.
        assert text_of(await turn(session, "/etc/hosts @@path@@ is wrong")) == "It is fine."
        assert len(all_of(PlanChanged, await turn(session, "@@todo@@ go"))) == 1
        # The port that it opens besides is nobody's.
        ports = listening(descendants(os.getpid()))
        assert ports
        for port in ports:
            assert b" 401 " in await get(port, "/session")
        # It asks nobody over this protocol: the tool would hang.
        assert not [call for call in place.server.calls if "question" in call.tools]
        # No titles: each call of the model is one of the prompts'.
        assert all(call.tools for call in place.server.calls)
        with pytest.raises(UnsupportedError, match="focus"):
            await session.compact("numbers")


async def test_a_deny_rule_of_the_user_holds(tmp_path: Path) -> None:
    scripts: dict[str, Script] = {"go": [Call("bash", {"command": "touch made.txt", "description": "x"}), "Tried."]}
    async with stage(AGENT, tmp_path, scripts) as place:
        folder = place.home / ".config" / "opencode"
        folder.mkdir(parents=True)
        (folder / "opencode.json").write_text('{"permission": {"bash": "deny", "edit": "ask"}}')
        async with place.open(env=without_permissions(place)) as session:
            assert end_of(await turn(session, "@@go@@ go")).reason is EndReason.DONE
        assert "bash" not in place.server.calls[0].tools
    assert not (place.work / "made.txt").exists()


def test_all_is_allowed_except_denials_of_the_user(tmp_path: Path) -> None:
    assert permission(tmp_path) == {"**": "allow"}
    assert permission(tmp_path, OPENCODE_PERMISSION='{"bash": "ask"}') == {"bash": "ask", "**": "allow"}
    for prohibition in ('{"permission": {"bash": "deny"}}', '{"tools": {"bash": false}}'):
        assert permission(tmp_path, OPENCODE_CONFIG_CONTENT=prohibition) is None
    assert permission(tmp_path, OPENCODE_PERMISSION='{"bash": "deny"}') == {"bash": "deny"}
    (tmp_path / "opencode.json").write_text('{"permission": {"bash": "deny"}}')
    assert permission(tmp_path) == {"**": "allow"}  # a stranger's file, which is not read
    assert permission(tmp_path, trusted=True) is None


def permission(folder: Path, *, trusted: bool = False, **variables: str) -> Any:
    given = {"HOME": str(folder / "home"), "XDG_CONFIG_HOME": "", **variables}
    env = environment(
        find_agent("opencode", Settings()), Settings(), SessionOptions(env=given, trusted=trusted), folder
    )
    assert env["OPENCODE_ENABLE_QUESTION_TOOL"] == "0"
    assert len(env["OPENCODE_SERVER_PASSWORD"]) > 30
    assert env.get("OPENCODE_DISABLE_PROJECT_CONFIG") == (None if trusted else "1")
    rules = env.get("OPENCODE_PERMISSION")
    return None if rules is None else json.loads(rules)


def listening(pids: list[int]) -> list[int]:
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
