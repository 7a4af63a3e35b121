"""Measure, cut and lay out text in terminal columns, and format lengths of time. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unicodedata import category, east_asian_width


def width(text: str) -> int:
    """Return the number of columns; a wide character takes two, a combining mark none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, limit: int, mark: str = "…") -> str:
    """Return the text if it fits, else its beginning followed by the mark."""
    return text if width(text) <= limit else head(text, limit - width(mark)) + mark


def head(text: str, limit: int) -> str:
    """Return the beginning of a text that fits; a wide character is never halved."""
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > limit:
            return text[:at]
    return text


def one_line(text: str) -> str:
    """Return a text without line ends and double blanks."""
    return " ".join(text.split())


def padded(text: str, columns: int) -> str:
    """Return the text filled with blanks to a number of columns."""
    return text + " " * (columns - width(text))


def table(rows: Iterable[Sequence[str]], limit: int | None = None) -> list[str]:
    """Return lines with aligned columns; a line beyond the limit is cut."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(padded(cell, columns) for cell, columns in zip(row, widths, strict=True)) for row in cells]
    return [line.rstrip() if limit is None else cut(line.rstrip(), limit) for line in lines]


def duration(seconds: float) -> str:
    """Return a length of time as flags take it: 0.4s, 12s, 90s, 3m05s, 30m, 1h30m."""
    if seconds < 9.95:
        return f"{max(0.0, seconds):.1f}".removesuffix(".0") + "s"
    whole = round(seconds)
    if whole < 120:
        return f"{whole}s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02}m" if minutes else f"{hours}h"
    return f"{minutes}m{rest:02}s" if rest else f"{minutes}m"


def _columns(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
