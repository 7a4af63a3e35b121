"""Tasks panel: the tasks of a workflow, or the agent's plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual.content import Content

from atomic.chat.protocol import RunKind
from atomic.tasks import TaskStatus
from atomic.tui.state.model import Screen
from atomic.tui.text import MUTED, content, fit, heading, one_line, spread, windowed
from atomic.tui.widgets.panel import KEYS, Panel, key_hint

ICONS: Mapping[TaskStatus, str] = {
    TaskStatus.PENDING: "○",
    TaskStatus.IN_PROGRESS: "▶",
    TaskStatus.COMPLETED: "✓",
    TaskStatus.FAILED: "✗",
    TaskStatus.BLOCKED: "⊘",
    TaskStatus.SKIPPED: "↷",  # not shown as an emoji by any terminal
}
COLOURS: Mapping[TaskStatus, str] = {
    TaskStatus.PENDING: MUTED,
    TaskStatus.IN_PROGRESS: "bold $primary",
    TaskStatus.COMPLETED: "$success",
    TaskStatus.FAILED: "$error",
    TaskStatus.BLOCKED: "$warning",
    TaskStatus.SKIPPED: MUTED,
}
_PLANNED = {  # status names of agents
    "in_progress": TaskStatus.IN_PROGRESS,
    "completed": TaskStatus.COMPLETED,
    "cancelled": TaskStatus.SKIPPED,
}
_ID_LETTERS = 8


class TaskPanel(Panel):
    """All tasks in a column, or those around the active ones."""

    DEFAULT_CSS = """
    TaskPanel { height: 1fr; min-height: 4; }
    """

    def wanted(self) -> int:
        """Return a heading and a row for each task."""
        return 1 + len(self.state.tasks or self.state.plan)

    def has_something(self) -> bool:
        """Return whether there are tasks or a plan."""
        return bool(self.state.tasks or self.state.plan)

    def rows(self, width: int, height: int) -> list[Content]:
        """Return the heading and the rows."""
        return task_lines(self.state, width, height, self.shift)


class TaskStrip(Panel):
    """One line for a narrow screen."""

    DEFAULT_CSS = """
    TaskStrip { height: 1; padding: 0 1; }
    """

    def has_something(self) -> bool:
        """Return whether there are tasks or a plan."""
        return bool(self.state.tasks or self.state.plan)

    def rows(self, width: int, height: int) -> list[Content]:
        """Return the line."""
        return [task_strip(self.state, width, self.keys)]


@dataclass(frozen=True, slots=True)
class _Row:
    """A task or a line of a plan."""

    id: str
    title: str
    status: TaskStatus
    waits_for: tuple[str, ...] = ()
    is_paused: bool = False  # active when its run stopped


def task_lines(screen: Screen, width: int, height: int, shift: int = 0) -> list[Content]:
    """Return the panel's lines for this size."""
    rows = _rows(screen)
    focus = min(max(0, _focus(rows) + shift), max(0, len(rows) - 1))
    ids = max((len(row.id) for row in rows), default=0)
    shown = windowed([_line(row, width, ids) for row in rows], height - 1, focus)
    return [heading(content(("tasks" if screen.tasks else "plan", "bold"), " ", _count(rows)), width), *shown]


def task_strip(screen: Screen, width: int, keys: Mapping[str, str] = KEYS) -> Content:
    """Return the number of finished tasks and the first active one."""
    rows = _rows(screen)
    active = [row for row in rows if row.status is TaskStatus.IN_PROGRESS]
    if not rows:
        return content()
    row = active[0] if active else rows[_focus(rows)]
    more = f" +{len(active) - 1}" if len(active) > 1 else ""
    left = content(("☑ ", MUTED), _count(rows), "  ", _named(row, len(row.id)), (more, MUTED))
    return spread(left, content((key_hint(keys, "tasks", "tasks", ""), MUTED)) if width >= 60 else content(), width)


def _rows(screen: Screen) -> list[_Row]:
    if screen.tasks:
        done = {task.id for task in screen.tasks if task.status.is_done}
        runs = [run for run in screen.runs.values() if run.kind is RunKind.WORKFLOW]
        is_over = bool(runs) and not any(run.is_active for run in runs)
        return [
            _Row(
                one_line(task.id)[:_ID_LETTERS],
                one_line(task.title),
                task.status,
                () if task.status.is_done else tuple(one_line(id) for id in task.blocked_by if id not in done),
                is_over and task.status is TaskStatus.IN_PROGRESS,
            )
            for task in screen.tasks
        ]
    return [_Row("", one_line(item.text), _PLANNED.get(item.status, TaskStatus.PENDING)) for item in screen.plan]


def _focus(rows: Sequence[_Row]) -> int:
    """Return the index of the first active task, or the first open one, or the last."""
    for at, row in enumerate(rows):
        if row.status is TaskStatus.IN_PROGRESS:
            return at
    return next((at for at, row in enumerate(rows) if not row.status.is_done), max(0, len(rows) - 1))


def _count(rows: Sequence[_Row]) -> Content:
    done = sum(row.status.is_done for row in rows)
    failed = sum(row.status is TaskStatus.FAILED for row in rows)
    return content(f"{done}/{len(rows)}", (f" · {failed} failed" if failed else "", "$error"))


def _line(row: _Row, width: int, ids: int) -> Content:
    named = _named(row, ids)
    if not row.waits_for or row.status is TaskStatus.IN_PROGRESS or width < 24:
        return fit(named, width)
    first, *others = row.waits_for
    who = f"{first[:_ID_LETTERS]}{f' +{len(others)}' if others else ''}"
    waits = content((f"blocked by {who}", MUTED))
    if named.cell_length + waits.cell_length >= width:  # the title takes precedence
        waits = content((f"after {who}", MUTED))
    return spread(named, waits, width)


def _named(row: _Row, ids: int) -> Content:
    number = (f"{row.id:<{ids}} ", MUTED) if ids else ""
    style = ""
    if row.status.is_done:
        style = MUTED
    elif row.status is TaskStatus.IN_PROGRESS:
        style = "bold"
    icon = ("‖ ", "$warning") if row.is_paused else (f"{ICONS[row.status]} ", COLOURS[row.status])
    return content(icon, number, (row.title, style))
