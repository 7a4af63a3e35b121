"""`atomic workflows`: list, show, check, draw and create workflows.

Only `check` and `graph` run their files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import AtomicError, ExitCode
from atomic.base.terminal import harmless, one_line
from atomic.base.text import cut
from atomic.cli.errors import CliError
from atomic.cli.help import flag_rows
from atomic.cli.streams import json_line, put, put_table, screen_width, tell
from atomic.commands import short_hint
from atomic.config import find_project
from atomic.loading import trust
from atomic.loading.added import read_pins
from atomic.loading.catalog import WorkflowCatalog
from atomic.loading.project_tools import ToolCatalog
from atomic.wiring import Project
from atomic.workflows.definition import WorkflowDefinition, WorkflowSource
from atomic.workflows.errors import WorkflowLoadError, WorkflowProblem

GRAPH_COLUMNS = 100
_MIN_SOURCE = 20  # columns of a workflow's source in a terminal


def list_workflows(arguments: Arguments) -> int:
    """Print all workflows."""
    catalog = Project().workflows
    if arguments.has("--json"):
        put(json_line([_as_json(one, catalog) for one in catalog.all()]))
        return ExitCode.DONE
    rows: list[tuple[str, ...]] = []
    pins = read_pins()
    columns = screen_width()
    for one in catalog.all():
        source = catalog.package_of(one) or str(one.source)
        pin = pins.get(one.name) if one.source is WorkflowSource.USER else None
        if pin is not None:
            changed = ", changed since" if pin.sha256 != one.sha256 else ""
            source += f", from {pin.source}{'@' + pin.commit[:12] if pin.commit else ''}{changed}"
        if one.refused:
            source += ", broken"
        elif not catalog.is_trusted(one):
            source += ", not trusted"
        if columns is not None:
            source = cut(source, max(_MIN_SOURCE, columns // 4))
        rows.append((one.name, short_hint(one.argument_hint), source, one.description))
    put_table(rows, empty="No workflows found (atomic workflows new NAME writes one).\n")
    _print_problems(catalog.problems)
    return ExitCode.DONE


def show_workflow(arguments: Arguments) -> int:
    """Print the description of one workflow."""
    catalog = Project().workflows
    definition = catalog.typed(arguments.words[0])
    if arguments.has("--json"):
        put(json_line(_as_json(definition, catalog)))
        return ExitCode.DONE
    put("".join(f"{line}\n" for line in _details(definition, catalog)))
    _print_problems(definition.problems)
    return ExitCode.DONE


def check_workflows(arguments: Arguments) -> int:
    """Load all workflows and tools, and print every problem of every file."""
    named = arguments.words
    if named and not arguments.has("--runs"):
        raise UsageError(f"{named[0]}: give files with --runs, to try them on their runs")
    for path in named:
        if not os.path.isfile(path):
            raise UsageError(f"There is no file {path}")
    catalog = WorkflowCatalog(trusted=arguments.value("--trust"))
    if catalog.snapshot.files:
        trust.require(catalog.snapshot)
    problems = sorted({*catalog.problems, *_load_all(catalog)}, key=lambda one: (str(one.path), one.line, str(one)))
    put("".join(f"{one_line(str(problem))}\n" for problem in problems))
    if problems:
        return ExitCode.FAILED
    number = len(catalog.all())
    tell(f"{number} workflow{'' if number == 1 else 's'}, no problems")
    return _check_runs(arguments.value("--trust"), named) if arguments.has("--runs") else ExitCode.DONE


def _check_runs(trusted: str | None, named: Sequence[str]) -> int:
    """Print the runs that the code cannot continue."""
    from atomic.cli.run_checks import check_runs

    stopped = 0
    refused = 0
    for session, problem in check_runs(trusted, named):
        stopped += 1
        if problem:
            refused += 1
            put(f"{session.id} {one_line(session.record.workflow)}: {one_line(problem)}\n")
    runs = f"{stopped} stopped run{'' if stopped == 1 else 's'}"
    if refused:
        tell(f"{refused} of {runs} cannot continue")
        return ExitCode.FAILED
    tell(f"{runs} of this folder, all can continue" if stopped else "no stopped runs in this folder")
    return ExitCode.DONE


def _load_all(catalog: WorkflowCatalog) -> Iterator[WorkflowProblem]:
    """Load all workflows and tools, and return their problems."""
    tools = ToolCatalog(catalog)
    for definition in (*catalog.all(), *catalog.hidden):
        try:
            definition.load()
        except WorkflowLoadError as error:
            yield from error.problems
        else:
            yield from catalog.unknown_references(definition)
            yield from catalog.unknown_descriptions(definition)
            yield from tools.unknown(definition)
    yield from tools.problems
    for tool in tools.all():
        try:
            tools.require(tool.name)
        except WorkflowLoadError as error:
            yield from error.problems


def draw_workflow(arguments: Arguments) -> int:
    """Print a workflow's graph as text, Mermaid or SVG."""
    if arguments.has("--mermaid") and arguments.has("--svg"):
        raise UsageError("--mermaid and --svg exclude each other: choose one")
    catalog = WorkflowCatalog(trusted=arguments.value("--trust"))
    definition = catalog.typed(arguments.words[0])
    graph = definition.load().graph
    if graph is None:
        raise CliError(f'"{definition.name}" has no graph: its prompt goes to the chat')
    if arguments.has("--mermaid"):
        drawing = graph.mermaid()
    elif arguments.has("--svg"):
        drawing = graph.svg()
    else:
        drawing = graph.draw(screen_width() or GRAPH_COLUMNS)
    put(harmless(drawing.rstrip("\n") + "\n"))
    return ExitCode.DONE


def new_workflow(arguments: Arguments) -> int:
    """Write a starter file for a workflow."""
    from atomic.loading.new_workflow import write_workflow

    name = arguments.words[0]
    project = find_project()
    if project is None:
        raise CliError("the current folder no longer exists (change to another one)")
    hidden = WorkflowCatalog(project).find(name)
    if hidden is not None and hidden.source == "project" and hidden.name.casefold() == name.casefold():
        raise UsageError(f'There is a workflow "{hidden.name}" already: {hidden.path}')
    file, may_run = write_workflow(name, project)
    put(f"{harmless(str(file))}\n")
    first = "" if may_run else "atomic trust, then "
    tell(f'written; run it: {first}atomic run {name} "…"; check it at each save: atomic workflows dev {name}')
    if hidden is not None and hidden.source != "project":
        tell(f'in this project it hides the workflow "{hidden.name}" ({hidden.path or "comes with Atomic"})')
    return ExitCode.DONE


def _as_json(one: WorkflowDefinition, catalog: WorkflowCatalog) -> dict[str, object]:
    return {
        "name": one.name,
        "aliases": one.aliases,
        "description": one.description,
        "version": one.version,
        "argument_hint": one.argument_hint,
        "source": one.source,
        "path": None if one.path is None else str(one.path),
        "trusted": catalog.is_trusted(one),
        "problem": one.problem,
    }


def _details(one: WorkflowDefinition, catalog: WorkflowCatalog) -> Iterator[str]:
    yield one_line(f"{one.name} (workflow)")
    yield one_line(one.description)
    yield ""
    hides = [
        str(other.path) if other.path else f"{other.name} (comes with Atomic)"
        for other in catalog.hidden
        if catalog.find(other.name) is one
    ]
    facts = (
        ("file", str(one.path or "comes with Atomic")),
        ("source", f"{one.source} {catalog.package_of(one)}".strip()),
        ("trusted", "yes" if catalog.is_trusted(one) else "no (atomic trust)"),
        ("aliases", ", ".join(one.aliases)),
        ("arguments", one.argument_hint),
        ("version", one.version),
        ("needs", f"Atomic {one.min_sdk_version}" if one.min_sdk_version else ""),
        ("config", msgspec.json.encode(dict(one.default_config)).decode() if one.default_config else ""),
        ("hides", ", ".join(hides)),
        ("can", _abilities(one, catalog)),
    )
    for name, value in facts:
        if value:
            yield f"  {name + ':':<11}{one_line(value)}"
    flags = one.flags
    if flags:
        yield ""
        yield one_line(f"flags of atomic run {one.name}:")
        yield from flag_rows(flags)


def _abilities(one: WorkflowDefinition, catalog: WorkflowCatalog) -> str:
    """Describe the graph of a workflow that is trusted."""
    if one.refused or not catalog.is_trusted(one):
        return ""
    try:
        loaded = one.load()
    except AtomicError as error:
        tell(str(error))
        return ""
    if loaded.graph is None:
        return "be talked to (it has no graph)"
    has = loaded.capabilities
    abilities = (("sub-agents", has.subagents), ("task list", has.task_list), ("questions", has.questions))
    return ", ".join(name for name, is_used in abilities if is_used) or "run its nodes"


def _print_problems(problems: Iterable[WorkflowProblem]) -> None:
    for problem in dict.fromkeys(problems):
        tell(str(problem))
