"""Render tables that fit the width: wide columns shrink and wrap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from rich.segment import Segment

from atomic.tui.text import cells
from atomic.tui.transcript.palette import Palette
from atomic.tui.transcript.rows import Row, Run, length, wrap

_GAP = 3  # " │ "
_LEAST = 4  # cells of a column


@dataclass
class Table:
    """Cells as runs, and the alignment of each column."""

    head: list[list[Run]] = field(default_factory=list[list[Run]])
    body: list[list[list[Run]]] = field(default_factory=list[list[list[Run]]])
    alignments: list[str] = field(default_factory=list[str])


def table_rows(table: Table, width: int, palette: Palette) -> list[Row]:
    """Render a table."""
    columns = len(table.head)
    if columns == 0:
        return []
    if columns * (_LEAST + _GAP) - _GAP > width:
        return _records(table, width, palette)
    widths = _widths([table.head, *table.body], width - _GAP * (columns - 1), columns)
    rows = _line(table.head, widths, table.alignments, palette)
    rule = "─┼─".join("─" * size for size in widths)
    rows.append([Segment(rule, palette.muted)])
    for line in table.body:
        rows += _line(line, widths, table.alignments, palette)
    return rows


def _widths(lines: Sequence[Sequence[Sequence[Run]]], room: int, columns: int) -> list[int]:
    """Return the column widths. If they do not fit, the widest columns shrink first."""
    wanted = [1] * columns
    for line in lines:
        for at, cell in enumerate(line[:columns]):
            text = "".join(text for text, _ in cell)
            wanted[at] = max(wanted[at], max(map(cells, text.split("\n"))))
    limit = max(wanted)
    while sum(min(size, limit) for size in wanted) > room and limit > _LEAST:
        limit -= 1
    widths = [min(size, limit) for size in wanted]
    for at in sorted(range(columns), key=lambda at: wanted[at]):  # distribute the remaining cells
        more = min(room - sum(widths), wanted[at] - widths[at])
        widths[at] += max(0, more)
    return widths


def _line(line: Sequence[Sequence[Run]], widths: list[int], alignments: list[str], palette: Palette) -> list[Row]:
    boxes = [wrap(line[at] if at < len(line) else [], size) for at, size in enumerate(widths)]
    rows: list[Row] = []
    for level in range(max(map(len, boxes))):
        row: Row = []
        for at, size in enumerate(widths):
            if at:
                row.append(Segment(" │ ", palette.muted))
            box = boxes[at]
            row += _aligned(box[level] if level < len(box) else [], size, alignments[at], palette)
        rows.append(row)
    return rows


def _aligned(row: Row, size: int, alignment: str, palette: Palette) -> Row:
    free = max(0, size - length(row))
    left = {"right": free, "center": free // 2}.get(alignment, 0)
    parts = [Segment(" " * left, palette.text), *row, Segment(" " * (free - left), palette.text)]
    return [part for part in parts if part.text]


def _records(table: Table, width: int, palette: Palette) -> list[Row]:
    """Render each line as a list of names and values, if there are too many columns."""
    rows: list[Row] = []
    for number, line in enumerate(table.body):
        if number:
            rows.append([Segment("─" * min(width, 12), palette.muted)])
        for name, cell in zip(table.head, line, strict=False):
            rows += wrap([*name, (": ", palette.muted), *cell], width)
    return rows
