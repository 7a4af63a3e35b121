"""Test that agents run no code of an untrusted repository."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from atomic.providers import SessionOptions, UntrustedProjectError, require_provider
from atomic.providers.acp.agents import find_agent
from atomic.providers.acp.environment import environment
from tests.providers.acp.sandbox import puppet_settings
from tests.support.repositories import git


def put(folder: Path, files: Mapping[str, Any]) -> None:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(data if isinstance(data, str) else json.dumps(data))


def test_the_variable_that_makes_copilot_trust_a_folder_is_replaced(tmp_path: Path) -> None:
    settings = puppet_settings()
    agent = find_agent("puppet", settings)
    given = {"COPILOT_ALLOW_ALL": "true"}
    assert environment(agent, settings, SessionOptions(env=given), tmp_path)["COPILOT_ALLOW_ALL"] == "1"
    trusted = environment(agent, settings, SessionOptions(env=given, trusted=True), tmp_path)
    assert trusted["COPILOT_ALLOW_ALL"] == "true"


@pytest.mark.parametrize(
    ("agent", "files", "found"),
    [
        ("gemini", {".gemini/settings.json": {"mcpServers": {}}}, [".gemini/settings.json"]),
        ("codex", {".codex/config.toml": "x", ".codex/hooks.json": "{}"}, [".codex/config.toml", ".codex/hooks.json"]),
        ("claude", {".mcp.json": {}, ".claude/settings.json": {}}, [".claude/settings.json", ".mcp.json"]),
        ("qwen", {".qwen/settings.json": {}, ".mcp.json": {}}, [".mcp.json", ".qwen/settings.json"]),
        ("cursor", {".cursor/mcp.json": {}, ".cursor/rules/x.mdc": "x"}, [".cursor/mcp.json"]),
        ("puppet", {".github/agents/a/b.md": '---\n"\\x6dcp-servers": {}\n---'}, [".github/agents/a/b.md"]),
        ("puppet", {".github/hooks/x.json": {}, ".github/lsp.json": {}}, [".github/hooks/x.json", ".github/lsp.json"]),
        ("puppet", {"opencode.jsonc": {"mcp": {}}, ".opencode/opencode.json": {"model": "a/b"}}, ["opencode.jsonc"]),
        ("puppet", {".opencode/plugin/x.js": "", ".opencode/command/y.md": ""}, [".opencode/plugin/x.js"]),
        ("puppet", {".codex/config.toml": "x", ".gemini/.env": "x"}, [".codex/config.toml", ".gemini/.env"]),
    ],
)
async def test_the_refusal_lists_the_files_that_would_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str, files: dict[str, Any], found: list[str]
) -> None:
    programs = tmp_path / "bin"
    names = ("gemini", "codex-acp", "claude-agent-acp", "qwen", "cursor-agent")
    put(programs, dict.fromkeys(names, "#!/bin/sh\nexit 1\n"))
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
