"""List the commands of a project, and name its folder and branch for the screen."""

from __future__ import annotations

import os
from pathlib import Path

from atomic.base.untrusted_files import read_bounded_text
from atomic.chat.protocol import CommandInfo, CommandsListed
from atomic.git import find_repository
from atomic.wiring import Project


def list_commands(project: Project) -> CommandsListed:
    """Return the commands and agents for the prompt."""
    commands = [
        CommandInfo(one.name, one.description, one.category, tuple(one.aliases), one.argument_hint, one.hidden)
        for one in project.commands.all()
    ]
    agents = [
        CommandInfo(one.name, one.description, "agent", tuple(one.aliases), one.argument_hint, one.hidden)
        for one in project.entities.all("agent")
    ]
    return CommandsListed(commands=tuple(commands), agents=tuple(agents))


def shown_folder(folder: Path) -> str:
    """Return a path with `~` for the home folder."""
    home = str(Path.home())
    path = str(folder)
    return f"~{path[len(home) :]}" if path == home or path.startswith(home + os.sep) else path


def current_branch(folder: Path) -> str:
    """Return the branch that is checked out, without a call of git.

    Empty without a repository.
    """
    repository = find_repository(folder)
    if repository is None:
        return ""
    try:
        head = read_bounded_text(repository.git_dir / "HEAD").strip()
    except OSError:
        return ""
    return head.removeprefix("ref: refs/heads/") if head.startswith("ref: ") else head[:8]
