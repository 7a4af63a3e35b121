"""Find custom tools by name.

A tool is a public function with a docstring in `.atomic/tools/*.py` or
`~/.atomic/tools/*.py`. The syntax trees show which file defines a tool. Only that file
runs, and a file of a project only if the project is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.loading import trust
from atomic.loading.catalog import WorkflowCatalog
from atomic.loading.loader import problem_of
from atomic.loading.metadata import Remark, WrittenTool
from atomic.loading.metadata_reader import MetadataReader
from atomic.loading.python_files import PythonFiles
from atomic.workflows.capabilities import tools_of
from atomic.workflows.definition import WorkflowDefinition, WorkflowSource
from atomic.workflows.errors import ToolNotFoundError, WorkflowLoadError, WorkflowProblem


class ToolDefinition(msgspec.Struct, frozen=True, eq=False):
    """A tool as its file describes it; the file has not run."""

    name: str
    description: str
    source: WorkflowSource
    path: Path
    line: int


class ToolCatalog:
    """The tools of a project and its user, from the same bytes as the workflows."""

    def __init__(self, workflows: WorkflowCatalog) -> None:
        self._workflows = workflows
        self._tools: dict[str, tuple[ToolDefinition, PythonFiles, str]] = {}
        self.problems: list[WorkflowProblem] = []
        for files in workflows.python_files:
            self.problems += files.problems(files.tools)
            reader = MetadataReader()
            for name, data in files.below(files.tools):
                self._read(files, name, reader.tools(data))

    def all(self) -> Sequence[ToolDefinition]:
        """Return the tools that are not hidden by others, by name."""
        return [self._tools[name][0] for name in sorted(self._tools)]

    def require(self, name: str) -> Callable[..., Any]:
        """Return the function of that name.

        Raises ToolNotFoundError, UntrustedError, WorkflowLoadError.
        """
        if name not in self._tools:
            raise ToolNotFoundError(name, sorted(self._tools))
        self.allow(name)
        tool, files, file = self._tools[name]
        try:
            found = getattr(files.code.run(file), name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's file may raise anything, an extension even a BaseException
            raise WorkflowLoadError(name, [problem_of(error, tool.path)]) from error
        if not callable(found):
            reason = f"{name} is not a function after the file has run"
            raise WorkflowLoadError(name, [WorkflowProblem(tool.path, tool.line, reason)])
        return found

    def allow(self, name: str) -> None:
        """Raise UntrustedError if the tool belongs to a project that is not trusted in
        its current state.
        """
        if name in self._tools and self._tools[name][1].source is WorkflowSource.PROJECT:
            trust.require(self._workflows.snapshot)

    def unknown(self, definition: WorkflowDefinition) -> list[WorkflowProblem]:
        """Return the calls of tools that do not exist."""
        graph = definition.load().graph
        called = [] if graph is None else tools_of(graph)
        return [
            self._workflows.problem_at(definition, node, f"{node}: {ToolNotFoundError(tool, sorted(self._tools))}")
            for node, tool in called
            if tool not in self._tools
        ]

    def _read(self, files: PythonFiles, name: str, written: list[WrittenTool] | Remark) -> None:
        path = files.root / name
        if isinstance(written, Remark):
            self.problems.append(WorkflowProblem(path, written.line, written.reason))
            return
        for one in written:
            tool = ToolDefinition(one.name, one.description, files.source, path, one.line)
            winner = self._tools.setdefault(one.name, (tool, files, name))[0]
            if winner is not tool and winner.source is tool.source:
                reason = f'the tool "{tool.name}" is already defined in {winner.path.name}'
                self.problems.append(WorkflowProblem(path, tool.line, reason))
