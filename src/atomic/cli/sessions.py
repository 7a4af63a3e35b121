"""`atomic sessions`: the runs of the past and the present, and one of them in detail."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from atomic.cli.errors import OK, UsageError
from atomic.cli.streams import harmless, one_line, put, screen_width, tell
from atomic.commands import cut, table, width
from atomic.config import atomic_home, find_project
from atomic.sessions.history import History, read_history
from atomic.sessions.html import page_of
from atomic.sessions.model import SessionRecord
from atomic.sessions.report import dollars, duration, facts_of, local_time, report_of
from atomic.sessions.store import Session, SessionStore, shown
from atomic.sessions.timeline import Row, bar, rows_of

if TYPE_CHECKING:
    from atomic.graph import CompiledGraph

MOST_ROWS = 200  # of a timeline, on a screen or in a pipe; --json has all
_WHO, _BAR, _WIDE = 28, 40, 100
_MARKS = {"completed": "✓", "failed": "✗", "running": "▶", "interrupted": "▶", "paused": "⏸", "blocked": "⏸"}


def list_sessions(status: str | None, *, here: bool, as_json: bool) -> int:
    """Print all sessions, the newest first."""
    records = SessionStore(atomic_home()).list()
    project = str(find_project()) if here else None
    chosen = [
        record
        for record in records
        if (status is None or record.status == status) and (project is None or record.project == project)
    ]
    if as_json:
        put(_json([msgspec.to_builtins(record) for record in chosen]))
        return OK
    put("".join(f"{line}\n" for line in table(_cells(chosen), screen_width())) or "There are none.\n")
    return OK


def show_session(id: str, *, as_json: bool) -> int:
    """Print one session: its facts, its graph with what ran, who worked when."""
    session, history = _look(id)
    if as_json:
        put(_json(_object(history)))
    else:
        put(_text(history))
        if (session.dir / "report.md").exists():
            put(f"\nIts report: atomic sessions report {history.record.id}\n")
    if history.problem:
        tell(history.problem)
    return OK


def show_page(id: str, file: str | None = None) -> int:
    """Print one session as a page, or write it to a file that is not there yet."""
    session, history = _look(id)
    graph = _graph_of(history.record)
    page = page_of(
        history, svg="" if graph is None else graph.svg(), report=_report(session, history), marks=_marks(history)
    )
    if file is None:
        put(page)
        return OK
    try:
        with open(file, "x", encoding="utf-8", opener=_private) as out:
            out.write(page)
    except FileExistsError:
        raise UsageError(f"{file} is there already (name another file, or remove it)") from None
    put(f"{one_line(os.path.abspath(file))}\n")
    return OK


def report_session(id: str) -> int:
    """Print its report, or one that is made from what is there."""
    session, history = _look(id)
    put(harmless(_report(session, history)))
    return OK


def _look(id: str) -> tuple[Session, History]:
    session = SessionStore(atomic_home()).find(id)
    return session, read_history(session, shown(session.record))


def _report(session: Session, history: History) -> str:
    try:
        return (session.dir / "report.md").read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return report_of(history)


def _private(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC, 0o600)


# for programs ---------------------------------------------------------------------------------------------------


def _json(data: object) -> str:
    return msgspec.json.encode(data).decode() + "\n"


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
    marks = _marks(history)
    lines = [] if graph is None else _marked(graph.draw(columns), marks).rstrip("\n").split("\n")
    ran = [f"  {mark} {one_line(node)}" for node, mark in marks.items()]
    return "\n".join([*lines, *(("What ran", *ran) if ran else ("Nothing has run yet.",))])


def _marks(history: History) -> dict[str, str]:
    """For each node how its last step ended, and how often it ran, in the order of the first steps."""
    last = {step.node: step.status for step in history.steps}
    counts = Counter(step.node for step in history.steps)
    return {
        node: f"{_MARKS.get(status, '·')}{f' {counts[node]}×' if counts[node] > 1 else ''}"
        for node, status in last.items()
    }


def _marked(drawing: str, marks: Mapping[str, str]) -> str:
    """The drawing with the sign of each node that ran in front of its id, where a box leaves a blank."""
    for node, mark in marks.items():
        drawing = re.sub(f"│ {re.escape(node)}(?=[ │])", lambda _, node=node, mark=mark: f"│{mark[0]}{node}", drawing)
    return drawing


def _graph_of(record: SessionRecord) -> CompiledGraph[Any] | None:
    """The graph of the run's workflow, if that can be loaded without running what nobody has trusted."""
    from atomic.workflows.catalog import WorkflowCatalog
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
