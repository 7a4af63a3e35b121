"""A project reads each part once, and again when a file changes."""

from __future__ import annotations

from pathlib import Path

from atomic.wiring import Project


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def make_project(folder: Path) -> Project:
    (folder / "project").mkdir()
    return Project(folder / "project", folder / "home")


def test_all_parts_belong_to_one_project_and_one_user(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    write(tmp_path / "project" / ".claude" / "commands" / "tidy.md", "Tidy.")
    write(tmp_path / "project" / ".mcp.json", '{"mcpServers": {"files": {"command": "files"}}}')
    write(tmp_path / "home" / ".atomic" / "config.toml", 'model = "mine"\n')
    assert project.settings.model == "mine"
    assert project.entities.find("command", "tidy") is not None
    assert project.commands.require("tidy").category == "command"
    assert project.commands.require("commit").category == "skill"
    assert project.commands.require("help").category == "builtin"
    assert [entry.name for entry in project.mcp.entries] == ["files"]
    assert project.commands is project.commands


def test_a_new_file_changes_the_commands(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    before = project.commands
    assert not project.refresh()
    assert project.commands is before
    write(tmp_path / "project" / ".claude" / "commands" / "tidy.md", "Tidy.")
    assert project.refresh()
    assert project.commands.get("tidy") is not None


def test_a_file_cannot_replace_a_built_in_command(tmp_path: Path) -> None:
    project = make_project(tmp_path)
    write(tmp_path / "project" / ".claude" / "commands" / "help.md", "Run away.")
    assert project.commands.require("help").category == "builtin"
    assert [lost.command.category for lost in project.commands.shadowed()] == ["command"]
