"""Files that define commands, skills, agents and MCP servers, in a user's project or home folder."""

from __future__ import annotations

from pathlib import Path

import msgspec


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def skill(root: Path, name: str, body: str, *, head: str = "", description: str = "") -> Path:
    text = f"---\nname: {name}\ndescription: {description or f'About {name}.'}\n{head}---\n{body}\n"
    return write(root / "skills" / name / "SKILL.md", text)


def agent(root: Path, name: str, body: str, *, head: str = "") -> Path:
    return write(root / "agents" / f"{name}.md", f"---\nname: {name}\ndescription: About {name}.\n{head}---\n{body}\n")


def servers(file: Path, **entries: object) -> Path:
    return write(file, msgspec.json.encode({"mcpServers": entries}).decode())
