"""Test precedence of definitions, search, and changes of files."""

from __future__ import annotations

import logging
import os
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atomic.entities import Entity, EntityKind, EntityNotFoundError, EntityRegistry, Location, Provider, Source
from tests.entities.files import load, own, write

DEFINITIONS = [
    Entity(EntityKind.SKILL, "commit", f"{location} {provider} {file}", source=Source(provider, location, Path(file)))
    for location, provider, file in product(Location, Provider, ["a/x.md", "b/x.md", "a/x.json", "b/x.jsonc"])
]  # from the best to the worst


@given(st.permutations(DEFINITIONS))
def test_load_order_never_decides_which_definition_wins(entities: list[Entity]) -> None:
    registry = EntityRegistry(entities)
    winner = registry.require(EntityKind.SKILL, "COMMIT")
    assert (winner.source.provider, winner.source.location) == (Provider.ATOMIC, Location.PROJECT)
    assert registry.definitions("skill", "commit") == DEFINITIONS


@given(st.permutations(DEFINITIONS), st.integers(1, len(DEFINITIONS)))
def test_the_next_definition_wins_when_the_winner_is_removed(entities: list[Entity], number: int) -> None:
    some = entities[:number]
    left = [entity for entity in DEFINITIONS if entity in some]
    while left:
        registry = EntityRegistry(entity for entity in some if entity in left)
        assert registry.require("skill", "commit") == left[0]
        assert registry.hides(left[0]) == left[1:]
        assert all(registry.hidden_by(loser) == left[0] for loser in left[1:])
        assert registry.hidden_by(left[0]) is None
        left.pop(0)


@given(st.permutations([Entity("skill", "x", text, source=Source()) for text in "abcd"]))
def test_load_order_does_not_matter_within_one_file(entities: list[Entity]) -> None:
    assert EntityRegistry(entities).require("skill", "x").description == "a"


FILES = {
    ("project", ".atomic/commands/x.md"): 0,
    ("project", ".claude/commands/x.md"): 1,
    ("project", ".opencode/command/x.md"): 2,
    ("project", ".opencode/commands/x.md"): 3,
    ("project", "opencode.json"): 4,
    ("project", ".github/prompts/x.prompt.md"): 5,
    ("home", ".atomic/commands/x.md"): 6,
    ("home", ".claude/commands/x.md"): 7,
    ("home", ".config/opencode/command/x.md"): 8,
    ("home", ".config/opencode/opencode.json"): 9,
    ("home", ".copilot/prompts/x.prompt.md"): 10,
}


@settings(max_examples=25)
@given(st.permutations(sorted(FILES)).flatmap(lambda files: st.integers(1, len(files)).map(lambda n: files[:n])))
def test_files_on_disk_have_the_same_precedence(
    tmp_path_factory: pytest.TempPathFactory, files: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("disk")
    for level, file in files:
        text = f"{level} {file}"
        write(folder / level, {file: f'{{"command": {{"x": {{"template": "{text}"}}}}}}' if "json" in file else text})
    registry = EntityRegistry.load(project=folder / "project", user=folder / "home")
    for level, file in sorted(files, key=lambda each: FILES[each]):
        assert registry.require("command", "x").prompt == f"{level} {file}"
        (folder / level / file).unlink()
        assert registry.refresh()
    assert registry.find("command", "x") is None


def test_only_a_trusted_project_overrides_a_built_in_name(tmp_path: Path) -> None:
    files = {".github/skills/Commit/SKILL.md": "---\ndescription: ours\n---\nHi"}
    registry = load(tmp_path, files)
    assert registry.require("skill", "commit").source.location == "builtin"
    assert [entity.description for entity in registry.ignored] == ["ours"]
    assert "is a built-in name" in registry.diagnostics[0].reason
    registry = EntityRegistry.load(tmp_path / "project", tmp_path / "home", is_trusted=lambda: True)
    winner = registry.require("skill", "commit")
    assert winner.description == "ours"
    assert [entity.source.location for entity in registry.hides(winner)] == ["builtin"]
    assert registry.find("skill", "ci") is None, "a losing entity's aliases lose too"


def test_trust_takes_effect_after_a_refresh(tmp_path: Path) -> None:
    load(tmp_path, {".github/skills/Commit/SKILL.md": "---\ndescription: ours\n---\nHi"})
    approved = False
    registry = EntityRegistry.load(tmp_path / "project", tmp_path / "home", is_trusted=lambda: approved)
    assert not registry.refresh()
    approved = True
    assert registry.refresh()
    assert registry.require("skill", "commit").description == "ours"
    assert not registry.ignored
    assert not registry.refresh()
    approved = False
    assert registry.refresh()
    assert registry.require("skill", "commit").source.location == "builtin"


def test_a_name_wins_over_an_alias_and_then_the_better_source() -> None:
    first = Entity("skill", "a", aliases=["b", "Q"], source=Source(Provider.ATOMIC))
    second = Entity("skill", "b", aliases=["q", "r"], source=Source(Provider.COPILOT, Location.USER))
    for entities in ([first, second], [second, first]):
        registry = EntityRegistry(entities)
        assert registry.find("skill", "B") is second
        assert registry.find("skill", "q") is first
        assert registry.find("skill", "R") is second


def test_each_kind_has_its_own_names() -> None:
    registry = EntityRegistry([Entity("agent", "x"), Entity("command", "x", argument_hint="[c]")])
    assert registry.find("skill", "x") is None
    assert [entity.kind for entity in registry.all()] == ["command", "agent"]
    assert registry.hint("X") == "[c]"
    assert registry.hint("nothing") == ""
    with pytest.raises(ValueError, match="skil"):
        registry.find("skil", "x")


def test_the_error_for_an_unknown_name_suggests_the_nearest() -> None:
    registry = EntityRegistry([Entity("skill", "commit", aliases=["ci"]), Entity("agent", "comit")])
    with pytest.raises(EntityNotFoundError) as caught:
        registry.require("skill", "comit")
    assert str(caught.value) == 'Skill not found: "comit" (did you mean "commit"?)'
    with pytest.raises(EntityNotFoundError) as caught:
        registry.require("command", "zzz")
    assert str(caught.value) == 'Command not found: "zzz"'


def test_names_are_compared_after_unicode_normalization() -> None:
    assert EntityRegistry([Entity("skill", "e\u0301te\u0301")]).find("skill", "ÉTÉ")


def test_search_is_exact_then_prefix_then_fuzzy() -> None:
    names = ["commit", "commit-all", "pre-commit", "uncommitted", "create-old-map-mit", "other", "c"]
    registry = EntityRegistry([*(Entity("skill", name) for name in names), Entity("skill", "commits", hidden=True)])

    def found(text: str) -> list[str]:
        return [entity.name for entity in registry.search("skill", text)]

    assert found("Commit") == ["commit", "commit-all", "pre-commit", "uncommitted", "create-old-map-mit"]
    assert found("commit-all") == ["commit-all"]
    assert found("cmmit") == ["commit", "commit-all", "pre-commit", "uncommitted", "create-old-map-mit"]
    assert found("crmap") == ["create-old-map-mit"]
    assert found("zz") == []
    assert found("") == sorted(names)
    assert found("c")[0] == "c"


def test_search_finds_aliases() -> None:
    registry = EntityRegistry([Entity("skill", "commit", aliases=["ci"]), Entity("skill", "circle")])
    assert [entity.name for entity in registry.search("skill", "ci")] == ["commit", "circle"]


def test_registered_entities_survive_a_refresh(tmp_path: Path) -> None:
    registry = load(tmp_path, {".claude/commands/x.md": "file"})
    registry.register(Entity("command", "x", prompt="registered"))
    registry.register(Entity("command", "low", source=Source(Provider.COPILOT, Location.BUILTIN)))
    assert registry.require("command", "x").prompt == "registered"
    write(tmp_path / "project", {".claude/commands/y.md": "file"})
    assert registry.refresh()
    assert registry.require("command", "x").prompt == "registered"
    assert registry.require("command", "low")
    assert len(registry.definitions("command", "x")) == 2


def test_the_number_of_entities_of_each_provider_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    head = "---\ndescription: d\n---\n"
    files = {f".claude/skills/s{i}/SKILL.md": head for i in range(5)} | {
        f".claude/agents/a{i}.md": head for i in range(7)
    }
    with caplog.at_level(logging.INFO, "atomic.entities"):
        load(tmp_path, files | {".opencode/command/c.md": "Hi"})
    assert "Registered 12 entities from claude (5 skills, 7 agents)" in caplog.messages
    assert "Registered 1 entity from opencode (1 command)" in caplog.messages
    assert not any("copilot" in message for message in caplog.messages)


def touch(file: Path, text: str, seconds: int) -> None:
    file.write_text(text)
    os.utime(file, (seconds, seconds))


def test_changes_are_noticed_without_a_restart(tmp_path: Path) -> None:
    registry = load(
        tmp_path, {".claude/commands/x.md": "one", ".claude/commands/bad.md": b"\xff", "opencode.json": "{"}
    )
    project = tmp_path / "project"
    assert not registry.refresh()
    kept = registry.require("skill", "commit")
    touch(project / ".claude/commands/x.md", "two", 1)
    assert registry.refresh()
    assert registry.require("command", "x").prompt == "two"
    assert registry.require("skill", "commit") is kept, "only changed files are parsed again"
    touch(project / ".claude/commands/bad.md", "good now", 2)
    assert registry.refresh()
    assert registry.require("command", "bad").prompt == "good now"
    touch(project / "opencode.json", '{"command": {"j": {"template": "{file:j.txt}"}}}', 3)
    assert [found.path.name for found in registry.diagnostics] == ["opencode.json"]
    touch(project / "j.txt", "json", 3)
    assert registry.refresh()
    assert (registry.require("command", "j").prompt, registry.diagnostics) == ("json", [])
    touch(project / "j.txt", "more", 4)
    assert registry.refresh()
    assert registry.require("command", "j").prompt == "more"
    write(project, {".claude/skills/new/SKILL.md": "---\nname: new\n---\nHi"})
    assert registry.refresh()
    assert registry.require("skill", "new")
    (project / ".claude/commands/x.md").unlink()
    assert registry.refresh()
    assert registry.find("command", "x") is None
    assert not registry.refresh()


def test_a_thousand_files_are_loaded_and_unchanged(tmp_path: Path) -> None:
    """Load many entities; `make bench` limits the time."""
    head = "---\nname: {}\ndescription: Reviews recent changes\ntools: Read, Grep, Bash(git:*)\nmodel: sonnet\n---\n"
    paths = (".claude/agents/{}.md", ".opencode/agent/{}.md", ".github/agents/{}.agent.md", ".atomic/agents/{}.md")
    files = {paths[i % 4].format(f"a{i}"): head.format(f"a{i}") + "Prompt\n" * 300 for i in range(1000)}
    registry = load(tmp_path, files)
    assert len(own(registry)) == 1000
    assert not registry.refresh()
