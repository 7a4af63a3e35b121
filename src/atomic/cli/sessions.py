"""`atomic sessions`: the runs of the past and the present, and one of them in detail."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.base.arguments import Arguments, UsageError
from atomic.base.errors import ExitCode
from atomic.base.terminal import harmless, one_line
from atomic.base.text import cut, duration, table, width
from atomic.base.untrusted_files import read_bounded_text
from atomic.cli.streams import json_line, put, screen_width, tell
from atomic.config import atomic_home, find_project
from atomic.sessions.history import History, StepLook, read_history
from atomic.sessions.html import page_of
from atomic.sessions.model import SessionRecord, SessionStatus
from atomic.sessions.report import dollars, facts_of, local_time, report_of
from atomic.sessions.store import Session, SessionStore, shown
from atomic.sessions.timeline import Row, bar, rows_of

if TYPE_CHECKING:
    from atomic.graph import CompiledGraph

_MOST_BYTES = 64 * 1024 * 1024  # of a report
MOST_ROWS = 200  # of a timeline, on a screen or in a pipe; --json has all
CANCELLED = "This run was cancelled for good (atomic stop --cancel): it cannot be resumed."
_WHO, _BAR, _WIDE = 28, 40, 100
# In this order: what is going on, or went wrong, is seen before what is done.
_MARKS = {"running": "▶", "interrupted": "▶", "failed": "✗", "paused": "‖", "blocked": "‖", "completed": "✓"}


def list_sessions(arguments: Arguments) -> int:
    """Print all sessions, the newest first."""
    status = arguments.value("--status")
    here = arguments.has("--project")
    as_json = arguments.has("--json")
    records = SessionStore(atomic_home()).list()
    project = str(find_project()) if here else None
    chosen = [
        record
        for record in records
        if (status is None or record.status == status) and (project is None or record.project == project)
    ]
    if as_json:
        put(json_line([msgspec.to_builtins(record) for record in chosen]))
        return ExitCode.DONE
    put("".join(f"{line}\n" for line in table(_cells(chosen), screen_width())) or "No runs yet.\n")
    return ExitCode.DONE


def show_session(arguments: Arguments) -> int:
    """Print one session: its facts, its graph with what ran, who worked when."""
    if arguments.has("--html"):
        if arguments.has("--json"):
            raise UsageError("--html and --json exclude each other: choose one")
        return _show_page(*arguments.words)
    if len(arguments.words) > 1:
        raise UsageError("a FILE is only for --html: atomic sessions show ID --html FILE")
    id = arguments.words[0]
    as_json = arguments.has("--json")
    session, history = _look(id)
    if as_json:
        put(json_line(_object(history)))
    else:
        put(_text(history))
        if (session.dir / "report.md").exists():
            put(f"\nIts report: atomic sessions report {history.record.id}\n")
    if history.problem:
        tell(history.problem)
    return ExitCode.DONE


def _show_page(id: str, file: str | None = None) -> int:
    """Print one session as a page, or write it to a file that is not there yet."""
    session, history = _look(id)
    graph = _graph_of(history.record)
    svg, marks = ("", {}) if graph is None else (graph.svg(), _marks(_places(history, graph)))
    page = page_of(history, svg=svg, report=_report(session, history), marks=marks)
    if file is None:
        put(page)
        return ExitCode.DONE
    try:
        with open(file, "x", encoding="utf-8", opener=_private) as out:
            out.write(page)
    except FileExistsError:
        raise UsageError(f"{file} already exists (choose another name, or remove it)") from None
    put(f"{one_line(os.path.abspath(file))}\n")
    return ExitCode.DONE


def report_session(arguments: Arguments) -> int:
    """Print its report, or one that is made from what is there."""
    id = arguments.words[0]
    session, history = _look(id)
    put(harmless(_report(session, history)))
    return ExitCode.DONE


def _look(id: str) -> tuple[Session, History]:
    session = SessionStore(atomic_home()).find(id)
    return session, read_history(session, shown(session.record))


def _report(session: Session, history: History) -> str:
    try:
        report = read_bounded_text(session.dir / "report.md", _MOST_BYTES)
    except OSError:  # also where something else is in its place
        return report_of(history)
    if history.record.status is not SessionStatus.CANCELLED or "was cancelled" in report.partition("\n")[0]:
        return report
    # It was written when the run paused, and cancelled from elsewhere later.
    kept = [line for line in report.splitlines() if not line.startswith("- **To continue**")]
    return "\n".join([f"> **{CANCELLED}** What follows is its report from before that.", "", *kept]) + "\n"


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC, 0o600)


# for programs ---------------------------------------------------------------------------------------------------


def _object(history: History) -> Mapping[str, Any]:
    record: dict[str, Any] = msgspec.to_builtins(history.record)
    return {**record, "steps": history.steps, "tasks": history.tasks, "calls": history.calls}


# for people -----------------------------------------------------------------------------------------------------


def _cells(records: Sequence[SessionRecord]) -> Iterable[Sequence[str]]:
    short = Counter(record.id[:8] for record in records)
    for record in records:
        id = record.id[:8] if short[record.id[:8]] == 1 else record.id
        started = local_time(record.created_at)[:16]
        cost = dollars(record.cost.usd) if record.cost.usd else ""
        yield tuple(map(one_line, (id, record.status, started, cost, record.workflow, record.prompt or record.reason)))


def _text(history: History) -> str:
    columns = screen_width() or _WIDE
    facts = table([(name, one_line(text)) for name, text in facts_of(history)], columns)
    rows = rows_of(history)
    parts = ["\n".join(facts), _drawing(history, columns)]
    if rows:
        parts.append(_timeline(rows, columns))
    return "\n\n".join(part for part in parts if part) + "\n"


def _drawing(history: History, columns: int) -> str:
    """The graph with a mark at each node that ran; without the graph, the steps. A conversation has neither."""
    if history.record.is_conversation:
        return ""
    graph = _graph_of(history.record)
    lines: Sequence[str] = ()
    if graph is not None:
        signs = {node: mark[0] for node, mark in _marks(_places(history, graph)).items()}
        lines = graph.draw(columns, signs=signs).rstrip("\n").split("\n")
    marks = _marks([(step.node, step) for step in history.steps])
    ran = [f"  {mark} {one_line(node)}" for node, mark in marks.items()]
    drawn = [*lines, ""] if lines else []
    return "\n".join([*drawn, *(("What ran", *ran) if ran else ("Nothing has run yet.",))])


def _marks(steps: Iterable[tuple[str, StepLook]]) -> dict[str, str]:
    """For each name how its steps ended, and how many there are, in the order of the first ones."""
    last: dict[str, dict[str, str]] = {}
    counts: Counter[str] = Counter()
    for name, step in steps:
        last.setdefault(name, {})[step.node] = step.status
        counts[name] += 1
    return {
        name: f"{_sign(statuses.values())}{f' {counts[name]}×' if counts[name] > 1 else ''}"
        for name, statuses in last.items()
    }


def _sign(statuses: Collection[str]) -> str:
    """One sign for all items of a map or a task loop: the first of `_MARKS` that one of them has."""
    return next((mark for status, mark in _MARKS.items() if status in statuses), "·")


def _places(history: History, graph: CompiledGraph[Any]) -> Iterator[tuple[str, StepLook]]:
    """Each step with the node of the drawing that it is of: a map or a task loop runs that once for each item."""
    ids = set(graph.node_ids)
    shapes = {id: re.compile("/".join(rf"{re.escape(part)}(\[.*\])?" for part in id.split("/"))) for id in ids}
    for step in history.steps:
        found = (id for id, shape in shapes.items() if step.node not in ids and shape.fullmatch(step.node))
        yield next(found, step.node), step


def _graph_of(record: SessionRecord) -> CompiledGraph[Any] | None:
    """The graph of the run's workflow, if that can be loaded without running what nobody has trusted."""
    from atomic.loading.catalog import WorkflowCatalog
    from atomic.workflows.errors import UntrustedError, WorkflowLoadError

    if not record.project or not os.path.isdir(record.project):
        return None
    definition = WorkflowCatalog(Path(record.project)).find(record.workflow)
    try:
        return None if definition is None else definition.load().graph
    except (UntrustedError, WorkflowLoadError):
        return None


def _timeline(rows: Sequence[Row], columns: int) -> str:
    shown = rows[-MOST_ROWS:]
    space = max(10, min(_BAR, columns - _WHO - 34))
    who = min(_WHO, max(width(one_line(row.who)) for row in shown))
    lines = [cut(_timeline_row(row, who, space), columns) for row in shown]
    head = ["Timeline"]
    if len(rows) > len(shown):
        head.append(f"  ({len(rows) - len(shown):,} earlier ones are left out: --json has them all)")
    return "\n".join([*head, *lines])


def _timeline_row(row: Row, who: int, space: int) -> str:
    began = local_time(row.started)[11:]
    name = cut(one_line(row.who), who)
    name += " " * (who - width(name))
    mark = _MARKS.get({"done": "completed", "error": "failed"}.get(row.status, row.status), "·")
    figures = f"{duration(row.seconds):>7} {dollars(row.cost):>8}"
    return f"  {began} {mark} {name} {bar(row, space)} {figures}  {one_line(row.what)}".rstrip()
