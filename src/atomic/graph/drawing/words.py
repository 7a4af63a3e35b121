"""Text in drawings: its width, how it is cut, and the names of conditions.

A drawing is made of cells, as on a terminal: a wide character takes two, a combining
mark none.
"""

from __future__ import annotations

import ast
import linecache
from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Any

from atomic.base.text import char_width, width
from atomic.graph.engine.author_functions import OfItem

UNKNOWN = "…"
# Terminals disagree about their width, and the text is readable without them.
_JOINERS = frozenset("\u200c\u200d\ufe0e\ufe0f")


def pieces(text: str) -> Iterator[tuple[str, int]]:
    """Yield the text character by character, each with its marks and its width."""
    sign = ""
    cells = 0
    for char in text:
        if cells and char_width(char):
            yield sign, cells
            sign = ""
            cells = 0
        sign += char
        cells += char_width(char)
    if sign:
        yield sign, cells


def cut(text: str, limit: int) -> str:
    """Return the text in at most `limit` cells; `…` shows that something is missing."""
    if width(text) <= limit:
        return text
    kept = ""
    used = 0
    for sign, cells in pieces(text):
        if used + cells > limit - 1:
            break
        kept, used = kept + sign, used + cells
    return kept.rstrip() + UNKNOWN if limit > 0 else ""


def clean(text: str) -> str:
    """Return the text on one line, without characters that move a cursor or change
    direction.
    """
    joined = " ".join(str(text).split())
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in joined if char not in _JOINERS)
    return f"◌{shown}" if shown and not char_width(shown[0]) else shown  # a mark needs a base character


def seconds(number: float) -> str:
    return f"{number:g} s"


def condition(function: Any) -> str:
    """Return the name of a condition: the function's name, a lambda's text, or `…`."""
    if isinstance(function, OfItem):
        function = function.function
    while isinstance(function, partial):
        function = function.func
    name: Any = getattr(function, "__name__", None)
    if name == "<lambda>" and isinstance(function, FunctionType):
        return _lambda_text(function.__code__) or UNKNOWN
    if name in ("until", "condition"):  # a generic name explains nothing
        return UNKNOWN
    return clean(name if isinstance(name, str) else type(function).__name__)


def _lambda_text(code: CodeType) -> str | None:
    """Return the body of a lambda as written, or None if its source is missing or
    changed.
    """
    try:
        text = _source_of(code)
        if not _says_the_same(text, code):
            return None
        return clean(ast.unparse(ast.parse(f"({text})", mode="eval")) if "\n" in text else text)
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError, UnicodeError):
        return None


def _source_of(code: CodeType) -> str:
    """Return the source between the first and the last position of the code."""
    spans = [
        ((line, column), (end_line, end_column))
        for line, end_line, column, end_column in code.co_positions()
        if line is not None and end_line is not None and column is not None and end_column
    ]
    line, column = min(start for start, _ in spans)
    end_line, end_column = max(end for _, end in spans)
    lines = [text.encode() for text in linecache.getlines(code.co_filename)[line - 1 : end_line]]
    lines[-1] = lines[-1][:end_column]  # columns count bytes
    lines[0] = lines[0][column:]
    return b"".join(lines).decode()


def _says_the_same(text: str, code: CodeType) -> bool:
    """Return whether this text compiles to that code: the file may have changed."""
    around = f"lambda {', '.join(code.co_freevars)}: " if code.co_freevars else ""
    names = ", ".join(code.co_varnames[: code.co_argcount])
    made = compile(f"{around}lambda {names}: (\n{text}\n)", "", "eval")
    for _ in range(2 if around else 1):
        made = next(const for const in made.co_consts if isinstance(const, CodeType))
    return made.co_code == code.co_code and made.co_names == code.co_names and _plain(made) == _plain(code)


def _plain(code: CodeType) -> list[Any]:
    """Return the constants that can be compared: a code object knows its file."""
    return [const for const in code.co_consts if not isinstance(const, CodeType) and const != "<lambda>"]
