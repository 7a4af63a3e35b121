"""`atomic workflows`: what there is, what is wrong with it, how it looks. Only `check` and `graph` run a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import AtomicError, ExitCode
from atomic.base.flags import config_flags
from atomic.base.terminal import harmless, one_line
from atomic.base.text import table
from atomic.cli.errors import CliError
from atomic.cli.help import flag_rows
from atomic.cli.streams import json_line, put, screen_width, tell
from atomic.commands import short_hint
from atomic.config import find_project
from atomic.loading import trust
from atomic.loading.catalog import WorkflowCatalog
from atomic.loading.project_tools import ToolCatalog
from atomic.wiring import Project
from atomic.workflows.definition import LoadedWorkflow, WorkflowDefinition
from atomic.workflows.errors import WorkflowLoadError, WorkflowProblem

GRAPH_COLUMNS = 100


class WorkflowRow(msgspec.Struct, frozen=True):
    """A workflow as `--json` tells it."""

    name: str
    aliases: Sequence[str]
    description: str
    version: str
    argument_hint: str
    source: str
    path: str | None
    trusted: bool
    problem: str | None


def list_workflows(arguments: Arguments) -> int:
    """Print all workflows."""
    as_json = arguments.has("--json")
    catalog = Project().workflows
    found = catalog.all()
    if as_json:
        put(json_line([_row(one, catalog) for one in found]))
        return ExitCode.DONE
    rows = (_cells(one, catalog) for one in found)
    put(
        "".join(f"{line}\n" for line in table(rows, screen_width()))
        or "No workflows found (atomic workflows new NAME writes one).\n"
    )
    _tell_all(catalog.problems)
    return ExitCode.DONE


def show_workflow(arguments: Arguments) -> int:
    """Print what a workflow's file says about itself."""
    name = arguments.words[0]
    as_json = arguments.has("--json")
    catalog = Project().workflows
    definition = catalog.definition(name.lstrip("/"))
    if as_json:
        put(json_line(_row(definition, catalog)))
        return ExitCode.DONE
    put("".join(f"{line}\n" for line in _shown(definition, catalog)))
    _tell_all(definition.problems)
    return ExitCode.DONE


def check_workflows(arguments: Arguments) -> int:
    """Load all workflows and tools, and print every problem of every file."""
    trusted = arguments.value("--trust")
    catalog = WorkflowCatalog(trusted=trusted)
    if catalog.snapshot.files:
        trust.require(catalog.snapshot)
    tools = ToolCatalog(catalog)
    problems = dict.fromkeys((*catalog.problems, *_load_all(catalog, tools), *_load_tools(tools)))
    ordered = sorted(problems, key=lambda one: (str(one.path), one.line))
    put("".join(f"{one_line(str(problem))}\n" for problem in ordered))
    if not ordered:
        number = len(catalog.all())
        tell(f"{number} workflow{'' if number == 1 else 's'}, no problems")
    return ExitCode.FAILED if ordered else ExitCode.DONE


def draw_workflow(arguments: Arguments) -> int:
    """Print a workflow's graph as text, Mermaid or SVG."""
    name = arguments.words[0]
    mermaid = arguments.has("--mermaid")
    svg = arguments.has("--svg")
    if mermaid and svg:
        raise UsageError("--mermaid and --svg exclude each other: choose one")
    trusted = arguments.value("--trust")
    catalog = WorkflowCatalog(trusted=trusted)
    definition = catalog.definition(name.lstrip("/"))
    graph = definition.load().graph
    if graph is None:
        raise CliError(f'"{definition.name}" has no graph: its prompt goes to the chat')
    drawn = graph.mermaid() if mermaid else graph.svg() if svg else graph.draw(screen_width() or GRAPH_COLUMNS)
    put(harmless(drawn.rstrip("\n") + "\n"))
    return ExitCode.DONE


def new_workflow(arguments: Arguments) -> int:
    """Write a first file for a workflow."""
    name = arguments.words[0]
    from atomic.loading.new_workflow import write_workflow

    project = find_project()
    if project is None:
        raise CliError("the current folder no longer exists (change to another one)")
    hidden = WorkflowCatalog(project).find(name)
    if hidden is not None and hidden.source == "project" and hidden.name.casefold() == name.casefold():
        raise UsageError(f'There is a workflow "{hidden.name}" already: {hidden.path}')
    file, may_run = write_workflow(name, project)
    put(f"{harmless(str(file))}\n")
    first = "" if may_run else "atomic trust, then "
    tell(f'written; run it: {first}atomic run {name} "…"')
    if hidden is not None and hidden.source != "project":
        tell(f'in this project it hides the workflow "{hidden.name}" ({hidden.path or "comes with Atomic"})')
    return ExitCode.DONE


def _load_all(catalog: WorkflowCatalog, tools: ToolCatalog) -> Iterable[WorkflowProblem]:
    for definition in (*catalog.all(), *catalog.hidden):
        try:
            definition.load()
        except WorkflowLoadError as error:
            yield from error.problems
        else:
            yield from catalog.unknown_references(definition)
            yield from catalog.unknown_descriptions(definition)
            yield from tools.unknown(definition)


def _load_tools(tools: ToolCatalog) -> Iterable[WorkflowProblem]:
    yield from tools.problems
    for tool in tools.all():
        try:
            tools.require(tool.name)
        except WorkflowLoadError as error:
            yield from error.problems


# for programs ------------------------------------------------------------------------------------------------------


def _row(one: WorkflowDefinition, catalog: WorkflowCatalog) -> WorkflowRow:
    return WorkflowRow(
        one.name, one.aliases, one.description, one.version, one.argument_hint, one.source,
        None if one.path is None else str(one.path), catalog.is_trusted(one), one.problem,
    )  # fmt: skip


# for people --------------------------------------------------------------------------------------------------------


def _cells(one: WorkflowDefinition, catalog: WorkflowCatalog) -> Sequence[str]:
    state = "broken" if one.refused else "" if catalog.is_trusted(one) else "not trusted"
    source = f"{one.source}{f', {state}' if state else ''}"
    return tuple(map(one_line, (one.name, short_hint(one.argument_hint), source, one.description)))


def _shown(one: WorkflowDefinition, catalog: WorkflowCatalog) -> Iterable[str]:
    yield one_line(f"{one.name} (workflow)")
    yield one_line(one.description)
    yield ""
    facts: Sequence[tuple[str, object]] = (
        ("file", one.path or "comes with Atomic"),
        ("source", one.source),
        ("trusted", "yes" if catalog.is_trusted(one) else "no (atomic trust)"),
        ("aliases", ", ".join(one.aliases)),
        ("arguments", one.argument_hint),
        ("version", one.version),
        ("needs", f"Atomic {one.min_sdk_version}" if one.min_sdk_version else ""),
        ("config", msgspec.json.encode(dict(one.default_config)).decode() if one.default_config else ""),
        ("hides", ", ".join(_hidden_by(one, catalog))),
        ("can", _abilities(one, catalog)),
    )
    yield from (f"  {name + ':':<11}{one_line(str(value))}" for name, value in facts if value)
    if flags := config_flags(one.default_config, one.config_descriptions):
        yield from ("", one_line(f"flags of atomic run {one.name}:"), *flag_rows(flags))


def _hidden_by(one: WorkflowDefinition, catalog: WorkflowCatalog) -> list[str]:
    hidden = (other for other in catalog.hidden if catalog.find(other.name) is one)
    return [str(other.path) if other.path else f"{other.name} (comes with Atomic)" for other in hidden]


def _abilities(one: WorkflowDefinition, catalog: WorkflowCatalog) -> str:
    """What its graph shows; only of one that may run."""
    if one.refused or not catalog.is_trusted(one):
        return ""
    try:
        loaded = one.load()
    except AtomicError as error:
        tell(str(error))
        return ""
    return _words(loaded)


def _words(loaded: LoadedWorkflow) -> str:
    if loaded.graph is None:
        return "be talked to (it has no graph)"
    can = loaded.capabilities
    words = (("sub-agents", can.subagents), ("task list", can.task_list), ("questions", can.questions))
    return ", ".join(word for word, has in words if has) or "run its nodes"


def _tell_all(problems: Iterable[WorkflowProblem]) -> None:
    for problem in dict.fromkeys(problems):
        tell(str(problem))
