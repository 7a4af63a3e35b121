"""Test that every config folder is read with the right kind, agent and location."""

from __future__ import annotations

from pathlib import Path

import pytest

from atomic.base.errors import AtomicError
from atomic.entities import EntityKind, EntityRegistry, Location
from tests.entities.files import load, own, write

HEAD = "---\ndescription: found\n---\nDo it.\n"

PROJECT = [
    ("claude", "command", ".claude/commands/x.md", "x"),
    ("claude", "command", ".claude/commands/a/b/x.md", "a:b:x"),
    ("claude", "skill", ".claude/skills/x/SKILL.md", "x"),
    ("claude", "agent", ".claude/agents/x.md", "x"),
    ("claude", "agent", ".claude/agents/team/x.md", "x"),
    ("opencode", "command", ".opencode/command/x.md", "x"),
    ("opencode", "command", ".opencode/commands/team/x.md", "team:x"),
    ("opencode", "skill", ".opencode/skill/x/SKILL.md", "x"),
    ("opencode", "skill", ".opencode/skills/a/b/x/SKILL.md", "x"),
    ("opencode", "agent", ".opencode/agent/x.md", "x"),
    ("opencode", "agent", ".opencode/agents/team/x.md", "x"),
    ("opencode", "agent", ".opencode/mode/x.md", "x"),
    ("opencode", "agent", ".opencode/modes/x.md", "x"),
    ("copilot", "command", ".github/prompts/x.prompt.md", "x"),
    ("copilot", "skill", ".github/skills/a/x/SKILL.md", "x"),
    ("copilot", "agent", ".github/agents/x.agent.md", "x"),
    ("copilot", "agent", ".github/agents/team/x.md", "x"),
    ("atomic", "command", ".atomic/commands/a/x.md", "a:x"),
    ("atomic", "skill", ".atomic/skills/x/SKILL.md", "x"),
    ("atomic", "skill", ".agents/skills/x/SKILL.md", "x"),
    ("atomic", "agent", ".atomic/agents/team/x.md", "x"),
]
USER = [
    ("claude", "command", ".claude/commands/a/x.md", "a:x"),
    ("claude", "skill", ".claude/skills/x/SKILL.md", "x"),
    ("claude", "agent", ".claude/agents/x.md", "x"),
    ("opencode", "command", ".config/opencode/command/x.md", "x"),
    ("opencode", "command", ".opencode/commands/x.md", "x"),
    ("opencode", "skill", ".config/opencode/skills/a/x/SKILL.md", "x"),
    ("opencode", "skill", ".opencode/skill/x/SKILL.md", "x"),
    ("opencode", "agent", ".config/opencode/agent/x.md", "x"),
    ("opencode", "agent", ".opencode/agents/x.md", "x"),
    ("opencode", "agent", ".config/opencode/modes/x.md", "x"),
    ("copilot", "command", ".copilot/prompts/x.prompt.md", "x"),
    ("copilot", "skill", ".copilot/skills/x/SKILL.md", "x"),
    ("copilot", "agent", ".copilot/agents/x.agent.md", "x"),
    ("atomic", "command", ".atomic/commands/x.md", "x"),
    ("atomic", "skill", ".atomic/skills/x/SKILL.md", "x"),
    ("atomic", "skill", ".agents/skills/x/SKILL.md", "x"),
    ("atomic", "agent", ".atomic/agents/x.md", "x"),
]
CONFIGS = [
    ("project", "opencode.json"),
    ("project", "opencode.jsonc"),
    ("project", ".opencode/opencode.json"),
    ("project", ".opencode/opencode.jsonc"),
    ("home", ".config/opencode/opencode.json"),
    ("home", ".config/opencode/opencode.jsonc"),
    ("home", ".opencode/opencode.json"),
]
IGNORED = [
    ".claude/commands/README.md",
    ".claude/agents/team/readme.md",
    ".claude/commands/notes.txt",
    ".claude/commands/.hidden.md",
    ".claude/skills/SKILL.md",
    ".claude/skills/a/b/SKILL.md",
    ".claude/skills/x/other.md",
    ".opencode/mode/team/x.md",
    ".opencode/skill/x/skill.txt",
    ".github/prompts/x.md",
    ".github/prompts/team/x.prompt.md",
    ".github/instructions/x.md",
    ".agents/commands/x.md",
    ".claude/commands/node_modules/x.md",
]

# The minimum that git accepts as a repository.
REPOSITORY = {
    ".git/HEAD": "ref: refs/heads/main\n",
    ".git/objects/x": "",
    ".git/refs/x": "",
}


@pytest.mark.parametrize(("provider", "kind", "file", "name"), PROJECT, ids=lambda value: value)
def test_a_file_in_the_project_is_found(tmp_path: Path, provider: str, kind: str, file: str, name: str) -> None:
    entity = load(tmp_path, {file: HEAD}).require(kind, name)
    assert (entity.source.provider, entity.source.location) == (provider, "project")
    assert (entity.source.path, entity.description) == (tmp_path / "project" / file, "found")
    assert entity.prompt == "Do it."


@pytest.mark.parametrize(("provider", "kind", "file", "name"), USER, ids=lambda value: value)
def test_a_file_in_the_home_folder_is_found(tmp_path: Path, provider: str, kind: str, file: str, name: str) -> None:
    entity = load(tmp_path, home={file: HEAD}).require(kind, name)
    assert (entity.source.provider, entity.source.location) == (provider, "user")
    assert (entity.description, entity.prompt) == ("found", "Do it.")


@pytest.mark.parametrize(("level", "file"), CONFIGS)
@pytest.mark.parametrize("plural", ["", "s"])
def test_commands_and_agents_in_opencodes_configuration_are_found(
    tmp_path: Path, level: str, file: str, plural: str
) -> None:
    config = """{
      // with comments
      "commandS": {"deploy": {"template": "Deploy $1", "description": "Ships it"}},
      "agentS": {"tester": {"prompt": "Test.", "mode": "primary"},},
    }""".replace('S":', f'{plural}":')
    registry = load(tmp_path, **{level: {file: config}})
    command = registry.require("command", "deploy")
    agent = registry.require("agent", "tester")
    assert (command.expand("now"), command.description) == ("Deploy now", "Ships it")
    assert (agent.prompt, agent.description) == ("Test.", "Agent: tester")
    assert {command.source.location, agent.source.location} == {"project" if level == "project" else "user"}
    assert command.source.path == tmp_path / level / file


@pytest.mark.parametrize("file", IGNORED)
def test_other_files_are_ignored(tmp_path: Path, file: str) -> None:
    registry = load(tmp_path, {file: HEAD})
    assert own(registry) == []
    assert registry.diagnostics == []


@pytest.mark.parametrize(
    ("variable", "file", "kind"),
    [
        ("CLAUDE_CONFIG_DIR", "commands/x.md", "command"),
        ("CLAUDE_CONFIG_DIR", "skills/x/SKILL.md", "skill"),
        ("XDG_CONFIG_HOME", "opencode/agents/x.md", "agent"),
        ("COPILOT_HOME", "agents/x.agent.md", "agent"),
        ("ATOMIC_HOME", "skills/x/SKILL.md", "skill"),
    ],
)
def test_variables_change_the_folders_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, file: str, kind: str
) -> None:
    default = {"CLAUDE_CONFIG_DIR": ".claude", "XDG_CONFIG_HOME": ".config", "COPILOT_HOME": ".copilot"}
    home = write(tmp_path / "home", {f"{default.get(variable, '.atomic')}/{file}": HEAD.replace("found", "old")})
    moved = write(tmp_path / "moved", {file: HEAD})
    project = write(tmp_path / "project", REPOSITORY)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv(variable, str(moved))
    monkeypatch.chdir(project)
    assert EntityRegistry.load().require(kind, "x").description == "found"
    monkeypatch.delenv(variable)
    assert EntityRegistry.load().require(kind, "x").description == "old"
    monkeypatch.setenv(variable, str(moved))
    named = EntityRegistry.load(user=home).require(kind, "x")
    assert named.description == "old", "an explicit home folder ignores the variable"


def test_the_default_project_is_found_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = write(tmp_path / "project", {**REPOSITORY, ".claude/commands/x.md": "Hi", "src/deep/a.txt": ""})
    home = write(tmp_path / "home", {})
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(project / "src" / "deep")
    assert EntityRegistry.load(user=home).require("command", "x").source.location is Location.PROJECT


def test_files_in_the_home_folder_belong_to_the_user(tmp_path: Path) -> None:
    write(tmp_path, {".claude/commands/x.md": "Hi"})
    registry = EntityRegistry.load(project=tmp_path, user=tmp_path)
    assert [entity.source.location for entity in registry.definitions("command", "x")] == ["user"]


def test_only_files_of_the_selected_providers_are_read(tmp_path: Path) -> None:
    write(tmp_path, {".claude/commands/c.md": "c", ".opencode/command/o.md": "o", "opencode.json": "broken"})
    registry = EntityRegistry.load(project=tmp_path, user=tmp_path / "home", providers=["claude"])
    own = [entity.name for entity in registry.all() if entity.source.location is not Location.BUILTIN]
    assert own == ["c"]
    assert registry.diagnostics == []
    with pytest.raises(AtomicError, match="gemini"):
        EntityRegistry.load(project=tmp_path, user=tmp_path / "home", providers=["gemini"])


def test_the_package_contains_built_in_skills_and_agents(tmp_path: Path) -> None:
    registry = load(tmp_path)
    assert {entity.source.location for entity in registry.all()} == {"builtin"}
    assert {entity.source.provider for entity in registry.all()} == {"atomic"}
    assert registry.require("skill", "ci").name == "commit"
    assert [entity.name for entity in registry.all(EntityKind.SKILL)] == [
        "commit",
        "create-feature-list",
        "create-gh-pr",
        "create-spec",
        "create-workflow",
        "explain-code",
        "implement-feature",
        "research-codebase",
    ]
    assert {entity.name for entity in registry.all("agent")} >= {"planner", "worker", "reviewer", "fixer", "debugger"}
    assert all(entity.prompt and not entity.description.startswith(("Agent: ", "Skill: ")) for entity in registry.all())
