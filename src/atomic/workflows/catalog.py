"""Find a workflow by its name: the project's, the user's, one that comes with Atomic.

Nothing runs to find one. To load one of a project needs trust; its bytes are those of the snapshot that was looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any
from unicodedata import normalize

import msgspec

from atomic.config import Settings, find_project
from atomic.errors import closest
from atomic.graph import CompiledGraph
from atomic.workflows import trust
from atomic.workflows.builtin import builtin_workflows
from atomic.workflows.capabilities import all_nodes, references_of
from atomic.workflows.definition import Capabilities, LoadedWorkflow, WorkflowDefinition, WorkflowSource
from atomic.workflows.errors import (
    UntrustedError,
    WorkflowGoneError,
    WorkflowLoadError,
    WorkflowNotFoundError,
    WorkflowProblem,
)
from atomic.workflows.executables import shown_path
from atomic.workflows.loader import define, line_of_node, load_file
from atomic.workflows.metadata_reading import MetadataReader
from atomic.workflows.shelves import Shelf, project_shelf, user_shelf
from atomic.workflows.trust import Snapshot


class WorkflowCatalog:
    """All workflows of a project and its user. `user` is a home folder other than the user's own."""

    def __init__(
        self,
        project: Path | None = None,
        user: Path | None = None,
        *,
        trusted: str | None = None,
        builtin: Sequence[WorkflowDefinition] | None = None,
        settings: Settings | None = None,
    ) -> None:
        self.project, self._home = project or find_project(), None if user is None else user / ".atomic"
        self._given, self._settings = trusted, settings
        self._builtin = builtin_workflows() if builtin is None else builtin
        self._files: dict[Path | None, tuple[Shelf, str]] = {}
        self._loaded: dict[Path | None, LoadedWorkflow] = {}
        self._has_looked = False
        self._problems: list[WorkflowProblem] = []
        self._by_word: dict[str, WorkflowDefinition] = {}
        self._found: list[WorkflowDefinition] = []
        self.hidden: list[WorkflowDefinition] = []

    @cached_property
    def snapshot(self) -> Snapshot:
        """The project as it was when it was first looked at. Raises UntrustedError if `trusted` is another hash."""
        return trust.accept(trust.look(self.project, home=self._home), self._given)

    @cached_property
    def shelves(self) -> Sequence[Shelf]:
        """Where files are, the ones that win first."""
        return (project_shelf(self.snapshot), user_shelf(self._home))

    def find(self, name: str) -> WorkflowDefinition | None:
        """The workflow of that name or alias."""
        self._look()
        return self._by_word.get(fold(name))

    def definition(self, name: str) -> WorkflowDefinition:
        """The workflow of that name or alias. Raises WorkflowNotFoundError with the nearest."""
        found = self.find(name)
        if found is None:
            raise WorkflowNotFoundError(name, [word for one in self.all() for word in (one.name, *one.aliases)])
        return found

    def started(self, name: str, source: str, path: str) -> WorkflowDefinition:
        """The workflow that a run was started with, also where another one has its name by now.

        Raises WorkflowGoneError if it is not there.
        """
        self._look()
        for one in (*self._found, *self.hidden):
            if fold(one.name) == fold(name) and one.source == source and str(one.path or "") == path:
                return one
        raise WorkflowGoneError(name, path)

    def require(self, name: str) -> CompiledGraph[Any]:
        """The graph of a workflow, for a node that calls it by name.

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
        """Those that win in their names, by name."""
        self._look()
        return sorted(self._found, key=lambda one: fold(one.name))

    @property
    def problems(self) -> Sequence[WorkflowProblem]:
        """What is wrong with files, as far as that can be seen without running them."""
        self._look()
        return (*self._problems, *(problem for one in (*self.all(), *self.hidden) for problem in one.problems))

    def is_trusted(self, definition: WorkflowDefinition) -> bool:
        """Whether it may run now."""
        return definition.source is not WorkflowSource.PROJECT or self.snapshot.trusted

    def config_of(self, definition: WorkflowDefinition) -> dict[str, Any]:
        """Its `default_config` with what the settings say instead."""
        return definition.config(self._settings.workflows if self._settings else {})

    # finding ---------------------------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._has_looked:
            return
        self._has_looked = True
        for shelf in self.shelves:
            self._problems += shelf.problems(shelf.workflows)
            reader = MetadataReader()
            self._place([self._define(shelf, name, data, reader) for name, data in shelf.below(shelf.workflows)])
        self._place(self._builtin)

    def _define(self, shelf: Shelf, name: str, data: bytes, reader: MetadataReader) -> WorkflowDefinition:
        path = shelf.root / shown_path(name)
        self._files[path] = (shelf, name)
        return define(path, data, of=shelf.source, loader=self._load, reader=reader)

    def _place(self, level: Sequence[WorkflowDefinition]) -> None:
        """Names before aliases; what a level above has taken, name or alias, stays taken."""
        winners = [one for one in level if one.name and self._takes_name(one)]
        self._problems += [problem for one in level if not one.name for problem in one.problems]
        for one in winners:
            self._found.append(one)
            for alias in one.aliases:
                owner = self._by_word.setdefault(fold(alias), one)
                if owner is not one and owner.source is one.source and one.path is not None:
                    self._problems.append(
                        WorkflowProblem(one.path, 1, f'the alias "{alias}" is that of "{owner.name}"')
                    )

    def _takes_name(self, one: WorkflowDefinition) -> bool:
        owner = self._by_word.setdefault(fold(one.name), one)
        if owner is one:
            return True
        self.hidden.append(one)
        if owner.source is one.source and one.path is not None and owner.path is not None:
            reason = f'the name "{one.name}" is taken by {owner.path.name}'
            self._problems.append(WorkflowProblem(one.path, 1, reason))
        return False

    # loading ---------------------------------------------------------------------------------------------------

    def _load(self, definition: WorkflowDefinition) -> LoadedWorkflow:
        loaded = self._raw(definition)
        circle = self._circle(definition, (), set())
        if circle is not None:
            node, names = circle
            reason = f"workflows call each other in a circle: {' -> '.join(names)}"
            raise WorkflowLoadError(definition.name, [self.problem_at(definition, node, reason)])
        return msgspec.structs.replace(loaded, capabilities=self._capabilities(definition, set()))

    def _raw(self, definition: WorkflowDefinition) -> LoadedWorkflow:
        """It alone, whomever it calls."""
        if definition.path not in self._files:
            return definition.load()
        shelf, name = self._files[definition.path]
        if shelf.source is WorkflowSource.PROJECT:
            trust.require(self.snapshot)
        if definition.path not in self._loaded:
            self._loaded[definition.path] = load_file(definition, shelf.code, name, shelf.files[name])
        return self._loaded[definition.path]

    def _capabilities(self, definition: WorkflowDefinition, seen: set[str]) -> Capabilities:
        """What it can do, by whom it calls too; each is looked at once, so that a circle has an end."""
        seen.add(definition.name)
        loaded = self._find_loaded(definition)
        can = Capabilities() if loaded is None else loaded.capabilities
        for _, name in self._references(definition):
            called = self.find(name)
            if called is not None and called.name not in seen:
                can = can.joined(self._capabilities(called, seen))
        return can

    def _circle(
        self, definition: WorkflowDefinition, above: tuple[str, ...], clean: set[str]
    ) -> tuple[str, tuple[str, ...]] | None:
        """The node that leads back to a workflow, and the way there."""
        names = (*above, definition.name)
        for node, name in self._references(definition):
            called = self.find(name)
            if called is None or called.name in clean:
                continue
            if called.name in names:
                return node, (*names[names.index(called.name) :], called.name)
            if (found := self._circle(called, names, clean)) is not None:
                return node, found[1]
        clean.add(definition.name)
        return None

    def _references(self, definition: WorkflowDefinition) -> Sequence[tuple[str, str]]:
        """Whom it calls by name."""
        loaded = self._find_loaded(definition)
        return () if loaded is None or loaded.graph is None else references_of(loaded.graph)

    def _find_loaded(self, definition: WorkflowDefinition) -> LoadedWorkflow | None:
        """It alone; None where it does not load: of that nobody knows more, and it is told when it is called."""
        try:
            return None if definition.refused else self._raw(definition)
        except (WorkflowLoadError, UntrustedError):
            return None

    def problem_at(self, definition: WorkflowDefinition, node: str, reason: str) -> WorkflowProblem:
        """What is wrong with a node, where its file names that."""
        path = definition.path or Path(definition.name)
        shelf, name = self._files.get(path, (None, ""))
        return WorkflowProblem(path, 1 if shelf is None else line_of_node(shelf.files[name], node), reason)

    def check_calls(self, definition: WorkflowDefinition) -> None:
        """See that all whom it calls by name, and they in turn, are there and may run: else that is told hours later.

        Raises:
            UntrustedError: one belongs to a project that nobody has trusted as it is now.
            WorkflowLoadError: one is not there, or does not load.
        """
        seen, left = set[str](), [definition]
        while left:
            caller = left.pop()
            if unknown := self.unknown_references(caller):
                raise WorkflowLoadError(caller.name, unknown)
            for _, name in self._references(caller):
                called = self.definition(name)
                if called.name not in seen:
                    seen.add(called.name)
                    called.load()
                    left.append(called)

    def unknown_descriptions(self, definition: WorkflowDefinition) -> list[WorkflowProblem]:
        """What `node_descriptions` names and its graph does not have; nodes of whom it calls may be meant too."""
        loaded = self._find_loaded(definition)
        if loaded is None or loaded.graph is None or self._references(definition):
            return []
        known = {*loaded.graph.node_ids, *(node.id for node in all_nodes(loaded.graph))}
        wrong = [name for name in definition.node_descriptions if name not in known]
        return [self.problem_at(definition, name, _no_node(name, known)) for name in wrong]

    def unknown_references(self, definition: WorkflowDefinition) -> list[WorkflowProblem]:
        """The workflows that it calls and nobody defines."""
        known = [word for one in self.all() for word in (one.name, *one.aliases)]
        found: list[WorkflowProblem] = []
        for node, name in self._references(definition):
            if self.find(name) is None:
                nearest = closest(name, known)
                hint = f' (did you mean "{nearest}"?)' if nearest else ""
                found.append(self.problem_at(definition, node, f'{node}: there is no workflow "{name}"{hint}'))
        return found


def _no_node(name: str, known: Iterable[str]) -> str:
    nearest = closest(name, known)
    hint = f' (did you mean "{nearest}"?)' if nearest else ""
    return f'node_descriptions: there is no node "{name}"{hint}'


def fold(name: str) -> str:
    """A name as it is compared: without case, and é is é however a file system spells it."""
    return name.casefold() if name.isascii() else normalize("NFC", name).casefold()
