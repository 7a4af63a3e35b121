"""`atomic init`: create a project's `.atomic/` with a configuration and an example
workflow.
"""

from __future__ import annotations

import os
from pathlib import Path

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import one_line
from atomic.cli.errors import CliError
from atomic.cli.schema import schema_text
from atomic.cli.streams import put
from atomic.config import atomic_home, find_project
from atomic.loading.trusted_files import has_users_folder, is_home

EXAMPLE = "example"


def init_project(arguments: Arguments) -> int:
    """Create the missing files; existing ones stay unchanged."""
    project = find_project()
    if project is None:
        raise CliError("the current folder no longer exists (change to another one)")
    folder = project / ".atomic"
    if has_users_folder(project) or is_home(project):
        raise UsageError("this is your home folder, whose .atomic is for all projects (change to a project's folder)")
    if project == Path(project.anchor):
        raise UsageError(f"{project} holds many projects (change to a project's folder)")
    if not os.access(project, os.W_OK | os.X_OK):
        raise CliError(f"you may not write to {project} (change to a folder of your own)")
    for wanted in (folder, folder / "schemas", folder / "workflows"):
        # A link in an untrusted repository could lead out of the project.
        if wanted.is_symlink() or (os.path.lexists(wanted) and not wanted.is_dir()):
            raise CliError(f"{wanted} is not a folder of this project (remove it, then try again)")
    if not os.path.lexists(folder / "workflows" / f"{EXAMPLE}.py"):
        _require_writable_home()
    put(f"Project: {one_line(str(project))}\n")
    folder.mkdir(exist_ok=True)
    template = Path(__file__).with_name("project_config.toml").read_text(encoding="utf-8")
    _print_file("config.toml", is_new=_write_new(folder / "config.toml", template))
    may_run = _write_example(project, folder)
    (folder / "schemas").mkdir(exist_ok=True)
    _print_file("schemas/config.json", is_new=_write_new(folder / "schemas/config.json", schema_text("config")))
    first = "" if may_run else "atomic trust, then "
    put(f'\nTry: {first}atomic run {EXAMPLE} "a limerick about version control"\n')
    return ExitCode.DONE


def _require_writable_home() -> None:
    """Raise CliError if the approval of the example could not be stored."""
    home = atomic_home()
    place = next((one for one in (home, *home.parents) if os.path.lexists(one)), home)
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        raise CliError(
            f"you may not write to {place}, where your approvals are kept (make it a folder of yours, or set "
            "ATOMIC_HOME to one)"
        )


def _print_file(name: str, *, is_new: bool) -> None:
    put(f"{'made ' if is_new else 'there'}  .atomic/{name}\n")


def _write_new(file: Path, text: str) -> bool:
    """Write a file. Return False if there is one."""
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(number, "w", encoding="utf-8") as out:
        out.write(text)
    return True


def _write_example(project: Path, folder: Path) -> bool:
    """Write the example, unless it exists, and return whether it can run without a new
    approval.
    """
    from atomic.loading import trust
    from atomic.loading.new_workflow import write_workflow

    name = f"workflows/{EXAMPLE}.py"
    if os.path.lexists(folder / name):
        _print_file(name, is_new=False)
        return trust.look(project).trusted
    _, may_run = write_workflow(EXAMPLE, project)
    _print_file(name, is_new=True)
    return may_run
