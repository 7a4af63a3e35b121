"""Test the check for the program, its version and its models, without importing its SDK."""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from atomic.config import ProviderSettings, Settings
from atomic.providers import ProgramMissingError, SessionOptions, require_provider
from tests.providers.turns import LIMIT

INSTALL = "npm install -g @anthropic-ai/claude-code"


def write_program(folder: Path, version: str) -> Settings:
    """Write a program that only prints its version."""
    path = folder / "claude"
    path.write_text(f"#!/bin/sh\n{version}\n")
    path.chmod(0o755)
    return Settings(providers={"claude": ProviderSettings(path=str(path))})


@pytest.fixture(autouse=True)
def without_login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set up a user without a login."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / ".claude"))


async def test_the_check_reports_the_version_and_a_missing_login(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with asyncio.timeout(LIMIT):
        health = await require_provider("claude", Settings()).check()
        assert (health.ok, health.version) == (False, "2.1.325")
        assert Path(health.program).name == "claude"
        assert health.remedy == f"run `{health.program}` once and log in, or set ANTHROPIC_API_KEY"
        monkeypatch.setenv("ANTHROPIC_API_KEY", "some key")
        health = await require_provider("claude", Settings()).check()
        assert (health.ok, health.remedy) == (True, "")


@pytest.mark.parametrize(
    ("command", "version", "remedy"),
    [
        ("echo '1.0.98 (Claude Code)'", "1.0.98", "it is older than 2.1: run `claude update`"),
        ("echo 'I am a teapot'", "", "it does not report a version but prints 'I am a teapot'"),
        ("exit 3", "", "it does not report a version"),
    ],
)
async def test_an_unusable_program_is_reported(tmp_path: Path, command: str, version: str, remedy: str) -> None:
    health = await require_provider("claude", write_program(tmp_path, command)).check()
    assert (health.ok, health.version) == (False, version)
    assert health.remedy.startswith(remedy)


async def test_a_missing_program_is_reported_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATOMIC_CLAUDE_PATH", str(tmp_path / "gone"))
    health = await require_provider("claude", Settings()).check()
    assert not health.ok
    assert "gone' which is not a program (correct or remove it)" in health.remedy.replace(",", "")


async def test_the_remedy_installs_the_program_if_the_extra_is_missing_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        assert name == "claude_agent_sdk"

    monkeypatch.setattr(importlib.util, "find_spec", missing)
    monkeypatch.setenv("PATH", "/nowhere")
    claude = require_provider("claude", Settings())
    assert (await claude.check()).remedy == f"claude: the program 'claude' is not installed ({INSTALL})"
    with pytest.raises(ProgramMissingError) as raised:
        async with claude.open(SessionOptions()):
            pass
    assert raised.value.remedy == INSTALL
    with pytest.raises(ProgramMissingError):
        await claude.models()


async def test_models_need_no_login_and_no_network() -> None:
    async with asyncio.timeout(LIMIT):
        models = await require_provider("claude", Settings()).models()
    assert {"default", "opus", "haiku"} <= {model.id for model in models}
    assert all(model.name for model in models)


def test_the_check_imports_no_sdk() -> None:
    code = (
        "import asyncio, sys; from atomic.config import Settings; from atomic.providers import require_provider;"
        "claude = require_provider('claude', Settings()); asyncio.run(claude.check());"
        "print([name for name in sys.modules if name.split('.')[0] in ('claude_agent_sdk', 'mcp', 'anyio')])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=LIMIT, check=True)
    assert result.stdout.strip() == "[]"
