"""Wrap styled text into rows of cells. The text must be cleaned before."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from rich.cells import cell_len, chop_cells
from rich.segment import Segment
from rich.style import Style

from atomic.tui.text import cells

Styled: TypeAlias = tuple[str, Style]
Row: TypeAlias = list[Segment]

# A line can always break between two wide characters.
_WIDE = (
    "\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe4f\uff00-\uff60\uffe0-\uffe6"
    "\U0001f300-\U0001faff\U00020000-\U0003fffd"
)
_TOKEN = re.compile(rf"\n| +|[{_WIDE}]|[^\s{_WIDE}]+|\s")


def wrap(runs: Sequence[Styled], width: int) -> list[Row]:
    """Break at words, and inside words that are too long."""
    width = max(1, width)
    plain = "".join([text for text, _ in runs])
    if len(plain) <= width and plain.isascii() and "\n" not in plain:
        return [[Segment(text, style) for text, style in runs if text]]
    return list(_slices(runs, _breaks(plain, width)))


def chop(runs: Sequence[Styled], width: int) -> list[Row]:
    """Break at cells only, for code."""
    width = max(1, width)
    plain = "".join([text for text, _ in runs])
    if cells(plain) <= width:
        return [[Segment(text, style) for text, style in runs if text]]
    spans: list[tuple[int, int]] = []
    start = 0
    for part in chop_cells(plain, width):
        spans.append((start, start + len(part)))
        start += len(part)
    return list(_slices(runs, spans))


def length(row: Iterable[Segment]) -> int:
    """Return the number of cells of a row."""
    return sum([cells(segment.text) for segment in row])


def _breaks(text: str, width: int) -> list[tuple[int, int]]:
    """Return begin and end of each line, without trailing spaces."""
    spans: list[tuple[int, int]] = []
    start = 0
    used = 0
    measure = len if text.isascii() else cell_len
    for found in _TOKEN.finditer(text):
        token = found[0]
        at = found.start()
        if token == "\n":
            spans.append((start, at))
            start = found.end()
            used = 0
            continue
        size = measure(token)
        if token[0] == " ":
            used += size
            continue
        if used + size > width and used and at > start:
            spans.append((start, start + len(text[start:at].rstrip(" "))))
            start = at
            used = 0
        while size > width:
            part = token[:width] if measure is len else chop_cells(token[: 4 * width], width)[0]
            spans.append((start, start + len(part)))
            start += len(part)
            token = token[len(part) :]
            size = measure(token)
        used += size
    spans.append((start, len(text)))
    return spans


def _slices(runs: Sequence[Styled], spans: Iterable[tuple[int, int]]) -> Iterable[Row]:
    index = 0
    at = 0  # start of the run at `index`
    for start, end in spans:
        row: Row = []
        while index < len(runs) and at + len(runs[index][0]) <= start:
            at += len(runs[index][0])
            index += 1
        look = index
        here = at
        while look < len(runs) and here < end:
            text, style = runs[look]
            part = text[max(0, start - here) : end - here]
            if part:
                row.append(Segment(part, style))
            here += len(text)
            look += 1
        yield row
