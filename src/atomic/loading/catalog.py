"""Find workflows by name, in the project, in the user's folder and among built-in ones.

No code of a workflow runs to find it. A workflow of a project is loaded only if the
project is trusted, and from the bytes of the approved snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from atomic.base.errors import did_you_mean
from atomic.base.text import fold
from atomic.base.untrusted_files import read_bounded, reason_of
from atomic.config import Settings, find_project
from atomic.graph import FunctionWorkflow
from atomic.loading import trust
from atomic.loading.loader import Code, define, line_of_node, load_file
from atomic.loading.metadata_reader import MetadataReader
from atomic.loading.packages import InstalledModule, find_package_workflows
from atomic.loading.python_files import PythonFiles, project_files, user_files
from atomic.loading.trust import Snapshot
from atomic.loading.trusted_files import shown_path
from atomic.loading.typed_files import digest_of, is_path, read_typed_file
from atomic.workflows.capabilities import all_nodes, references_of
from atomic.workflows.definition import Capabilities, LoadedWorkflow, Runnable, WorkflowDefinition, WorkflowSource
from atomic.workflows.errors import (
    UntrustedError,
    WorkflowFileError,
    WorkflowGoneError,
    WorkflowLoadError,
    WorkflowNotFoundError,
    WorkflowProblem,
)


class _Source(NamedTuple):
    """The bytes of a workflow's file, and how to run it."""

    source: WorkflowSource
    code: Code
    name: str
    data: bytes


class WorkflowCatalog:
    """The workflows of a project and its user.

    `user` replaces the user's home folder.
    """

    def __init__(
        self,
        project: Path | None = None,
        user: Path | None = None,
        *,
        trusted: str | None = None,
        builtin: Sequence[WorkflowDefinition] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.project = project or find_project()
        self._home = None if user is None else user / ".atomic"
        self._given = trusted
        self._settings = settings
        self._builtin = builtin_workflows() if builtin is None else builtin
        self._files: dict[Path | None, _Source] = {}
        self._packages: dict[Path | None, str] = {}
        self._loaded: dict[Path | None, LoadedWorkflow] = {}
        self._has_looked = False
        self._problems: list[WorkflowProblem] = []
        self._by_word: dict[str, WorkflowDefinition] = {}
        self._found: list[WorkflowDefinition] = []
        self.hidden: list[WorkflowDefinition] = []

    @cached_property
    def snapshot(self) -> Snapshot:
        """Return the project as it was first read.

        Raise UntrustedError if `trusted` is another hash.
        """
        return trust.accept(trust.look(self.project, home=self._home), self._given)

    @cached_property
    def python_files(self) -> Sequence[PythonFiles]:
        """Return the Python files by origin; the first one wins."""
        return (project_files(self.snapshot), user_files(self._home))

    def find(self, name: str) -> WorkflowDefinition | None:
        """Return the workflow of that name or alias, if there is one."""
        self._look()
        return self._by_word.get(fold(name))

    def find_typed(self, word: str) -> WorkflowDefinition | None:
        """Return the workflow that a word of a command line means: a name, or the path
        of a file.
        """
        if not is_path(word):
            return self.find(word.removeprefix("/"))
        try:
            return self.typed_file(Path(word))
        except WorkflowFileError:
            return None

    def typed(self, word: str) -> WorkflowDefinition:
        """Return the workflow that a word of a command line means.

        Raises WorkflowNotFoundError, or WorkflowFileError for a path.
        """
        if is_path(word):
            return self.typed_file(Path(word))
        if self.find_typed(word) is None and "/" in word and Path(word).is_file():
            raise WorkflowFileError(f"{word}: the name of a workflow file ends in .py: rename it")
        return self.definition(word.removeprefix("/"))

    def typed_file(self, path: Path) -> WorkflowDefinition:
        """Return the workflow of a file that needs no trust, because the user typed its
        path.

        Raises WorkflowFileError.
        """
        self._look()  # first, because the file may also be one of the project's
        files = read_typed_file(path)
        name = next(iter(files.files))
        definition = self._define(files, name, files.files[name], MetadataReader())
        problems = (*definition.problems, *files.problems(files.workflows))
        return msgspec.structs.replace(definition, sha256=digest_of(files), problems=problems)

    def definition(self, name: str) -> WorkflowDefinition:
        """Return the workflow of that name or alias.

        Raises WorkflowNotFoundError with the nearest name.
        """
        found = self.find(name)
        if found is None:
            raise WorkflowNotFoundError(name, [word for one in self.all() for word in (one.name, *one.aliases)])
        return found

    def started(self, name: str, source: str, path: str) -> WorkflowDefinition:
        """Return the workflow that a run was started with, even if another one has its
        name now.

        Raises WorkflowGoneError if it no longer exists.
        """
        self._look()
        if source == WorkflowSource.FILE:
            try:
                return self.typed_file(Path(path))
            except WorkflowFileError as error:
                raise WorkflowGoneError(name, path) from error
        for one in (*self._found, *self.hidden):
            if fold(one.name) == fold(name) and one.source == source and str(one.path or "") == path:
                return one
        raise WorkflowGoneError(name, path)

    def require(self, name: str) -> Runnable:
        """Return the graph or the function of a workflow, for a step that calls it by
        name.

        Raises WorkflowNotFoundError, UntrustedError, WorkflowLoadError.
        """
        definition = self.definition(name)
        graph = definition.load().graph
        if graph is None:
            path = definition.path or Path(definition.name)
            reason = "it has no graph, so no other workflow can call it"
            raise WorkflowLoadError(definition.name, [WorkflowProblem(path, 1, reason)])
        return graph

    def all(self) -> Sequence[WorkflowDefinition]:
        """Return the workflows that are not hidden by others, by name."""
        self._look()
        return sorted(self._found, key=lambda one: fold(one.name))

    @property
    def problems(self) -> Sequence[WorkflowProblem]:
        """Return the problems that can be found without running the files."""
        self._look()
        return (*self._problems, *(problem for one in (*self.all(), *self.hidden) for problem in one.problems))

    def is_trusted(self, definition: WorkflowDefinition) -> bool:
        """Return whether a workflow may run now."""
        return definition.source is not WorkflowSource.PROJECT or self.snapshot.trusted

    def config_of(self, definition: WorkflowDefinition) -> dict[str, Any]:
        """Return the config of a workflow with the settings."""
        return definition.config(self._settings.workflows if self._settings else {})

    def _look(self) -> None:
        if self._has_looked:
            return
        self._has_looked = True
        for files in self.python_files:
            self._problems += files.problems(files.workflows)
            reader = MetadataReader()
            self._add([self._define(files, name, data, reader) for name, data in files.below(files.workflows)])
        self._add(self._builtin)
        self._add(list(self._of_packages()))

    def _define(self, files: PythonFiles, name: str, data: bytes, reader: MetadataReader) -> WorkflowDefinition:
        path = files.root / shown_path(name)
        self._files[path] = _Source(files.source, files.code, name, files.files[name])
        return define(path, data, of=files.source, loader=self._load, reader=reader)

    def _of_packages(self) -> Iterator[WorkflowDefinition]:
        """Yield the workflows of installed packages, which are not imported."""
        reader = MetadataReader()
        for one in find_package_workflows():
            try:
                if one.path is None:
                    reason = f'the package {one.package} names the workflow "{one.name}", but it has no such file'
                    self._problems.append(WorkflowProblem(Path(one.module), 1, reason))
                    continue
                data = read_bounded(one.path)
            except OSError as error:
                self._problems.append(WorkflowProblem(Path(one.module), 1, reason_of(error)))
                continue
            code = InstalledModule(one.module)
            self._files[one.path] = _Source(WorkflowSource.PACKAGE, code, one.module, data)
            self._packages[one.path] = one.package
            yield define(one.path, data, of=WorkflowSource.PACKAGE, loader=self._load, reader=reader, name=one.name)

    def package_of(self, definition: WorkflowDefinition) -> str:
        """Return the installed package of a workflow, with its version."""
        self._look()
        return self._packages.get(definition.path, "") if definition.source is WorkflowSource.PACKAGE else ""

    def _add(self, level: Sequence[WorkflowDefinition]) -> None:
        """Assign names, then aliases; an earlier level keeps its names."""
        winners = [one for one in level if one.name and self._takes_name(one)]
        self._problems += [problem for one in level if not one.name for problem in one.problems]
        for one in winners:
            self._found.append(one)
            for alias in one.aliases:
                owner = self._by_word.setdefault(fold(alias), one)
                if owner is not one and owner.source is one.source and one.path is not None:
                    reason = f'the alias "{alias}" is taken by "{owner.name}"'
                    self._problems.append(WorkflowProblem(one.path, 1, reason))

    def _takes_name(self, one: WorkflowDefinition) -> bool:
        owner = self._by_word.setdefault(fold(one.name), one)
        if owner is one:
            return True
        self.hidden.append(one)
        if owner.source is one.source and one.path is not None and owner.path is not None:
            reason = f'the name "{one.name}" is taken by {owner.path.name}'
            self._problems.append(WorkflowProblem(one.path, 1, reason))
        return False

    def _load(self, definition: WorkflowDefinition) -> LoadedWorkflow:
        loaded = self._load_alone(definition)
        cycle = self._find_cycle(definition, (), set())
        if cycle is not None:
            node, names = cycle
            reason = f"workflows call each other in a circle: {' -> '.join(names)}"
            raise WorkflowLoadError(definition.name, [self.problem_at(definition, node, reason)])
        return msgspec.structs.replace(loaded, capabilities=self._capabilities(definition, set()))

    def _load_alone(self, definition: WorkflowDefinition) -> LoadedWorkflow:
        """Load a workflow without the workflows that it calls."""
        if definition.path not in self._files:
            return definition.load()
        file = self._files[definition.path]
        if file.source is WorkflowSource.PROJECT:
            trust.require(self.snapshot)
        if definition.path not in self._loaded:
            self._loaded[definition.path] = load_file(definition, file.code, file.name, file.data)
        return self._loaded[definition.path]

    def _capabilities(self, definition: WorkflowDefinition, seen: set[str]) -> Capabilities:
        """Return the features of a workflow and of all workflows that it calls, each
        visited once.
        """
        seen.add(definition.name)
        loaded = self._find_loaded(definition)
        can = Capabilities() if loaded is None else loaded.capabilities
        for _, name in self._references(definition):
            called = self.find(name)
            if called is not None and called.name not in seen:
                can = can.joined(self._capabilities(called, seen))
        return can

    def _find_cycle(
        self, definition: WorkflowDefinition, above: tuple[str, ...], clean: set[str]
    ) -> tuple[str, tuple[str, ...]] | None:
        """Return the node that starts a cycle of calls, and the names of the cycle."""
        names = (*above, definition.name)
        for node, name in self._references(definition):
            called = self.find(name)
            if called is None or called.name in clean:
                continue
            if called.name in names:
                return node, (*names[names.index(called.name) :], called.name)
            found = self._find_cycle(called, names, clean)
            if found is not None:
                return node, found[1]
        clean.add(definition.name)
        return None

    def _references(self, definition: WorkflowDefinition) -> Sequence[tuple[str, str]]:
        """Return the nodes that call workflows by name, each with that name."""
        loaded = self._find_loaded(definition)
        if loaded is None or loaded.graph is None:
            return ()
        if isinstance(loaded.graph, FunctionWorkflow):
            return [(name, name) for name in loaded.calls]
        return references_of(loaded.graph)

    def _find_loaded(self, definition: WorkflowDefinition) -> LoadedWorkflow | None:
        """Load a workflow without the workflows that it calls.

        None if it cannot be loaded.
        """
        try:
            return None if definition.refused else self._load_alone(definition)
        except (WorkflowLoadError, UntrustedError):
            return None

    def problem_at(self, definition: WorkflowDefinition, node: str, reason: str) -> WorkflowProblem:
        """Return a problem at the line of a file that names a node."""
        path = definition.path or Path(definition.name)
        line = 1
        if path in self._files:
            line = line_of_node(self._files[path].data, node)
        return WorkflowProblem(path, line, reason)

    def check_calls(self, definition: WorkflowDefinition) -> None:
        """Check that all workflows that it calls, directly or not, exist and may run.

        A run checks this before it starts, not after hours of work.
        Raises:
            UntrustedError: one belongs to a project that is not trusted in its current state.
            WorkflowLoadError: one does not exist, or cannot be loaded.
        """
        seen: set[str] = set()
        left = [definition]
        while left:
            caller = left.pop()
            unknown = self.unknown_references(caller)
            if unknown:
                raise WorkflowLoadError(caller.name, unknown)
            for _, name in self._references(caller):
                called = self.definition(name)
                if called.name not in seen:
                    seen.add(called.name)
                    called.load()
                    left.append(called)

    def unknown_descriptions(self, definition: WorkflowDefinition) -> list[WorkflowProblem]:
        """Return the entries of `node_descriptions` without a node, unless it calls
        other workflows.
        """
        loaded = self._find_loaded(definition)
        if loaded is None or loaded.graph is None or self._references(definition):
            return []
        if isinstance(loaded.graph, FunctionWorkflow):  # its steps are known when it runs
            return []
        known = {*loaded.graph.node_ids, *(node.id for node in all_nodes(loaded.graph))}
        found: list[WorkflowProblem] = []
        for name in definition.node_descriptions:
            if name not in known:
                reason = f'node_descriptions: there is no node "{name}"{did_you_mean(name, known)}'
                found.append(self.problem_at(definition, name, reason))
        return found

    def unknown_references(self, definition: WorkflowDefinition) -> list[WorkflowProblem]:
        """Return the calls of workflows that do not exist."""
        known = [word for one in self.all() for word in (one.name, *one.aliases)]
        found: list[WorkflowProblem] = []
        for node, name in self._references(definition):
            if self.find(name) is None:
                called = f'there is no workflow "{name}"{did_you_mean(name, known)}'
                reason = called if node == name else f"{node}: {called}"
                found.append(self.problem_at(definition, node, reason))
        return found


def builtin_workflows() -> Sequence[WorkflowDefinition]:
    """Return the workflows that come with Atomic. They need no trust.

    Each has a loader that imports its code only when it runs.
    """
    from atomic.ralph.definition import RALPH

    return (RALPH,)
