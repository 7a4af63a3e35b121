"""Test that Atomic keeps the user's configuration, adds to it, and allows without asking."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atomic.base.formats import parse_jsonc
from atomic.config import EnvSettings, ProviderSettings, Settings
from atomic.providers import AgentSpec, McpServer, ProviderError, SessionOptions
from atomic.providers.opencode.configuration import CONTENT, merge, read_user_configuration, without_asking
from atomic.providers.opencode.launch import ServerPlan, plan_server

SECRETS = {
    "ANTHROPIC_API_KEY": "a",
    "OPENAI_API_KEY": "o",
    "MY_LAB_API_KEY": "m",
    "AWS_SECRET_ACCESS_KEY": "w",
    "GITHUB_TOKEN": "g",
    "DATABASE_PASSWORD": "d",
    "OPENCODE_API_KEY": "z",
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a user with many secrets and no configuration."""
    for name in ("XDG_CONFIG_HOME", "OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    (tmp_path / ".config" / "opencode").mkdir(parents=True)
    return tmp_path


def plan(settings: Settings | None = None, **options: Any) -> ServerPlan:
    return plan_server("opencode", settings or Settings(), SessionOptions(**options), liveness=1)


def passed_secrets(plan: ServerPlan) -> set[str]:
    return set(SECRETS) & set(plan.env)


def configure(home: Path, text: str, name: str = "opencode.json") -> None:
    (home / ".config" / "opencode" / name).write_text(text)


def test_the_second_version_of_the_configuration_is_understood(home: Path) -> None:
    configure(
        home,
        """{"providers": {"my-lab": {}}, "agents": {"a": {"model": "anthropic/x"}},
            "mcp": {"timeout": {"startup": 1}, "servers": {"newer": {}}, "older": {"type": "local"}}}""",
    )
    user = read_user_configuration({"HOME": str(home)})
    assert (user.providers(), set(user.servers())) == ({"my-lab", "anthropic"}, {"newer", "older"})
    assert passed_secrets(plan()) == {"MY_LAB_API_KEY", "ANTHROPIC_API_KEY", "OPENCODE_API_KEY"}
    rules = [{"action": "bash", "resource": "*", "effect": "ask"}, {"action": "x", "resource": "*", "effect": "deny"}]
    assert [rule["effect"] for rule in without_asking({"permissions": rules})["permissions"]] == ["allow", "deny"]


def test_without_a_configuration_only_keys_of_models_are_passed(home: Path) -> None:
    assert passed_secrets(plan()) == {"ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY"}


def test_with_a_configuration_only_the_keys_of_its_providers_are_passed(home: Path) -> None:
    configure(home, '{"model": "anthropic/claude", "provider": {"my-lab": {}}} // mine', "opencode.jsonc")
    assert passed_secrets(plan()) == {"ANTHROPIC_API_KEY", "MY_LAB_API_KEY", "OPENCODE_API_KEY"}


def test_the_key_of_the_chosen_model_is_passed(home: Path) -> None:
    configure(home, '{"model": "anthropic/claude"}')
    chosen = plan(model="amazon-bedrock/nova")
    assert passed_secrets(chosen) == {"ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "OPENCODE_API_KEY"}


def test_variables_named_in_the_configuration_are_passed(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = tmp_path / "other.jsonc"
    other.write_text('{"provider": {"x": {"options": {"apiKey": "{env:DATABASE_PASSWORD}"}}}}')
    monkeypatch.setenv("OPENCODE_CONFIG", str(other))
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"mcp": {"y": {"headers": {"x": "{env:GITHUB_TOKEN}"}}}}')
    assert passed_secrets(plan()) == {"DATABASE_PASSWORD", "GITHUB_TOKEN", "OPENCODE_API_KEY"}


def test_variables_in_the_users_settings_are_passed(home: Path) -> None:
    settings = Settings(
        env=EnvSettings(pass_=["DATABASE_PASSWORD"]),
        providers={"opencode": ProviderSettings(env={"EXTRA": "1"}, args=["--log-level", "DEBUG"])},
    )
    found = plan(settings, env={"OPTION": "2"})
    assert "DATABASE_PASSWORD" in found.env
    assert (found.env["EXTRA"], found.env["OPTION"], found.args) == ("1", "2", ("--log-level", "DEBUG"))


def test_ask_becomes_allow_and_deny_stays() -> None:
    user = {
        "permission": {"bash": {"*": "ask", "rm *": "deny"}, "edit": "ask", "webfetch": "deny"},
        "agent": {"mine": {"permission": "ask", "prompt": "ask"}},
        "theme": "ask",
    }
    assert without_asking(user) == {
        "permission": {"bash": {"*": "allow", "rm *": "deny"}, "edit": "allow", "webfetch": "deny"},
        "agent": {"mine": {"permission": "allow", "prompt": "ask"}},
        "theme": "ask",
    }


def test_the_users_content_is_merged_and_never_replaced(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "OPENCODE_CONFIG_CONTENT",
        '{"model": "a/b", "agent": {"mine": {"prompt": "x"}}, "mcp": {"own": {"type": "local"}}, "lsp": true}',
    )
    worker = AgentSpec(name="worker", description="Works.", prompt="You work.", model="a/c")
    box = McpServer(name="box", command=["box", "--now"], env={"A": "1"})
    web = McpServer(name="web", url="http://127.0.0.1/mcp", headers={"x": "y"})
    content = plan(agents=[worker], mcp_servers=[box, web], trusted=True).content
    assert content == {
        "model": "a/b",
        "agent": {
            "mine": {"prompt": "x"},
            "worker": {"description": "Works.", "prompt": "You work.", "mode": "all", "model": "a/c"},
        },
        "mcp": {
            "own": {"type": "local"},
            "box": {"type": "local", "command": ["box", "--now"], "environment": {"A": "1"}, "enabled": True},
            "web": {"type": "remote", "url": "http://127.0.0.1/mcp", "headers": {"x": "y"}, "enabled": True},
        },
        "lsp": True,
    }


def test_an_untrusted_project_gets_no_configuration_formatter_or_language_server(home: Path) -> None:
    assert plan().content == {"formatter": False, "lsp": False}
    assert plan().env["OPENCODE_DISABLE_PROJECT_CONFIG"] == "1"
    assert "OPENCODE_DISABLE_PROJECT_CONFIG" not in plan(trusted=True).env


def test_content_that_is_not_json_is_reported(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", "{model: x}")
    with pytest.raises(ProviderError, match="OPENCODE_CONFIG_CONTENT is not JSON"):
        plan()


@pytest.mark.parametrize("model", ["gpt-5", "/x", "x/"])
def test_a_model_without_its_provider_is_an_error(home: Path, model: str) -> None:
    with pytest.raises(ProviderError, match="provider/model"):
        plan(model=model)
    with pytest.raises(ProviderError, match="provider/model"):
        plan(agents=[AgentSpec(name="a", description="", prompt="", model=model)])


# OpenCode has no models with the names of families.
@pytest.mark.parametrize("model", ["inherit", "opus", "sonnet", "haiku"])
def test_a_sub_agent_without_its_own_model_uses_the_model_of_the_session(home: Path, model: str) -> None:
    content = plan(agents=[AgentSpec(name="a", description="", prompt="", model=model)]).content
    assert "model" not in content["agent"]["a"]


def test_references_in_options_of_the_caller_are_not_expanded(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OPENCODE_CONFIG_CONTENT", '{"username": "{env:USER}"}')
    words = "Never print {env:SECRET} or {file:/etc/passwd}, {but} this."
    text = plan(agents=[AgentSpec(name="a", description=words, prompt=words)]).environment(None, tmp_path)[CONTENT]
    assert re.findall(r"\{(?:env|file):[^}]+\}", text) == ["{env:USER}"]
    assert json.loads(text)["agent"]["a"]["prompt"] == json.loads(text)["agent"]["a"]["description"] == words


def test_prompts_too_long_for_the_environment_are_written_to_files(home: Path, tmp_path: Path) -> None:
    agents = [AgentSpec(name=f"a{n}", description="", prompt=f"{{env:A}} {n} " + "ö" * 30_000) for n in range(3)]
    text = plan(agents=agents).environment(None, tmp_path)[CONTENT]
    assert len(text.encode()) < 10_000
    for agent in agents:
        reference = json.loads(text)["agent"][agent.name]["prompt"]
        assert Path(reference.removeprefix("{file:").removesuffix("}")).read_text("utf-8") == agent.prompt


def test_a_later_configuration_file_overrides_an_earlier_one(
    home: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure(home, '{"model": "a/1", "x": {"a": 1, "b": 1}}', "config.json")
    configure(home, '{"model": "b/2", "x": {"b": 2}}')
    configure(home, "no JSON", "opencode.jsonc")
    assert read_user_configuration({"HOME": str(home)}).merged == {"model": "b/2", "x": {"a": 1, "b": 2}}


@pytest.mark.parametrize("kind", ["long", "folder"])
def test_unreadable_settings_are_an_error_with_file_reason_and_remedy(home: Path, kind: str) -> None:
    file = home / ".config" / "opencode" / "opencode.json"
    if kind == "long":
        file.write_text(" " * 1024 * 1024 + "{}")
    else:
        file.mkdir()
    reason = "this file is longer than 1,048,576 bytes" if kind == "long" else "this is not a regular file"
    with pytest.raises(ProviderError, match="OpenCode's settings cannot be read") as caught:
        plan()
    remedy = "make it a readable file of at most 1 MB, or move it away"
    assert str(caught.value) == f"OpenCode's settings cannot be read: {file}: {reason} ({remedy})"


def test_sessions_with_the_same_configuration_share_a_server(home: Path) -> None:
    def add(a: int) -> int:
        return a

    def other(a: int) -> int:
        return a

    assert plan().key == plan(system_prompt="x", tools=["read"], max_turns=3).key
    assert plan(custom_tools=[add]).key == plan(custom_tools=[add]).key
    different: list[dict[str, Any]] = [
        {},
        {"trusted": True},
        {"env": {"A": "1"}},
        {"custom_tools": [add]},
        {"custom_tools": [other]},
        {"mcp_servers": [McpServer(name="box", command=["box"])]},
        {"agents": [AgentSpec(name="a", description="", prompt="")]},
    ]
    assert len({plan(**one).key for one in different}) == len(different)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), json_values))
def test_plain_json_is_read_unchanged(value: dict[str, Any]) -> None:
    assert parse_jsonc(json.dumps(value)) == value
    assert parse_jsonc(json.dumps(value, ensure_ascii=False, indent=1)) == value


def test_comments_and_trailing_commas_are_ignored_except_in_strings() -> None:
    text = """// first
    { /* a "text" */ "url": "http://x//y", // "plugin": 1
      "list": [1, 2, /* 3 */ ], "quote": "\\"// no comment",
    }"""
    assert parse_jsonc(text) == {"url": "http://x//y", "list": [1, 2], "quote": '"// no comment'}
    assert parse_jsonc('{ // ends here\r "plugin": 1}') == {"plugin": 1}


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a": 1, "a": 2}', '{"a" 1}', "/* {", "[" * 100_000])
def test_a_value_that_is_not_an_object_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_jsonc(text)


@given(st.dictionaries(st.text(), json_values), st.dictionaries(st.text(), json_values))
def test_merging_keeps_the_order_of_the_first_and_the_values_of_the_second(
    lower: dict[str, Any], upper: dict[str, Any]
) -> None:
    merged = merge(lower, upper)
    assert list(merged) == [*lower, *(key for key in upper if key not in lower)]
    assert merge(merged, upper) == merged
    assert merge(lower, {}) == lower
