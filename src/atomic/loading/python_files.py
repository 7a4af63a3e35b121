"""The Python files of a project and of its user, read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from atomic.base.untrusted_files import Root
from atomic.config import atomic_home
from atomic.loading.executables import TOOLS, WORKFLOWS, shown_path
from atomic.loading.modules import SourceFiles
from atomic.loading.trust import Snapshot
from atomic.workflows.definition import WorkflowSource
from atomic.workflows.errors import WorkflowProblem


class PythonFiles(msgspec.Struct, frozen=True, eq=False):
    """The Python files of a project or of the user, as bytes that were read once."""

    source: WorkflowSource
    root: Path
    files: Mapping[str, bytes]
    refused: Mapping[str, str]
    code: SourceFiles
    workflows: str = WORKFLOWS
    tools: str = TOOLS

    def below(self, folder: str) -> Iterator[tuple[str, bytes]]:
        """Yield the files directly in a folder, except helpers such as `_helpers.py`."""
        for name, data in sorted(self.files.items()):
            inner = name.removeprefix(f"{folder}/")
            if inner != name and "/" not in inner and not inner.startswith("_"):
                yield name, data

    def problems(self, folder: str) -> Iterator[WorkflowProblem]:
        """Yield the files of a folder that could not be read."""
        for name, reason in sorted(self.refused.items()):
            if name == folder or name.startswith(f"{folder}/"):
                yield WorkflowProblem(self.root / shown_path(name), 1, reason)


def project_files(snapshot: Snapshot) -> PythonFiles:
    """Return the files of a project from its snapshot."""
    root = Path(snapshot.project or "/")
    code = SourceFiles(root, snapshot.files, (WORKFLOWS, TOOLS))
    return PythonFiles(WorkflowSource.PROJECT, root, snapshot.files, snapshot.refused, code)


def user_files(home: Path | None = None) -> PythonFiles:
    """Return the user's own files."""
    root = home or atomic_home()
    reader = Root.of_user(root)
    found = [file for folder in ("workflows", "tools") for file in reader.walk(folder)]
    python = [file for file in found if file.reason or file.name.endswith(".py")]
    files = {file.name: file.data for file in python if not file.reason}
    refused = {file.name: file.reason for file in python if file.reason}
    code = SourceFiles(root, files, ("workflows", "tools"))
    return PythonFiles(WorkflowSource.USER, root, files, refused, code, "workflows", "tools")
