"""Measure, cut and align text in terminal columns, compare names, format durations and times.

A wide character takes two columns, a combining mark none. Text from outside may also
contain control characters: pass it through `base.terminal` before it is printed.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from unicodedata import category, east_asian_width, normalize


def char_width(char: str) -> int:
    """Return the number of columns of one character: 0, 1 or 2."""
    is_joined_hangul = "\u1160" <= char <= "\u11ff"
    if category(char) in ("Mn", "Me", "Cf") or is_joined_hangul:
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def width(text: str) -> int:
    """Return the number of columns of a text in one line."""
    return len(text) if text.isascii() else sum(map(char_width, text))


def cut(text: str, limit: int, mark: str = "…") -> str:
    """Return the text if it fits in `limit` columns, else its beginning and the mark.

    A wide character is never halved, so the result may be one column short.
    """
    if width(text) <= limit:
        return text
    used = width(mark)
    end = 0
    for char in text:
        used += char_width(char)
        if used > limit:
            break
        end += 1
    return text[:end] + mark


def pad(text: str, columns: int) -> str:
    """Return the text filled with spaces to a number of columns."""
    return text + " " * (columns - width(text))


def fold(name: str) -> str:
    """Return a name for comparison: without case, in one Unicode form."""
    return name.casefold() if name.isascii() else normalize("NFC", name).casefold()


def collapse_spaces(text: str) -> str:
    """Return the text in one line, with single spaces.

    `terminal.one_line` also cleans it.
    """
    return " ".join(text.split())


def table(rows: Iterable[Sequence[str]], limit: int | None = None) -> list[str]:
    """Return lines with aligned columns; a line beyond the limit is cut."""
    cells = [[collapse_spaces(cell) for cell in row] for row in rows]
    widths = [max(map(width, column)) for column in zip(*cells, strict=True)]
    lines: list[str] = []
    for row in cells:
        line = "  ".join(pad(cell, columns) for cell, columns in zip(row, widths, strict=True)).rstrip()
        lines.append(line if limit is None else cut(line, limit))
    return lines


def duration(seconds: float) -> str:
    """Return a duration in the form that flags take: 0.4s, 12s, 90s, 3m05s, 30m, 1h30m."""
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


def local_time(when: float, *, with_zone: bool = False) -> str:
    """Return a Unix time in the local time zone: 2026-01-31 14:05:09."""
    form = "%Y-%m-%d %H:%M:%S %Z" if with_zone else "%Y-%m-%d %H:%M:%S"
    return time.strftime(form, time.localtime(when))
