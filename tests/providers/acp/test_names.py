"""Test names of agents, their programs and their environments."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atomic.config import AcpSettings, EnvSettings, ProviderSettings, Settings
from atomic.providers import ProgramMissingError, ProviderError, SessionOptions, UnknownProviderError, require_provider
from atomic.providers.acp.agents import find_agent
from atomic.providers.acp.environment import environment
from tests.providers.acp.sandbox import puppet_settings


def test_an_unknown_agent_is_reported_with_the_nearest_name() -> None:
    with pytest.raises(UnknownProviderError, match='did you mean "acp:gemini"'):
        require_provider("acp:gemni", Settings())
    with pytest.raises(UnknownProviderError, match='did you mean "acp:puppet"'):
        require_provider("acp:pupet", puppet_settings())


@pytest.mark.parametrize("name", ["claude", "codex", "copilot", "gemini", "opencode"])
async def test_a_missing_program_is_reported_with_its_install_command(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for variable in ("ATOMIC_OPENCODE_PATH", "ATOMIC_COPILOT_PATH"):
        monkeypatch.delenv(variable, raising=False)
    provider = require_provider(f"acp:{name}", Settings())
    health = await provider.check()
    assert not health.ok
    assert "npm install -g" in health.remedy
    with pytest.raises(ProgramMissingError, match="npm install -g"):
        async with provider.open(SessionOptions(cwd=tmp_path)):
            pass


async def test_the_remedy_names_the_setting_of_a_missing_program() -> None:
    health = await require_provider("acp:x", Settings(acp={"x": AcpSettings(["nowhere"])})).check()
    assert "[acp.x] command" in health.remedy


async def test_the_configuration_overrides_a_known_agent() -> None:
    command = puppet_settings().acp["puppet"].command
    health = await require_provider("acp:gemini", Settings(acp={"gemini": AcpSettings(command)})).check()
    assert (health.ok, health.version, health.program) == (True, "1.2.3", command[0])


@pytest.mark.parametrize("name", ["opencode", "copilot"])
def test_an_agent_with_an_adapter_of_its_own_does_not_use_the_protocol(name: str) -> None:
    assert require_provider(f"acp:{name}", Settings()).name == name
    configured = Settings(acp={name: AcpSettings([name, "acp"])})
    assert require_provider(f"acp:{name}", configured).name == f"acp:{name}"


def test_invalid_settings_are_refused() -> None:
    with pytest.raises(ProviderError, match="empty command"):
        require_provider("acp:x", Settings(acp={"x": AcpSettings([])}))
    with pytest.raises(ProviderError, match="accepts only env"):
        require_provider("acp:gemini", Settings(providers={"acp": ProviderSettings(path="/bin/true")}))


def test_an_agent_gets_its_own_keys_and_no_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    keys = (
        "GEMINI_API_KEY",
        "OPENAI_API_KEY",
        "ANTHROPIC_API_KEY",
        "MY_TOKEN",
        "PUPPET_KEY",
    )
    for name in keys:
        monkeypatch.setenv(name, "secret")
    settings = puppet_settings(env=EnvSettings(["MY_TOKEN"]), providers={"acp": ProviderSettings(env={"SET": "1"})})
    own = {
        name: {
            key for key in keys if key in environment(find_agent(name, settings), settings, SessionOptions(), tmp_path)
        }
        for name in ("gemini", "codex", "claude", "puppet")
    }
    assert own == {
        "gemini": {"GEMINI_API_KEY", "MY_TOKEN"},
        "codex": {"OPENAI_API_KEY", "MY_TOKEN"},
        "claude": {"ANTHROPIC_API_KEY", "MY_TOKEN"},
        "puppet": {"MY_TOKEN"},
    }
    env = environment(find_agent("puppet", settings), settings, SessionOptions(env={"PUPPET_KEY": "x"}), tmp_path)
    assert (env["SET"], env["PUPPET_KEY"], env["PATH"]) == ("1", "x", os.environ["PATH"])


def test_claude_over_acp_proposes_no_next_prompt_unless_the_user_wants_it(tmp_path: Path) -> None:
    """Each proposal is a call of the model."""
    name = "CLAUDE_CODE_ENABLE_PROMPT_SUGGESTION"
    agent = find_agent("claude", Settings())
    assert environment(agent, Settings(), SessionOptions(), tmp_path)[name] == "false"
    assert environment(agent, Settings(), SessionOptions(env={name: "true"}), tmp_path)[name] == "true"
