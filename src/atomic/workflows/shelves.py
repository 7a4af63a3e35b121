"""The Python files of a project and of its user, read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from atomic.config import atomic_home
from atomic.workflows.definition import WorkflowSource
from atomic.workflows.errors import WorkflowProblem
from atomic.workflows.executables import TOOLS, WORKFLOWS, shown_path
from atomic.workflows.guarded import Root
from atomic.workflows.modules import SourceFiles
from atomic.workflows.trust import Snapshot


class Shelf(msgspec.Struct, frozen=True, eq=False):
    """The Python files of a project or of the user, as bytes that were read once."""

    source: WorkflowSource
    root: Path
    files: Mapping[str, bytes]
    refused: Mapping[str, str]
    code: SourceFiles
    workflows: str = WORKFLOWS
    tools: str = TOOLS

    def below(self, folder: str) -> Iterator[tuple[str, bytes]]:
        """The files right in a folder that are meant to be found; `_helpers.py` is only for the others."""
        for name, data in sorted(self.files.items()):
            inner = name.removeprefix(f"{folder}/")
            if inner != name and "/" not in inner and not inner.startswith("_"):
                yield name, data

    def problems(self, folder: str) -> Iterator[WorkflowProblem]:
        """What in a folder could not be read."""
        for name, reason in sorted(self.refused.items()):
            if name == folder or name.startswith(f"{folder}/"):
                yield WorkflowProblem(self.root / shown_path(name), 1, reason)


def project_shelf(snapshot: Snapshot) -> Shelf:
    """The files of a project as its snapshot has them."""
    root = Path(snapshot.project or "/")
    code = SourceFiles(root, snapshot.files, (WORKFLOWS, TOOLS))
    return Shelf(WorkflowSource.PROJECT, root, snapshot.files, snapshot.refused, code)


def user_shelf(home: Path | None = None) -> Shelf:
    """The user's own files."""
    root = home or atomic_home()
    reader = Root.of_user(root)
    found = [file for folder in ("workflows", "tools") for file in reader.walk(folder)]
    python = [file for file in found if file.reason or file.name.endswith(".py")]
    files = {file.name: file.data for file in python if not file.reason}
    refused = {file.name: file.reason for file in python if file.reason}
    code = SourceFiles(root, files, ("workflows", "tools"))
    return Shelf(WorkflowSource.USER, root, files, refused, code, "workflows", "tools")
