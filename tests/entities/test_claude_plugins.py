"""The skills of Claude Code's plugins are found, if the user has installed them and switched them on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from atomic.entities import EntityKind, EntityRegistry
from tests.support.entity_files import write

SKILL = "---\nname: review\ndescription: Review a change\n---\nReview $ARGUMENTS.\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    for plugin in ("tools", "off"):
        write(home / f".claude/plugins/cache/market/{plugin}/1.0/skills/review/SKILL.md", SKILL)
    return home


def install(home: Path, enabled: dict[str, bool], **more: dict[str, Any]) -> None:
    plugins = {
        f"{name}@market": [{"scope": "user", "installPath": f"{home}/.claude/plugins/cache/market/{name}/1.0"} | fields]
        for name, fields in {"tools": {}, "off": {}, **more}.items()
    }
    write(home / ".claude/plugins/installed_plugins.json", json.dumps({"version": 2, "plugins": plugins}))
    write(home / ".claude/settings.json", json.dumps({"enabledPlugins": enabled}))


def skills(home: Path, project: Path) -> list[str]:
    project.mkdir(exist_ok=True)
    registry = EntityRegistry.load(project, home)
    return [entity.name for entity in registry.all(EntityKind.SKILL) if entity.source.location == "user"]


def test_a_skill_has_the_name_of_its_plugin(home: Path, tmp_path: Path) -> None:
    install(home, {"tools@market": True, "off@market": False})
    assert skills(home, tmp_path / "p") == ["tools:review"]
    entity = EntityRegistry.load(tmp_path / "p", home).require(EntityKind.SKILL, "tools:review")
    assert "Review the parser." in entity.expand("the parser")


def test_a_plugin_of_another_project_is_not_used(home: Path, tmp_path: Path) -> None:
    install(home, {"tools@market": True}, tools={"scope": "project", "projectPath": str(tmp_path / "p")})
    assert skills(home, tmp_path / "p") == ["tools:review"]
    assert skills(home, tmp_path / "other") == []


def test_a_project_cannot_bring_a_plugin(home: Path, tmp_path: Path) -> None:
    evil = tmp_path / "p" / "evil"
    write(evil / "skills/review/SKILL.md", SKILL)
    install(home, {"evil@market": True}, evil={"installPath": str(evil)})
    write(tmp_path / "p/.claude/settings.json", json.dumps({"enabledPlugins": {"evil@market": True}}))
    assert skills(home, tmp_path / "p") == []


@pytest.mark.parametrize("text", ["{", "[]", '{"plugins": 3}', '{"plugins": {"a@b": 3}}', '{"plugins": {"a@b": [3]}}'])
def test_a_broken_list_of_plugins_is_no_error(text: str, home: Path, tmp_path: Path) -> None:
    install(home, {"a@b": True})
    (home / ".claude/plugins/installed_plugins.json").write_text(text)
    assert skills(home, tmp_path / "p") == []
