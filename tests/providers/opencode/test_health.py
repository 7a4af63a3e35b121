"""Test that `check` reports a problem and its remedy in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.config import Settings
from atomic.providers import require_provider
from tests.providers.opencode.sandbox import PROGRAM, provider


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a new user."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_CONFIG_CONTENT"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def write_program(folder: Path, script: str) -> Path:
    file = folder / "opencode"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


async def test_a_missing_program_is_reported_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    health = await require_provider("opencode", Settings()).check()
    assert not health.ok
    assert "npm install -g opencode-ai" in health.remedy


async def test_without_a_key_the_remedy_is_a_login(home: Path) -> None:
    health = await provider().check()
    assert not health.ok
    assert "opencode auth login" in health.remedy
    assert health.version
    assert health.program == str(PROGRAM)


@pytest.mark.parametrize("way", ["key", "login", "provider"])
async def test_a_key_a_login_or_a_configured_provider_is_enough(
    home: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    if way == "key":
        monkeypatch.setenv("GROQ_API_KEY", "x")
    elif way == "login":
        (home / ".local/share/opencode").mkdir(parents=True)
        (home / ".local/share/opencode/auth.json").write_text('{"anthropic": {"type": "api", "key": "x"}}')
    else:
        monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"provider": {"mine": {"options": {"baseURL": "http://x"}}}}')
    health = await provider(write_program(home, "echo 1.18.33")).check()
    assert (health.ok, health.version, health.remedy) == (True, "1.18.33", "")


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("echo 0.9.4", "1.18 or newer"),
        ("echo broken >&2; exit 3", "broken"),
        ("exit 0", "failed"),
    ],
)
async def test_the_check_reports_why_a_program_cannot_be_used(home: Path, script: str, message: str) -> None:
    health = await provider(write_program(home, script)).check()
    assert not health.ok
    assert message in health.remedy


async def test_the_check_of_a_program_that_hangs_times_out(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atomic.providers.opencode.health._LIMIT", 0.2)
    health = await provider(write_program(home, "sleep 60")).check()
    assert not health.ok
    assert "longer than 0.2 s" in health.remedy
