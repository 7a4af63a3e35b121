"""A run as text: facts, totals by role, and a report if the workflow wrote none.

Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from shlex import quote

import msgspec

from atomic.base.text import duration
from atomic.sessions.history import History, seconds_since_1970
from atomic.sessions.model import Cost, SessionRecord

_PLAIN_REASONS = ("", "cancelled", "done", "error")  # they say no more than the status
RESUMABLE = ("paused", "interrupted", "failed", "blocked")


class RoleFigures(msgspec.Struct, frozen=True):
    """The totals of one role."""

    role: str
    calls: int
    seconds: float
    tokens: int
    cost: float | None


def facts_of(history: History) -> list[tuple[str, str]]:
    """Return the facts of a run as names and texts; empty ones are left out."""
    record = history.record
    version = f" {record.workflow_version}" if record.workflow_version else ""
    facts = [
        ("session", record.id),
        ("workflow", f"{record.workflow}{version}"),
        ("status", str(record.status) if record.reason in _PLAIN_REASONS else f"{record.status}: {record.reason}"),
        ("agent", _agent(record)),
        ("prompt", record.prompt),
        ("project", record.project),
        ("started", local_time(record.created_at)),
        ("ended", local_time(record.ended_at)),
        ("agents at work", _worked(history)),
        ("cost", cost_text(record.cost)),
        ("tasks", tasks_text(history)),
        ("waits until", local_time(record.parked_until)),
        ("pull request", record.pr or ""),
        *((f"question {one.id}", one.text) for one in record.questions),
        ("next", next_command(record)),
    ]
    return [(name, text) for name, text in facts if text]


def _agent(record: SessionRecord) -> str:
    """Return the agent and model of a chat; empty for a run, which may have several."""
    if not record.is_conversation:
        return ""
    return ", ".join(str(part) for part in (record.config.get("provider"), record.config.get("model")) if part)


def next_command(record: SessionRecord) -> str:
    """Return the command that continues a run; empty if nothing is left to do."""
    if record.questions:
        return f'atomic answer {record.id} {quote(record.questions[0].id)} "…"'
    if record.is_conversation:
        return f"atomic chat --resume {record.id}"
    return f"atomic resume {record.id}" if record.status in RESUMABLE else ""


def figures_of(history: History) -> list[RoleFigures]:
    """Return the totals by role; a call without a role counts for its node."""
    roles = dict.fromkeys(call.role or call.node or "agent" for call in history.calls)
    figures: list[RoleFigures] = []
    for role in roles:
        calls = [call for call in history.calls if (call.role or call.node or "agent") == role]
        costs = [call.cost for call in calls if call.cost is not None]
        seconds = sum(call.seconds for call in calls)
        tokens = sum(call.tokens for call in calls)
        figures.append(RoleFigures(role, len(calls), seconds, tokens, sum(costs) if costs else None))
    return figures


def report_of(history: History) -> str:
    """Return a report of the history in Markdown."""
    record = history.record
    lines = [f"# {_plain(record.workflow)}: {record.status}", ""]
    lines += [f"- **{_plain(name)}**: {_plain(text)}" for name, text in facts_of(history)]
    lines += _section("Tasks", [f"- {task.status}: {_plain(task.id)} {_plain(task.title)}" for task in history.tasks])
    lines += _section("By role", [f"- {_plain(_figures_text(one))}" for one in figures_of(history)])
    lines += _section("Steps", _steps(history))
    failures = [f"- {_plain(step.error)}" for step in history.steps if step.error]  # the error names its node
    lines += _section("What failed", failures)
    return "\n".join(lines) + "\n"


def dollars(cost: float | None) -> str:
    """Format dollars; empty if the price is unknown."""
    if cost is None:
        return ""
    return f"${cost:.2f}" if cost >= 0.01 or not cost else f"${cost:.4f}"


def cost_text(cost: Cost) -> str:
    tokens = cost.input_tokens + cost.output_tokens
    if not tokens and not cost.usd:
        return ""
    price = dollars(cost.usd) or "price unknown"
    return f"{price}, {tokens:,} tokens ({cost.input_tokens:,} read, {cost.output_tokens:,} written)"


def tasks_text(history: History) -> str:
    counts = Counter(str(task.status) for task in history.tasks)
    return ", ".join(f"{number} {status}" for status, number in counts.items())


def local_time(time: str | float | None) -> str:
    """Format a time of a session in the local time zone."""
    when = seconds_since_1970(time)
    return "" if not when else datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _worked(history: History) -> str:
    seconds = sum(call.seconds for call in history.calls)
    calls = len(history.calls)
    return f"{duration(seconds)} in {calls} call{'' if calls == 1 else 's'}" if calls else ""


def _figures_text(one: RoleFigures) -> str:
    parts = (
        f"{one.calls} call{'' if one.calls == 1 else 's'}",
        duration(one.seconds),
        f"{one.tokens:,} tokens",
        dollars(one.cost),
    )
    return f"{one.role}: {', '.join(part for part in parts if part)}"


def _steps(history: History) -> list[str]:
    counts = Counter((step.node, step.status) for step in history.steps)
    return [
        f"- {_plain(node)}: {status}{f' {number} times' if number > 1 else ''}"
        for (node, status), number in counts.items()
    ]


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines] if lines else []


def _plain(text: str) -> str:
    """Return the text as one line."""
    return " ".join(text.split())
