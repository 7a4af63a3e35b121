"""`atomic init`: a project's `.atomic/` with a configuration and a workflow to begin with."""

from __future__ import annotations

import os
from pathlib import Path

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import one_line
from atomic.cli.errors import CliError
from atomic.cli.streams import put
from atomic.config import atomic_home, find_project

EXAMPLE = "example"
_CONFIG = """\
# What holds in this project for everybody who works on it. Your own settings are in ~/.atomic/config.toml.
# This file may come from a stranger: it takes the keys below, and no others. Numbers only lower those of the user.
# `atomic config` shows what holds, and where it comes from.

# agent = "claude"        # claude, opencode, copilot, or acp:NAME of the user's own configuration
# theme = "dark"

# [caps]                  # for each run; they can only be lower than your own
# max_cost = 5.0          # dollars
# max_tokens = 2_000_000
# max_time = "6h"
# turn_limit = "30m"      # of one turn

# [workflows.ralph]
# verify = ["make test"]  # after the user's own checks; it runs when the project is trusted
# max_iterations = 50     # also workers, reviewers, review_rounds
"""


def init_project(arguments: Arguments) -> int:
    """Make what is missing; what is there stays as it is."""
    project = find_project()
    if project is None:
        raise CliError("the current folder no longer exists (change to another one)")
    folder = project / ".atomic"
    if os.path.realpath(folder) == os.path.realpath(atomic_home()) or project == Path.home().resolve():
        raise UsageError("this is your home folder, whose .atomic is for all projects (change to a project's folder)")
    _check_folders(folder, folder / "workflows")
    put(f"Project: {one_line(str(project))}\n")
    _tell("config.toml", _config_made(folder))
    may_run = _example(project, folder)
    first = "" if may_run else "atomic trust, then "
    put(f'\nTry: {first}atomic run {EXAMPLE} "a limerick about version control"\n')
    return ExitCode.DONE


def _check_folders(*folders: Path) -> None:
    """A link that a stranger's repository brings along could lead out of the project."""
    for folder in folders:
        if folder.is_symlink() or (os.path.lexists(folder) and not folder.is_dir()):
            raise CliError(f"{folder} is no folder of this project (remove it, then try again)")


def _tell(name: str, made: bool) -> None:
    put(f"{'made ' if made else 'there'}  .atomic/{name}\n")


def _config_made(folder: Path) -> bool:
    """Write the configuration, unless there is one."""
    folder.mkdir(exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        number = os.open(folder / "config.toml", flags, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(_CONFIG)
    return True


def _example(project: Path, folder: Path) -> bool:
    """Write the example, unless it is there; whether it may run at once."""
    from atomic.loading import trust
    from atomic.loading.new_workflow import write_workflow

    if os.path.lexists(folder / "workflows" / f"{EXAMPLE}.py"):
        _tell(f"workflows/{EXAMPLE}.py", False)
        return trust.look(project).trusted
    _, may_run = write_workflow(EXAMPLE, project)
    _tell(f"workflows/{EXAMPLE}.py", True)
    return may_run
