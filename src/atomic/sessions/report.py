"""A run as text: facts, totals by role, the timeline, and a report if the workflow
wrote none.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from shlex import quote

import msgspec

from atomic.base.text import duration, local_time
from atomic.base.usage import dollars
from atomic.sessions.history import History, seconds_since_1970
from atomic.sessions.model import Cost, SessionRecord

_PLAIN_REASONS = ("", "cancelled", "done", "error")  # they say no more than the status
RESUMABLE = ("paused", "interrupted", "failed", "blocked")
_GAP = 0.03  # the longest gap of a timeline, as a fraction of the work
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class RoleFigures(msgspec.Struct, frozen=True):
    """The totals of one role."""

    role: str
    calls: int
    seconds: float
    tokens: int
    cost: float | None
    is_incomplete: bool = False  # the price of a call is unknown

    @property
    def price(self) -> str:
        return dollars(self.cost, is_incomplete=self.is_incomplete)


def facts_of(history: History) -> list[tuple[str, str]]:
    """Return the facts of a run as names and texts; empty ones are left out."""
    record = history.record
    version = f" {record.workflow_version}" if record.workflow_version else ""
    agent = ""
    if record.is_conversation:  # a run may have several
        agent = ", ".join(str(record.config[name]) for name in ("provider", "model") if record.config.get(name))
    worked = ""
    calls = [*history.calls, *history.killed]
    if calls:
        worked = f"{duration(sum(call.seconds for call in calls))} in {_counted(len(calls))}"
    facts = [
        ("session", record.id),
        ("workflow", f"{record.workflow}{version}"),
        ("status", str(record.status) if record.reason in _PLAIN_REASONS else f"{record.status}: {record.reason}"),
        ("agent", agent),
        ("prompt", record.prompt),
        ("project", record.project),
        ("started", time_text(record.created_at)),
        ("ended", time_text(record.ended_at)),
        ("agents at work", worked),
        ("cost", cost_text(record.cost)),
        ("tasks", tasks_text(history)),
        ("waits until", time_text(record.parked_until)),
        ("wakes at", time_text(record.wake_at)),
        ("waits for", ", ".join(f'signal "{name}"' for name in record.signals)),
        ("pull request", record.pr or ""),
        *((f"question {one.id}", one.text) for one in record.questions),
        ("next", next_command(record)),
    ]
    return [(name, text) for name, text in facts if text]


def next_command(record: SessionRecord) -> str:
    """Return the command that continues a run; empty if nothing is left to do."""
    if record.questions:
        return f'atomic answer {record.id} {quote(record.questions[0].id)} "…"'
    if record.is_conversation:
        return f"atomic chat --resume {record.id}"
    if record.signals and record.wake_at is None:
        return f"atomic signal {record.id} {quote(record.signals[0])}"
    return f"atomic resume {record.id}" if record.status in RESUMABLE else ""


def figures_of(history: History) -> list[RoleFigures]:
    """Return the totals by role; a call without a role counts for its node."""
    started = [*history.calls, *history.killed]
    roles = dict.fromkeys(call.role or call.node or "agent" for call in started)
    figures: list[RoleFigures] = []
    for role in roles:
        calls = [call for call in started if (call.role or call.node or "agent") == role]
        costs = [call.cost for call in calls if call.cost is not None]
        seconds = sum(call.seconds for call in calls)
        tokens = sum(call.tokens for call in calls)
        is_incomplete = any(call in history.killed or (call.cost is None and call.tokens) for call in calls)
        figures.append(RoleFigures(role, len(calls), seconds, tokens, sum(costs) if costs else None, is_incomplete))
    return figures


def report_of(history: History) -> str:
    """Return a report of the history in Markdown."""
    record = history.record
    lines = [f"# {_plain(record.workflow)}: {record.status}", ""]
    lines += [f"- **{_plain(name)}**: {_plain(text)}" for name, text in facts_of(history)]
    lines += _section("Tasks", [f"- {task.status}: {_plain(task.id)} {_plain(task.title)}" for task in history.tasks])
    lines += _section("By role", [f"- {_plain(_figures_text(one))}" for one in figures_of(history)])
    counts = Counter((step.node, step.status) for step in history.steps)
    steps = [
        f"- {_plain(node)}: {status}{f' {number} times' if number > 1 else ''}"
        for (node, status), number in counts.items()
    ]
    lines += _section("Steps", steps)
    failures = [f"- {_plain(step.error)}" for step in history.steps if step.error]  # the error names its node
    lines += _section("What failed", failures)
    return "\n".join(lines) + "\n"


def cost_text(cost: Cost) -> str:
    tokens = cost.input_tokens + cost.output_tokens
    if not tokens and not cost.usd:
        return ""
    price = dollars(cost.usd, is_incomplete=cost.is_incomplete) or "price unknown"
    return f"{price}, {tokens:,} tokens ({cost.input_tokens:,} read, {cost.output_tokens:,} written)"


def tasks_text(history: History) -> str:
    counts = Counter(str(task.status) for task in history.tasks)
    return ", ".join(f"{number} {status}" for status, number in counts.items())


def time_text(time: str | float | None) -> str:
    """Format a time of a session in the local time zone."""
    when = seconds_since_1970(time)
    return local_time(when) if when else ""


def _figures_text(one: RoleFigures) -> str:
    parts = (
        _counted(one.calls),
        duration(one.seconds),
        f"{one.tokens:,} tokens",
        one.price or "price unknown",
    )
    return f"{one.role}: {', '.join(part for part in parts if part)}"


def _counted(calls: int) -> str:
    return f"{calls} call{'' if calls == 1 else 's'}"


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []


def _plain(text: str) -> str:
    """Return the text as one line."""
    return " ".join(text.split())


class TimelineRow(msgspec.Struct, frozen=True):
    """A call of an agent, or a step without calls.

    `left` and `width` are fractions of the axis.
    """

    who: str
    what: str  # the agent and its model; empty for a step
    started: float
    seconds: float
    cost: float | None
    status: str
    left: float = 0.0
    width: float = 0.0


def rows_of(history: History) -> list[TimelineRow]:
    """Return the timeline: all rows by start time, with their positions on the axis."""
    called = {call.node for call in history.calls}
    rows: list[TimelineRow] = []
    for call in history.calls:
        agent = " ".join(part for part in (call.provider, call.model) if part)
        rows.append(TimelineRow(call.who or "agent", agent, call.started, call.seconds, call.cost, call.reason))
    rows += [
        TimelineRow(step.node, "", step.started, step.seconds, step.cost, step.status)
        for step in history.steps
        if step.node not in called or step.status == "running"  # the log has a call only after its end
    ]
    rows.sort(key=lambda row: (row.started, row.who))
    axis = _Axis((row.started, row.started + row.seconds) for row in rows)
    return [
        msgspec.structs.replace(row, left=axis.place(row.started), width=axis.part(row.started, row.seconds))
        for row in rows
    ]


def bar(row: TimelineRow, columns: int) -> str:
    """Return a row as a bar of at least an eighth of a column."""
    start = min(int(row.left * columns), columns - 1)
    eighths = max(1, round(row.width * columns * 8))
    whole, rest = divmod(eighths, 8)
    drawn = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return (" " * start + drawn)[:columns].ljust(columns)


class _Axis:
    """Maps times to 0…1, with shortened gaps between the spans.

    A run may wait for days, for an answer or a limit.
    """

    def __init__(self, spans: Iterable[tuple[float, float]]) -> None:
        self._spans = _merged(spans)
        work = sum(end - start for start, end in self._spans) or 1e-9
        gap = work * _GAP
        self._places: list[float] = []  # the start of each span on the axis
        at = 0.0
        for number, (start, end) in enumerate(self._spans):
            if number:
                at += min(gap, start - self._spans[number - 1][1])
            self._places.append(at)
            at += end - start
        self._length = max(at, 1e-9)

    def place(self, time: float) -> float:
        for (start, end), at in zip(reversed(self._spans), reversed(self._places), strict=True):
            if time >= start:
                return (at + min(time, end) - start) / self._length
        return 0.0

    def part(self, start: float, seconds: float) -> float:
        return self.place(start + seconds) - self.place(start)


def _merged(spans: Iterable[tuple[float, float]]) -> Sequence[tuple[float, float]]:
    merged: list[tuple[float, float]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged
