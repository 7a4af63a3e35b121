"""Test the check of Copilot, its list of models, and requests for structured answers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from atomic.providers import Health, ModelInfo, require_provider
from atomic.providers.copilot.session import LooseSchemaError, strict
from tests.providers.copilot.sandbox import sandbox, settings
from tests.support.fake_copilot import write_fake_program
from tests.support.programs import CACHE

OLD = "it is older than 1.0.102: npm install -g @github/copilot"


@pytest.fixture(autouse=True)
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set up a user without settings or a login."""
    names = ("COPILOT_GITHUB_TOKEN", "GH_TOKEN", "GITHUB_TOKEN", "COPILOT_HOME", "COPILOT_MODEL", "GH_CONFIG_DIR")
    for name in (*names, "COPILOT_PROVIDER_BASE_URL", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("COPILOT_CACHE_HOME", str(CACHE / "copilot"))
    monkeypatch.setenv("COPILOT_AUTO_UPDATE", "false")
    return home


async def health(program: Path | None = None) -> Health:
    return await require_provider("copilot", settings(program) if program else settings()).check()


async def test_the_check_passes_with_a_token_or_a_login(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "copilot login" in (await health()).remedy
    with monkeypatch.context() as patch:
        patch.setenv("GH_TOKEN", "x")
        found = await health()
        assert (found.ok, found.remedy) == (True, "")
        assert found.version.startswith("1.")
    (empty_home / ".copilot").mkdir(exist_ok=True)
    config = empty_home / ".copilot" / "config.json"
    config.write_text('// made by Copilot\n{"loggedInUsers": []}')
    assert not (await health()).ok
    config.write_text('// made by Copilot\n{"loggedInUsers": [{"host": "https://github.com", "login": "me"}]}')
    assert (await health()).ok
    config.unlink()
    (empty_home / ".config" / "gh").mkdir(parents=True)
    (empty_home / ".config" / "gh" / "hosts.yml").write_text("github.com:\n  user: me\n")
    assert (await health()).ok


async def test_a_problem_of_the_program_is_reported_with_the_remedy(tmp_path: Path) -> None:
    assert "nowhere" in (await health(tmp_path / "nowhere")).remedy
    old = await health(write_fake_program(tmp_path, "old"))
    assert (old.ok, old.version, old.remedy) == (False, "0.9.1", OLD)
    assert "does not report a version but prints 'hello'" in (await health(write_fake_program(tmp_path))).remedy


async def test_without_a_login_only_configured_models_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = require_provider("copilot", msgspec.structs.replace(settings(), model="mine"))
    assert list(await provider.models()) == [ModelInfo("mine", "mine")]
    monkeypatch.setenv("COPILOT_PROVIDER_BASE_URL", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("COPILOT_PROVIDER_MAX_PROMPT_TOKENS", "5000")
    monkeypatch.setenv("COPILOT_MODEL", "scripted-1")
    assert list(await provider.models()) == [
        ModelInfo("scripted-1", "scripted-1", 5000),
        ModelInfo("mine", "mine", 5000),
    ]


class Finding(msgspec.Struct):
    title: str
    line: int | None = None


class Review(msgspec.Struct):
    ok: bool
    findings: list[Finding] = []


async def test_a_strict_schema_is_sent_to_the_model(tmp_path: Path) -> None:
    answer = '{"ok": true, "findings": [{"title": "typo", "line": null}]}'
    async with sandbox(tmp_path, {"ask": answer}) as here, here.open() as session:
        assert await session.ask_for(Review, "@@ask@@") == Review(True, [Finding("typo")])
        [call] = here.server.calls
    bound = call.body["response_format"]["json_schema"]
    assert bound["strict"] is True
    review = bound["schema"]
    finding = bound["schema"]["$defs"]["Finding"]
    for one, names in ((review, ["ok", "findings"]), (finding, ["title", "line"])):
        assert (one["required"], one["additionalProperties"]) == (names, False)
    assert "default" not in review["properties"]["findings"]


async def test_a_schema_that_is_not_strict_is_put_into_the_prompt(tmp_path: Path) -> None:
    with pytest.raises(LooseSchemaError):
        strict(
            {"type": "object", "properties": {"value": {"type": "object", "additionalProperties": {"type": "integer"}}}}
        )
    async with sandbox(tmp_path, {"ask": '{"a": 1}'}) as here, here.open() as session:
        assert await session.ask_for(dict[str, int], "@@ask@@ count") == {"a": 1}
        [call] = here.server.calls
    assert "response_format" not in call.body
    assert "JSON Schema" in call.user_text
