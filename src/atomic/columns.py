"""How many columns of a terminal a text takes, and a text in so many. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from unicodedata import category, east_asian_width


def width(text: str) -> int:
    """The number of columns; a wide character takes two, a combining mark none."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def cut(text: str, limit: int, mark: str = "…") -> str:
    """The text if it fits, else as much as fits with the mark behind it."""
    return text if width(text) <= limit else head(text, limit - width(mark)) + mark


def head(text: str, limit: int) -> str:
    """The beginning of a text that fits; no half of a wide character."""
    used = 0
    for at, character in enumerate(text):
        used += _columns(character)
        if used > limit:
            return text[:at]
    return text


def one_line(text: str) -> str:
    """A text without line ends and double blanks."""
    return " ".join(text.split())


def padded(text: str, columns: int) -> str:
    """The text with blanks behind it."""
    return text + " " * (columns - width(text))


def table(rows: Iterable[Sequence[str]], limit: int | None = None) -> list[str]:
    """Lines with the cells of each column below each other; the last one is cut where a line would be too long."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines = ["  ".join(padded(cell, columns) for cell, columns in zip(row, widths, strict=True)) for row in cells]
    return [line.rstrip() if limit is None else cut(line.rstrip(), limit) for line in lines]


def _columns(character: str) -> int:
    if category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
