"""Custom tools by name: each public function with a docstring in `.atomic/tools/*.py` or `~/.atomic/tools/*.py`.

Which file defines a name is seen from the syntax trees; only that file runs, and one of a
project only if it is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from atomic.workflows import trust
from atomic.workflows.capabilities import tools_of
from atomic.workflows.catalog import WorkflowCatalog
from atomic.workflows.definition import WorkflowDefinition, WorkflowSource
from atomic.workflows.errors import ToolNotFoundError, WorkflowLoadError, WorkflowProblem
from atomic.workflows.loader import problem_of
from atomic.workflows.metadata import Remark, WrittenTool
from atomic.workflows.metadata_reading import MetadataReader
from atomic.workflows.shelves import Shelf


class ToolDefinition(msgspec.Struct, frozen=True, eq=False):
    """A tool as its file describes it; nothing of the file has run."""

    name: str
    description: str
    source: WorkflowSource
    path: Path
    line: int


class ToolCatalog:
    """The tools of a project and its user, from the same bytes as the workflows."""

    def __init__(self, workflows: WorkflowCatalog) -> None:
        self._workflows = workflows
        self._tools: dict[str, tuple[ToolDefinition, Shelf, str]] = {}
        self.problems: list[WorkflowProblem] = []
        for shelf in workflows.shelves:
            self.problems += shelf.problems(shelf.tools)
            reader = MetadataReader()
            for name, data in shelf.below(shelf.tools):
                self._read(shelf, name, reader.tools(data))

    def all(self) -> Sequence[ToolDefinition]:
        """Those that win in their names, by name."""
        return [self._tools[name][0] for name in sorted(self._tools)]

    def require(self, name: str) -> Callable[..., Any]:
        """The function of that name. Raises ToolNotFoundError, UntrustedError, WorkflowLoadError."""
        if name not in self._tools:
            raise ToolNotFoundError(name, sorted(self._tools))
        self.allow(name)
        tool, shelf, file = self._tools[name]
        try:
            found = getattr(shelf.code.run(file), name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a user's file may raise anything; the panic of an extension is no Exception
            raise WorkflowLoadError(name, [problem_of(error, tool.path)]) from error
        if not callable(found):
            reason = f"{name} is no function any more when the file has run"
            raise WorkflowLoadError(name, [WorkflowProblem(tool.path, tool.line, reason)])
        return found

    def allow(self, name: str) -> None:
        """Raises UntrustedError if the tool is code of the project that nobody has approved as it is now."""
        if name in self._tools and self._tools[name][1].source is WorkflowSource.PROJECT:
            trust.require(self._workflows.snapshot)

    def unknown(self, definition: WorkflowDefinition) -> list[WorkflowProblem]:
        """The tools that a workflow calls and nobody defines."""
        graph = definition.load().graph
        called = [] if graph is None else tools_of(graph)
        return [
            self._workflows.problem_at(definition, node, f"{node}: {ToolNotFoundError(tool, sorted(self._tools))}")
            for node, tool in called
            if tool not in self._tools
        ]

    def _read(self, shelf: Shelf, name: str, written: list[WrittenTool] | Remark) -> None:
        path = shelf.root / name
        if isinstance(written, Remark):
            self.problems.append(WorkflowProblem(path, written.line, written.reason))
            return
        for one in written:
            tool = ToolDefinition(one.name, one.description, shelf.source, path, one.line)
            winner = self._tools.setdefault(one.name, (tool, shelf, name))[0]
            if winner is not tool and winner.source is tool.source:
                reason = f'the tool "{tool.name}" is already defined in {winner.path.name}'
                self.problems.append(WorkflowProblem(path, tool.line, reason))
