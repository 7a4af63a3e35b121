"""Write the file of a new workflow."""

from __future__ import annotations

import os
from importlib.resources import files
from pathlib import Path

from atomic.loading import trust
from atomic.loading.metadata import is_name
from atomic.loading.trusted_files import WORKFLOWS, has_users_folder, is_home
from atomic.workflows.errors import WorkflowFileError

_EXAMPLE = "my-flow"


def starter(name: str) -> str:
    """Return the text of a commented example that can run at once."""
    text = files("atomic.loading").joinpath("starter.py").read_text("utf-8")
    _, _, body = text.partition("# ---")
    return f'"""{name}: a workflow of Atomic."""\n\n' + body.partition("\n")[2].replace(_EXAMPLE, name)


def write_workflow(name: str, project: Path, *, home: Path | None = None) -> tuple[Path, bool]:
    """Write `.atomic/workflows/NAME.py` and return its path, and whether it is
    approved.

    A file that the user had Atomic write needs no question. It is not approved if the
    project has something else that is not approved.

    Raises:
        WorkflowFileError: the name cannot be used, or the file cannot be written.
    """
    if not is_name(name) or name.startswith("_"):
        raise WorkflowFileError(f'"{name}" cannot name a workflow: use one word such as "my-flow"')
    if project == Path(project.anchor) or is_home(project) or has_users_folder(project):
        raise WorkflowFileError(f"{project}: this folder holds many projects; change to one of them")
    before = trust.look(project, home=home)
    text = starter(name)
    file = _write(project, name, text)
    return file, before.trusted and _approve(project, file, text, before, home)


def _write(project: Path, name: str, text: str) -> Path:
    folder = project / WORKFLOWS
    file = folder / f"{name}.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not Path(os.path.realpath(folder)).is_relative_to(os.path.realpath(project)):
            raise WorkflowFileError(f"{folder}: a link leads out of the project: nothing is written there")
        fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except FileExistsError as error:
        raise WorkflowFileError(f"{file}: this file already exists; choose another name") from error
    except OSError as error:
        raise WorkflowFileError(f"{file}: this file cannot be written: {error.strerror}") from error
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.write(text)
    return file


def _approve(project: Path, file: Path, text: str, before: trust.Snapshot, home: Path | None) -> bool:
    """Approve the project if only the new file was added, byte for byte."""
    now = trust.look(project, home=home)
    known = {item.key: item.sha256 for item in before.items}
    added = [item for item in now.items if known.pop(item.key, None) != item.sha256]
    is_ours = [(item.path, item.text) for item in added] == [(f"{WORKFLOWS}/{file.name}", text)]
    if known or not is_ours:
        return False
    trust.approve(now, home=home)
    return True
