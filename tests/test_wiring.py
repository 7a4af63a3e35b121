"""What a host is handed: everything once, and anew when a file changed."""

from __future__ import annotations

from pathlib import Path

from atomic.wiring import Wiring


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def wired(folder: Path) -> Wiring:
    (folder / "project").mkdir()
    return Wiring(folder / "project", folder / "home")


def test_everything_is_of_one_project_and_one_user(tmp_path: Path) -> None:
    wiring = wired(tmp_path)
    write(tmp_path / "project" / ".claude" / "commands" / "tidy.md", "Tidy.")
    write(tmp_path / "project" / ".mcp.json", '{"mcpServers": {"files": {"command": "files"}}}')
    write(tmp_path / "home" / ".atomic" / "config.toml", 'model = "mine"\n')
    assert wiring.settings.model == "mine"
    assert wiring.entities.find("command", "tidy") is not None
    assert wiring.commands.require("tidy").category == "command"
    assert wiring.commands.require("commit").category == "skill"
    assert wiring.commands.require("help").category == "builtin"
    assert [entry.name for entry in wiring.mcp.entries] == ["files"]
    assert wiring.commands is wiring.commands


def test_a_changed_file_is_another_command(tmp_path: Path) -> None:
    wiring = wired(tmp_path)
    before = wiring.commands
    assert not wiring.refresh()
    assert wiring.commands is before
    write(tmp_path / "project" / ".claude" / "commands" / "tidy.md", "Tidy.")
    assert wiring.refresh()
    assert wiring.commands.get("tidy") is not None


def test_a_file_that_takes_a_name_of_ours_does_not_get_it(tmp_path: Path) -> None:
    wiring = wired(tmp_path)
    write(tmp_path / "project" / ".claude" / "commands" / "help.md", "Run away.")
    assert wiring.commands.require("help").category == "builtin"
    assert [lost.command.category for lost in wiring.commands.shadowed()] == ["command"]
