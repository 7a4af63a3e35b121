"""`atomic sessions list`, `show` and `report`: past and present runs."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import harmless, one_line
from atomic.base.text import cut, duration, pad, table, width
from atomic.base.untrusted_files import read_bounded_text
from atomic.base.usage import dollars
from atomic.cli.errors import CliError
from atomic.cli.last_end import find_last_end
from atomic.cli.progress import printed
from atomic.cli.streams import STDOUT, json_line, put, put_table, screen_width, tell
from atomic.config import atomic_home, find_project
from atomic.graph import JournalError
from atomic.runs.ended_run import is_over
from atomic.runs.results import read_result
from atomic.runs.spending import Amount, read_killed, read_past
from atomic.sessions.facts import read_facts
from atomic.sessions.history import History, StepLook, read_history
from atomic.sessions.html import page_of
from atomic.sessions.model import SessionRecord, SessionStatus
from atomic.sessions.report import (
    RESUMABLE,
    TimelineRow,
    bar,
    facts_of,
    next_command,
    report_of,
    rows_of,
    time_text,
)
from atomic.sessions.store import Session, SessionStore, shown

if TYPE_CHECKING:
    from atomic.graph import CompiledGraph

MAX_ROWS = 200  # of a timeline in text; --json has all
CANCELLED = "This run was cancelled for good (atomic stop --cancel): it cannot be resumed."
NO_RUNS_HERE = 'No runs of this folder yet: atomic ralph "GOAL" starts one, atomic ps shows those of all folders\n'
NO_RUNS = 'No runs yet. Start one with atomic ralph "GOAL", or watch one without an agent: atomic demo\n'
MAX_REPORT_BYTES = 64 * 1024 * 1024
_FINAL = (SessionStatus.FAILED, SessionStatus.BLOCKED)  # unless a resume continues it
_NAME_COLUMNS = 28
_BAR_COLUMNS = 40
_DEFAULT_COLUMNS = 100
# In this order: a node with several steps gets the first mark that one of them has.
_MARKS = {"running": "▶", "interrupted": "▶", "failed": "✗", "paused": "‖", "blocked": "‖", "completed": "✓"}


def show_status(arguments: Arguments) -> int:
    """Print the runs of this project, or one run."""
    return show_session(arguments) if arguments.words else _list(arguments, here=True)


def list_sessions(arguments: Arguments) -> int:
    """Print all sessions, newest first."""
    return _list(arguments, here=arguments.has("--project"))


def _list(arguments: Arguments, *, here: bool) -> int:
    status = arguments.value("--status")
    store = SessionStore(atomic_home())
    records = [_with_cost_of_journal(record, store.place_of(record.id)) for record in store.list()]
    empty = NO_RUNS
    if records:
        empty = "No run matches: atomic ps shows all.\n" if status is not None else NO_RUNS_HERE
    if status is not None:
        records = [record for record in records if record.status == status]
    if here:
        project = str(find_project())
        records = [record for record in records if record.project == project]
    if arguments.has("--json"):
        put(json_line([msgspec.to_builtins(record) for record in records]))
        return ExitCode.DONE
    prefixes = Counter(record.id[:8] for record in records)
    rows: list[tuple[str, ...]] = []
    for record in records:
        id = record.id[:8] if prefixes[record.id[:8]] == 1 else record.id
        started = time_text(record.created_at)[:16]
        cost = dollars(record.cost.usd, is_incomplete=record.cost.is_incomplete) if record.cost.usd else ""
        what = record.prompt or record.reason
        if record.wake_at is not None:
            what = f"wakes at {time_text(record.wake_at)[:16]}: {what}"
        rows.append((id, record.status, started, cost, record.workflow, what))
    put_table(rows, empty=empty)
    return ExitCode.DONE


def _with_cost_of_journal(record: SessionRecord, folder: Path) -> SessionRecord:
    """Return the record with the cost that its journal has: a killed process could not
    save its last turns in `session.json`.
    """
    journal = folder / "journal.db"
    if record.status is not SessionStatus.INTERRUPTED or not journal.is_file():
        return record
    try:
        spent = read_past(read_facts(journal, record.id)).spent
    except JournalError:  # a resume reports it
        return record
    # A run of an older version has its cost only in the record.
    if spent.amount == Amount() and not spent.is_incomplete:
        return record
    return msgspec.structs.replace(record, cost=spent.cost)


def show_session(arguments: Arguments) -> int:
    """Print one session: its facts, its graph with marks, and a timeline of its agents."""
    as_page = arguments.has("--html")
    as_json = arguments.has("--json")
    if as_page and as_json:
        raise UsageError("--html and --json exclude each other: choose one")
    if len(arguments.words) > 1 and not as_page:
        raise UsageError("a FILE is only for --html: atomic sessions show ID --html FILE")
    session, history = _read(arguments.words[0])
    if as_page:
        return _show_page(session, history, *arguments.words[1:])
    if as_json:
        record: dict[str, Any] = msgspec.to_builtins(history.record)
        put(json_line({**record, "steps": history.steps, "tasks": history.tasks, "calls": history.calls}))
    else:
        columns = screen_width() or _DEFAULT_COLUMNS
        parts = [_facts(session, history, columns), _drawing(history, columns), _timeline(rows_of(history), columns)]
        put("\n\n".join(part for part in parts if part) + "\n")
        if (session.dir / "report.md").exists():
            put(f"\nIts report: atomic sessions report {history.record.id}\n")
    if history.problem:
        tell(history.problem)
    return ExitCode.DONE


def _show_page(session: Session, history: History, file: str | None = None) -> int:
    """Print a session as an HTML page, or write it to a new file."""
    drawing = _load_graph(history)
    svg = ""
    marks: Mapping[str, str] = {}
    if drawing is not None:
        svg = drawing.graph.svg()
        marks = _marks(_steps_by_node(history, drawing))
    page = page_of(history, svg=svg, report=_report(session, history), marks=marks)
    if file is None:
        put(page)
        return ExitCode.DONE
    try:
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise UsageError(f"{file} already exists (choose another name, or remove it)") from None
    with os.fdopen(number, "w", encoding="utf-8") as out:
        out.write(page)
    put(f"{one_line(os.path.abspath(file))}\n")
    return ExitCode.DONE


def report_session(arguments: Arguments) -> int:
    """Print the report of a session, or one that is made from its history."""
    session, history = _read(arguments.words[0])
    put(harmless(_report(session, history)))
    return ExitCode.DONE


def print_result(arguments: Arguments) -> int:
    """Print the result of a run that has ended: a text as it is, other data as JSON."""
    session = SessionStore(atomic_home()).find(arguments.words[0])
    record = shown(session.record)
    result = read_result(session)
    if result is not None:
        put(printed(result, to_terminal=os.isatty(STDOUT)))
        return ExitCode.DONE
    if record.status in (SessionStatus.COMPLETED, SessionStatus.CHAT):
        tell(f"{session.id} has returned nothing")
        return ExitCode.DONE
    raise CliError(f"{session.id} has no result: it is {record.status}", ExitCode.FAILED)


def _read(id: str) -> tuple[Session, History]:
    session = SessionStore(atomic_home()).find(id)
    history = read_history(session, _with_cost_of_journal(shown(session.record), session.dir))
    return session, with_killed(session, history)


def with_killed(session: Session, history: History) -> History:
    """Return the history with the calls that ended when Atomic was killed."""
    if session.is_owned or not session.journal_path.is_file():
        return history
    try:
        killed = read_killed(read_facts(session.journal_path, session.id))
    except JournalError:  # the history reports it
        return history
    return msgspec.structs.replace(history, killed=killed)


def _report(session: Session, history: History) -> str:
    try:
        report = read_bounded_text(session.dir / "report.md", MAX_REPORT_BYTES)
    except OSError:  # missing, or not a regular file
        return report_of(history)
    if history.record.status is SessionStatus.CANCELLED:
        return cancelled_report(report)
    return f"{_undone_note(session)}{report}"


def _undone_note(session: Session) -> str:
    """Return what `atomic undo` has changed since the report was written; often nothing."""
    import asyncio

    from atomic.cli.errors import CliError
    from atomic.cli.run_branches import find_undone_of, require_work
    from atomic.git import GitError

    try:
        undone = asyncio.run(find_undone_of(require_work(session.id, "read")))
    except (CliError, GitError):  # a run without a branch, or its repository is gone
        return ""
    if not undone:
        return ""
    named = f"Task {undone[0]} was" if len(undone) == 1 else f"Tasks {', '.join(undone)} were"
    rest = "its changes are not on the branch, and no check of this report has run on the rest"
    return f"> **{named} undone** (`atomic undo`) after this report was written: {rest}.\n\n"


def cancelled_report(report: str) -> str:
    """Return the report of a run that was cancelled after the report was written."""
    if "was cancelled" in report.partition("\n")[0]:
        return report
    kept = [line for line in report.splitlines() if not line.startswith("- **To continue**")]
    return "\n".join([f"> **{CANCELLED}** What follows is its report from before that.", "", *kept]) + "\n"


def _facts(session: Session, history: History, columns: int) -> str:
    command = next_command(history.record)
    ended = find_last_end(session)
    why = str(ended.get("plain") or ended.get("message") or "")
    rows: list[tuple[str, str]] = []
    for name, text in facts_of(history):
        if name == "next" and history.record.status in _FINAL and is_over(session):
            continue
        if text == command and str(ended.get("resume")).startswith(f"{command} "):
            text = ended["resume"]  # with the flag that lifts the limit at which the run stopped
        rows.append((name, one_line(text)))
        if name == "status" and why and history.record.status in RESUMABLE and not history.record.questions:
            rows.append(("reason", one_line(why)))
    return "\n".join(table(rows, columns))


def _drawing(history: History, columns: int) -> str:
    """Return the graph with a mark at each node that ran, and a list of these nodes."""
    if history.record.is_conversation:
        return ""
    lines: list[str] = []
    drawing = _load_graph(history)
    if drawing is not None:
        signs = {node: mark[0] for node, mark in _marks(_steps_by_node(history, drawing)).items()}
        lines += [*drawing.graph.draw(columns, signs=signs).rstrip("\n").split("\n"), ""]
    if not history.steps:
        return "\n".join([*lines, "Nothing has run yet."])
    lines.append("What ran")
    for node, mark in _marks((step.node, step) for step in history.steps).items():
        lines.append(f"  {mark} {one_line(node)}")
    return "\n".join(lines)


def _marks(steps: Iterable[tuple[str, StepLook]]) -> dict[str, str]:
    """Return a mark for each name, in order of the first step: the status, and the
    number of steps.
    """
    statuses: dict[str, dict[str, str]] = {}  # the last one of each node
    counts: Counter[str] = Counter()
    for name, step in steps:
        statuses.setdefault(name, {})[step.node] = step.status
        counts[name] += 1
    marks: dict[str, str] = {}
    for name, by_node in statuses.items():
        sign = next((mark for status, mark in _MARKS.items() if status in by_node.values()), "·")
        marks[name] = f"{sign} {counts[name]}×" if counts[name] > 1 else sign
    return marks


def _steps_by_node(history: History, drawing: _Drawing) -> Iterator[tuple[str, StepLook]]:
    """Return each step with its node in the drawing.

    A map or a task loop runs a node once per item.
    """
    ids = set(drawing.graph.node_ids)
    patterns = {id: re.compile("/".join(rf"{re.escape(part)}(\[.*\])?" for part in id.split("/"))) for id in ids}
    for step in history.steps:
        if step.node in drawing.nodes:
            yield drawing.nodes[step.node], step
            continue
        found = (id for id, pattern in patterns.items() if step.node not in ids and pattern.fullmatch(step.node))
        yield next(found, step.node), step


class _Drawing(NamedTuple):
    """What is drawn of a run's workflow, and the node of each step of a function."""

    graph: CompiledGraph[Any]
    nodes: Mapping[str, str]


def _load_graph(history: History) -> _Drawing | None:
    """Return the graph of the run's workflow; of a function, a drawing of the steps of
    this run.

    None if it cannot be loaded or is not trusted.
    """
    from atomic.graph import FunctionWorkflow
    from atomic.graph.engine.function import drawn_steps
    from atomic.loading.catalog import WorkflowCatalog
    from atomic.workflows.definition import WorkflowSource
    from atomic.workflows.errors import UntrustedError, WorkflowLoadError

    record = history.record
    if not record.project or not os.path.isdir(record.project):
        return None
    catalog = WorkflowCatalog(Path(record.project))
    if record.workflow_source == WorkflowSource.FILE:
        definition = catalog.find_typed(record.workflow_path)
        if definition is None or definition.sha256 != record.workflow_sha256:
            return None
    else:
        definition = catalog.find(record.workflow)
    if definition is None:
        return None
    try:
        graph = definition.load().graph
    except (UntrustedError, WorkflowLoadError):
        return None
    if isinstance(graph, FunctionWorkflow):
        drawn = drawn_steps(step.node for step in history.steps)
        return _Drawing(graph.sketch_of(drawn.values()), drawn)
    return None if graph is None else _Drawing(graph, {})


def _timeline(rows: Sequence[TimelineRow], columns: int) -> str:
    if not rows:
        return ""
    lines = ["Timeline"]
    shown = rows[-MAX_ROWS:]
    if len(rows) > len(shown):
        lines.append(f"  ({len(rows) - len(shown):,} earlier ones are left out: --json has them all)")
    bar_columns = max(10, min(_BAR_COLUMNS, columns - _NAME_COLUMNS - 34))
    name_columns = min(_NAME_COLUMNS, max(width(one_line(row.who)) for row in shown))
    for row in shown:
        started = time_text(row.started)[11:]
        name = pad(cut(one_line(row.who), name_columns), name_columns)
        mark = _MARKS.get({"done": "completed", "error": "failed"}.get(row.status, row.status), "·")
        figures = f"{duration(row.seconds):>7} {dollars(row.cost):>8}"
        line = f"  {started} {mark} {name} {bar(row, bar_columns)} {figures}  {one_line(row.what)}"
        lines.append(cut(line.rstrip(), columns))
    return "\n".join(lines)
