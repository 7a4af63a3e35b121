"""Highlight code as rows.

Pygments is imported at the first fence. Only the first lines of a very long fence are
highlighted. A fence that is still growing is highlighted in chunks, so that a frame
costs one chunk.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from rich.style import Style

from atomic.tui.text import harmless
from atomic.tui.transcript.palette import Palette
from atomic.tui.transcript.rows import Styled

_COLOURED = 400  # lines
_WIDE = 2_000  # characters: longer lines are not highlighted
CHUNK = 24  # lines
_NAMES = {"sh": "bash", "shell": "bash", "console": "bash", "js": "javascript", "ts": "typescript", "py": "python"}


def coloured(code: str, language: str, palette: Palette, *, is_open: bool) -> list[list[Styled]]:
    """Return the lines of the code as runs."""
    lines = harmless(code).split("\n")
    lexer = _lexer(language)
    if lexer is None or any(len(line) > _WIDE for line in lines):
        return [[(line, palette.code)] for line in lines]
    rest = [[(line, palette.code)] for line in lines[_COLOURED:]]
    lines = lines[:_COLOURED]
    if not is_open:
        return [*_chunk(language, "\n".join(lines), palette), *rest]
    chunks = ["\n".join(lines[at : at + CHUNK]) for at in range(0, len(lines), CHUNK)]
    return [line for chunk in chunks for line in _chunk(language, chunk, palette)] + rest


@lru_cache(maxsize=64)
def _chunk(language: str, code: str, palette: Palette) -> list[list[Styled]]:
    lexer = _lexer(language)
    assert lexer is not None
    lines: list[list[Styled]] = [[]]
    for kind, text in lexer.get_tokens(code):
        style = _style(kind, palette)
        first, *others = text.split("\n")
        if first:
            lines[-1].append((first, style))
        for other in others:
            lines.append([(other, style)] if other else [])
    wanted = code.count("\n") + 1
    return lines[:wanted] + [[] for _ in range(wanted - len(lines))]


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    """Return the lexer of a language, or None."""
    name = language.strip().split(maxsplit=1)[0].lower() if language.strip() else ""
    if not name:
        return None
    from pygments.lexers import get_lexer_by_name  # pyright: ignore[reportUnknownVariableType]  # untyped options
    from pygments.util import ClassNotFound

    try:
        return get_lexer_by_name(_NAMES.get(name, name), stripnl=False)  # keeps the newline that ends a comment
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def _style(kind: Any, palette: Palette) -> Style:
    from pygments.token import Token

    table = (
        (Token.Comment, palette.comment),
        (Token.Keyword, palette.keyword),
        (Token.Operator.Word, palette.keyword),
        (Token.Literal.String, palette.string),
        (Token.Literal.Number, palette.number),
        (Token.Name.Function, palette.name),
        (Token.Name.Class, palette.name),
        (Token.Name.Decorator, palette.name),
        (Token.Name.Tag, palette.keyword),
        (Token.Name.Attribute, palette.name),
        (Token.Name.Builtin, palette.keyword),
        (Token.Generic.Inserted, palette.string),
        (Token.Generic.Deleted, palette.deleted),
        (Token.Generic.Heading, palette.name),
    )
    return next((style for token, style in table if kind in token), palette.code)
