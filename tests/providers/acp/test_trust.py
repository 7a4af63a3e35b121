"""Test that agents run no code of an untrusted repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atomic.config import Settings
from atomic.providers import SessionOptions, UntrustedProjectError, require_provider
from atomic.providers.acp.agents import find_agent
from atomic.providers.acp.environment import environment
from atomic.testing.model_server import Call, Script
from tests.providers.acp.sandbox import puppet_settings, sandbox
from tests.providers.turns import end_of, turn
from tests.support.repositories import git


def put(folder: Path, files: Mapping[str, Any]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data))


def mcp(canary: Path) -> dict[str, Any]:
    return {"mcpServers": {"x": {"type": "local", "command": "touch", "args": [str(canary)], "tools": ["*"]}}}


def hooks(canary: Path) -> dict[str, Any]:
    return {"version": 1, "hooks": {"sessionStart": [{"type": "command", "bash": f"touch '{canary}'"}]}}


async def test_copilot_does_not_start_in_an_untrusted_project_with_hooks(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    async with sandbox("acp:copilot", tmp_path, {"hi": "Hello."}) as here:
        subprocess.run(["git", "init", "-q", here.work], check=True)
        put(here.work, {".github/hooks/x.json": hooks(canary), "sub/a.txt": ""})
        with pytest.raises(UntrustedProjectError) as refusal:
            async with here.open(cwd=here.work / "sub"):
                pass
        assert refusal.value.items == ("../.github/hooks/x.json",)
        assert not canary.exists()
        # The hook does run in a trusted project.
        async with here.open(trusted=True) as session:
            assert end_of(await turn(session, "@@hi@@ go")).text == "Hello."
    assert canary.exists()


async def test_copilot_runs_no_code_of_an_untrusted_project(tmp_path: Path) -> None:
    """With COPILOT_ALLOW_ALL=true Copilot would trust the folder; here it only allows tools."""
    canaries = {name: tmp_path / f"canary-{name}" for name in ("vscode", "copilot", "agent")}
    scripts: dict[str, Script] = {"go": [Call("bash", {"command": "true", "description": "x"}), "Done."]}
    async with sandbox("acp:copilot", tmp_path, scripts) as here:
        subprocess.run(["git", "init", "-q", here.work], check=True)
        put(
            here.work,
            {
                ".vscode/mcp.json": {"servers": mcp(canaries["vscode"])["mcpServers"]},
                ".copilot/mcp-config.json": mcp(canaries["copilot"]),
                ".github/agents/plain.agent.md": "---\nname: plain\ndescription: plain\n---\nYou are plain.\n",
            },
        )
        async with here.open(env={"COPILOT_ALLOW_ALL": "true"}) as session:
            assert end_of(await turn(session, "@@go@@ go")).text == "Done."
    assert not [name for name, canary in canaries.items() if canary.exists()]


def test_the_variable_that_makes_copilot_trust_a_folder_is_replaced(tmp_path: Path) -> None:
    settings = Settings()
    agent = find_agent("copilot", settings)
    given = {"COPILOT_ALLOW_ALL": "true"}
    assert environment(agent, settings, SessionOptions(env=given), tmp_path)["COPILOT_ALLOW_ALL"] == "1"
    trusted = environment(agent, settings, SessionOptions(env=given, trusted=True), tmp_path)
    assert trusted["COPILOT_ALLOW_ALL"] == "true"


PLUGIN = 'import fs from "fs"; fs.writeFileSync("{canary}", "x"); export const P = async () => ({{}});\n'


async def test_opencode_does_not_start_in_an_untrusted_project_with_plugins(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    plugin = PLUGIN.format(canary=canary)
    async with sandbox("acp:opencode", tmp_path, {"hi": "Hello."}) as here:
        put(here.work, {".opencode/plugin/x.js": plugin, "named.js": plugin})
        put(here.work, {"opencode.jsonc": {"plugin": [f"file://{here.work / 'named.js'}"]}})
        with pytest.raises(UntrustedProjectError) as refusal:
            async with here.open():
                pass
        assert set(refusal.value.items) == {".opencode/plugin/x.js", "opencode.jsonc"}
        assert not canary.exists()


@pytest.mark.ci
async def test_opencode_runs_no_code_of_an_untrusted_project(tmp_path: Path) -> None:
    names = ("mcp", "lsp", "formatter", "tool")
    canaries = {name: tmp_path / f"canary-{name}" for name in names}
    touch = {name: ["touch", str(canary)] for name, canary in canaries.items()}
    file = tmp_path / "wörk 日本 مرحبا" / "a.py"
    scripts: dict[str, Script] = {"go": [Call("write", {"filePath": str(file), "content": "x = 1\n"}), "Done."]}
    tool = PLUGIN.format(canary=canaries["tool"]) + 'export default {description: "d", args: {}, async execute() {}};\n'
    async with sandbox("acp:opencode", tmp_path, scripts) as here:
        config = {
            "mcp": {"x": {"type": "local", "command": touch["mcp"], "enabled": True}},
            "lsp": {"x": {"command": touch["lsp"], "extensions": [".py"]}},
            "formatter": {"x": {"command": touch["formatter"], "extensions": [".py"]}},
        }
        put(here.work, {"opencode.json": config, ".opencode/opencode.json": config, ".opencode/tool/t.js": tool})
        async with here.open() as session:
            assert end_of(await turn(session, "@@go@@ go")).text == "Done."
    assert file.exists()
    assert not [name for name, canary in canaries.items() if canary.exists()]


@pytest.mark.parametrize(
    ("agent", "files", "found"),
    [
        ("gemini", {".gemini/settings.json": {"mcpServers": {}}}, [".gemini/settings.json"]),
        ("codex", {".codex/config.toml": "x", ".codex/hooks.json": "{}"}, [".codex/config.toml", ".codex/hooks.json"]),
        ("claude", {".mcp.json": {}, ".claude/settings.json": {}}, [".claude/settings.json", ".mcp.json"]),
        ("copilot", {".github/agents/a/b.md": '---\n"\\x6dcp-servers": {}\n---'}, [".github/agents/a/b.md"]),
        ("copilot", {".github/lsp.json": {}}, [".github/lsp.json"]),
        ("puppet", {".codex/config.toml": "x", ".gemini/.env": "x"}, [".codex/config.toml", ".gemini/.env"]),
    ],
)
async def test_the_refusal_lists_the_files_that_would_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str, files: dict[str, Any], found: list[str]
) -> None:
    programs = tmp_path / "bin"
    put(programs, dict.fromkeys(("gemini", "codex-acp", "claude-agent-acp"), "#!/bin/sh\nexit 1\n"))
    for program in programs.iterdir():
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    work = tmp_path / "work" / "deep"
    work.mkdir(parents=True)
    put(work.parent, files)
    with pytest.raises(UntrustedProjectError) as refusal:
        async with require_provider(f"acp:{agent}", puppet_settings()).open(SessionOptions(cwd=work)):
            pass
    assert sorted(refusal.value.items) == [f"../{name}" for name in found]


async def test_the_users_home_and_folders_above_a_repository_are_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    inner = tmp_path / "repository" / "inner"
    inner.mkdir(parents=True)
    git(inner, "init", "-q")
    put(tmp_path, {".claude/settings.json": {}, "repository/.mcp.json": {}})
    provider = require_provider("acp:puppet", puppet_settings())
    for folder in (tmp_path, inner):
        async with provider.open(SessionOptions(cwd=folder)) as session:
            assert session.id
    with pytest.raises(UntrustedProjectError):
        async with provider.open(SessionOptions(cwd=tmp_path / "repository")):
            pass
