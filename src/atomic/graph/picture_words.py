"""Words for pictures: how wide a text is, how it is cut, and what a condition is called.

A picture is made of cells, as on a terminal: a wide character takes two, a combining mark none.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any
from unicodedata import category, east_asian_width

UNKNOWN = "…"
_JOINERS = frozenset("\u200c\u200d\ufe0e\ufe0f")  # terminals disagree about them; the signs stand without them too


def width(text: str) -> int:
    """The number of cells a text takes."""
    return len(text) if text.isascii() else sum(map(_cells, text))


def _cells(char: str) -> int:
    if category(char) in ("Mn", "Me") or "\u1160" <= char <= "\u11ff":  # marks, and Hangul that joins the sign before
        return 0
    return 2 if east_asian_width(char) in "WF" else 1


def pieces(text: str) -> Iterator[tuple[str, int]]:
    """The text sign by sign, each with its marks and its width."""
    sign, cells = "", 0
    for char in text:
        if cells and _cells(char):
            yield sign, cells
            sign, cells = "", 0
        sign += char
        cells += _cells(char)
    if sign:
        yield sign, cells


def cut(text: str, limit: int) -> str:
    """The text in so many cells; `…` says that something is missing."""
    if width(text) <= limit:
        return text
    kept, used = "", 0
    for sign, cells in pieces(text):
        if used + cells > limit - 1:
            break
        kept, used = kept + sign, used + cells
    return kept.rstrip() + UNKNOWN if limit > 0 else ""


def clean(text: str) -> str:
    """The text on one line, with nothing in it that could move a cursor or turn the writing around."""
    joined = " ".join(str(text).split())
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in joined if char not in _JOINERS)
    return f"◌{shown}" if shown and not _cells(shown[0]) else shown  # a mark needs something to stand on


def seconds(number: float) -> str:
    return f"{number:g} s"


def condition(function: Any) -> str:
    """What to call a condition: the function's name, a lambda's own text, or `…`."""
    while isinstance(function, partial):
        function = function.func
    name: Any = getattr(function, "__name__", None)
    if name == "<lambda>" and isinstance(function, FunctionType):
        return _lambda_text(function.__code__) or UNKNOWN
    if name in ("until", "condition"):  # a function made for this very place: its name says nothing
        return UNKNOWN
    return clean(name if isinstance(name, str) else type(function).__name__)


def _lambda_text(code: CodeType) -> str | None:
    """The body of a lambda, as its author wrote it; None if its source is not there or has changed since."""
    try:
        text = _source_of(code)
        if not _says_the_same(text, code):
            return None
        return clean(ast.unparse(ast.parse(f"({text})", mode="eval")) if "\n" in text else text)
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError, UnicodeError):
        return None


def _source_of(code: CodeType) -> str:
    """What stands in the file from the first to the last thing that the code does."""
    spans = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column
    ]
    (line, column), (end_line, end_column) = min(start for start, _ in spans), max(end for _, end in spans)
    lines = [text.encode() for text in linecache.getlines(code.co_filename)[line - 1 : end_line]]
    lines[-1] = lines[-1][:end_column]  # columns count bytes
    lines[0] = lines[0][column:]
    return b"".join(lines).decode()


def _says_the_same(text: str, code: CodeType) -> bool:
    """Whether this text compiles to that code: a file may have changed since it was loaded."""
    around = f"lambda {', '.join(code.co_freevars)}: " if code.co_freevars else ""
    names = ", ".join(code.co_varnames[: code.co_argcount])
    made = compile(f"{around}lambda {names}: (\n{text}\n)", "", "eval")
    for _ in range(2 if around else 1):
        made = next(const for const in made.co_consts if isinstance(const, CodeType))
    return made.co_code == code.co_code and made.co_names == code.co_names and _plain(made) == _plain(code)


def _plain(code: CodeType) -> list[Any]:
    """The constants that can be compared: a code object knows its file."""
    return [const for const in code.co_consts if not isinstance(const, CodeType) and const != "<lambda>"]
