"""The tasks of a workflow; where there are none, the agent's own plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from textual.content import Content

from atomic.tasks import Task, TaskStatus
from atomic.tui.harmless import one_line
from atomic.tui.protocol import RunKind
from atomic.tui.state.model import Screen
from atomic.tui.widgets.panel import KEYS, Panel, key_hint
from atomic.tui.widgets.text import MUTED, content, fit, heading, spread, windowed

ICONS: Mapping[TaskStatus, str] = {
    TaskStatus.PENDING: "○",
    TaskStatus.IN_PROGRESS: "▶",
    TaskStatus.COMPLETED: "✓",
    TaskStatus.FAILED: "✗",
    TaskStatus.BLOCKED: "⊘",
    TaskStatus.SKIPPED: "↷",  # no terminal makes an emoji of it
}
COLOURS: Mapping[TaskStatus, str] = {
    TaskStatus.PENDING: MUTED,
    TaskStatus.IN_PROGRESS: "bold $primary",
    TaskStatus.COMPLETED: "$success",
    TaskStatus.FAILED: "$error",
    TaskStatus.BLOCKED: "$warning",
    TaskStatus.SKIPPED: MUTED,
}
_PLANNED = {  # an agent's own words for the same
    "in_progress": TaskStatus.IN_PROGRESS,
    "completed": TaskStatus.COMPLETED,
    "cancelled": TaskStatus.SKIPPED,
}
_ID_LETTERS = 8


class TaskPanel(Panel):
    """All tasks below each other; of many those around the active ones."""

    DEFAULT_CSS = """
    TaskPanel { height: 1fr; min-height: 4; }
    """

    def wanted(self) -> int:
        """A heading and a row for each."""
        return 1 + len(self.state.tasks or self.state.plan)

    def has_something(self) -> bool:
        """Whether there are tasks or a plan."""
        return bool(self.state.tasks or self.state.plan)

    def rows(self, width: int, height: int) -> list[Content]:
        """A heading and the rows."""
        return task_lines(self.state, width, height, self.shift)


class TaskStrip(Panel):
    """The same in one line, for a narrow screen."""

    DEFAULT_CSS = """
    TaskStrip { height: 1; padding: 0 1; }
    """

    def has_something(self) -> bool:
        """Whether there are tasks or a plan."""
        return bool(self.state.tasks or self.state.plan)

    def rows(self, width: int, height: int) -> list[Content]:
        """Its one line."""
        return [task_strip(self.state, width, self.keys)]


@dataclass(frozen=True, slots=True)
class _Row:
    """A task or a line of a plan, as it is shown."""

    id: str
    title: str
    status: TaskStatus
    waits_for: tuple[str, ...] = ()
    is_paused: bool = False  # it was being done when its run stopped


def task_lines(screen: Screen, width: int, height: int, shift: int = 0) -> list[Content]:
    """The panel in so much room."""
    rows = _rows(screen)
    focus = min(max(0, _focus(rows) + shift), max(0, len(rows) - 1))
    ids = max((len(row.id) for row in rows), default=0)
    shown = windowed([_line(row, width, ids) for row in rows], height - 1, focus)
    return [heading(content(("tasks" if screen.tasks else "plan", "bold"), " ", _count(rows)), width), *shown]


def task_strip(screen: Screen, width: int, keys: Mapping[str, str] = KEYS) -> Content:
    """How many are done, and the first that is being done."""
    rows = _rows(screen)
    active = [row for row in rows if row.status is TaskStatus.IN_PROGRESS]
    row = active[0] if active else rows[_focus(rows)] if rows else None
    if row is None:
        return content()
    more = f" +{len(active) - 1}" if len(active) > 1 else ""
    left = content(("☑ ", MUTED), _count(rows), "  ", _named(row, len(row.id)), (more, MUTED))
    return spread(left, content((key_hint(keys, "tasks", "tasks", ""), MUTED)) if width >= 60 else content(), width)


def _rows(screen: Screen) -> list[_Row]:
    if screen.tasks:
        done = {task.id for task in screen.tasks if task.status.is_done}
        runs = [run for run in screen.runs.values() if run.kind is RunKind.WORKFLOW]
        is_over = bool(runs) and not any(run.is_active for run in runs)
        return [_task_row(task, done, is_over=is_over) for task in screen.tasks]
    return [_Row("", one_line(item.text), _PLANNED.get(item.status, TaskStatus.PENDING)) for item in screen.plan]


def _task_row(task: Task, done: set[str], *, is_over: bool) -> _Row:
    open_ones = () if task.status.is_done else tuple(one_line(id) for id in task.blocked_by if id not in done)
    is_paused = task.status is TaskStatus.IN_PROGRESS and is_over
    return _Row(one_line(task.id)[:_ID_LETTERS], one_line(task.title), task.status, open_ones, is_paused)


def _focus(rows: Sequence[_Row]) -> int:
    """The first that is being done, else the first that is open, else the last."""
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
    for waits in _waits(row, width):
        if named.cell_length + waits.cell_length < width:
            return spread(named, waits, width)
    waits = _waits(row, width)[-1:]
    return spread(named, waits[0], width) if waits else fit(named, width)


def _waits(row: _Row, width: int) -> list[Content]:
    """Which tasks must be done before, in many words and in few: the title matters more."""
    if not row.waits_for or row.status is TaskStatus.IN_PROGRESS or width < 24:
        return []
    first, *others = row.waits_for
    who = f"{first[:_ID_LETTERS]}{f' +{len(others)}' if others else ''}"
    return [content((f"{words} {who}", MUTED)) for words in ("blocked by", "after")]


def _named(row: _Row, ids: int) -> Content:
    number = (f"{row.id:<{ids}} ", MUTED) if ids else ""
    title = (row.title, MUTED if row.status.is_done else "bold" if row.status is TaskStatus.IN_PROGRESS else "")
    icon = ("‖ ", "$warning") if row.is_paused else (f"{ICONS[row.status]} ", COLOURS[row.status])
    return content(icon, number, title)
