"""The timeline of a run: rows on one axis, for text and HTML. Pure.

A run may wait for days, for an answer or a limit. Such gaps are shortened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from atomic.sessions.history import History

_GAP = 0.03  # the longest gap, as a fraction of the work
_EIGHTHS = " ▏▎▍▌▋▊▉█"


class Row(msgspec.Struct, frozen=True):
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


def rows_of(history: History) -> list[Row]:
    """Return all rows by start time, with their positions on the axis."""
    called = {call.node for call in history.calls}
    rows = [
        Row(call.who or "agent", _agent(call.provider, call.model), call.started, call.seconds, call.cost, call.reason)
        for call in history.calls
    ]
    rows += [
        Row(step.node, "", step.started, step.seconds, step.cost, step.status)
        for step in history.steps
        if step.node not in called or step.status == "running"  # the log has a call only after its end
    ]
    rows.sort(key=lambda row: (row.started, row.who))
    axis = _Axis((row.started, row.started + row.seconds) for row in rows)
    return [
        msgspec.structs.replace(row, left=axis.place(row.started), width=axis.part(row.started, row.seconds))
        for row in rows
    ]


def bar(row: Row, columns: int) -> str:
    """Return a row as a bar of at least an eighth of a column."""
    start = min(int(row.left * columns), columns - 1)
    eighths = max(1, round(row.width * columns * 8))
    whole, rest = divmod(eighths, 8)
    drawn = "█" * whole + (_EIGHTHS[rest] if rest else "")
    return (" " * start + drawn)[:columns].ljust(columns)


def _agent(provider: str, model: str) -> str:
    return " ".join(part for part in (provider, model) if part)


class _Axis:
    """Maps times to 0…1, with shortened gaps between the spans."""

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
