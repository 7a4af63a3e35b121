"""Split a streamed answer into top-level parts, of which only the last can grow.

A part is a paragraph, a heading, a fence, a table, a quote or a list. The first
characters of a line decide where a part ends, so only a few characters are held back,
never a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_ENOUGH = 8  # characters that decide how a line begins
# A list of this length is split between its items, so that only its end is repainted.
_LONG_LIST = 1500
_FENCE = re.compile(r" *(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,6}[.)])(?:\s|$)")


class Piece(NamedTuple):
    """Text to append: to the open part, or with `begins` to a new one after an optional
    `gap`.
    """

    text: str
    begins: bool = False
    gap: bool = False


@dataclass(slots=True)
class Pieces:
    """Position in the streamed text."""

    _line: str = ""  # the beginning of the current line
    _decided: bool = False  # the kind of the current line is known
    _blanks: int = 0
    _kind: str = ""  # of the open part: "", text, list, fence, heading; the last two end by themselves
    _size: int = 0
    _fence: str = ""  # the characters that opened the fence

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that can be shown after this text."""
        if self._decided and "\n" not in text:  # nearly always
            self._line += text if len(self._line) < 200 else ""
            self._size += len(text)
            return [Piece(text)]
        pieces: list[Piece] = []
        # Only at newlines: other line separators of Python are part of the text.
        for part in filter(None, re.split(r"(?<=\n)", text)):
            self._take(part, pieces)
        return pieces

    def flush(self) -> list[Piece]:
        """Return the text that was held back, at the end of the answer."""
        pieces: list[Piece] = []
        if self._line and not self._decided:
            self._decide(self._line, pieces)
        return pieces

    def _take(self, part: str, pieces: list[Piece]) -> None:
        ends = part.endswith("\n")
        if self._decided:
            self._line += part
            self._size += len(part)
            pieces.append(Piece(part))
        else:
            self._line += part
            start = self._line.lstrip()
            if ends or (start and (start[0] not in "`~#-*+0123456789" or len(start) >= _ENOUGH)):
                self._decide(self._line, pieces)
        if ends:
            self._end_line()

    def _decide(self, line: str, pieces: list[Piece]) -> None:
        self._decided = True
        if not self._fence and not line.strip():
            self._blanks += 1
            return
        kind = self._kind_of(line)
        if not self._fence and self._is_border(line, kind):
            pieces.append(Piece(line, True, not (kind == self._kind == "list" and not self._blanks)))
            self._kind = kind
            self._size = 0
        else:
            pieces.append(Piece("\n" * self._blanks + line))
        self._size += len(line)
        self._blanks = 0

    def _is_border(self, line: str, kind: str) -> bool:
        if not self._kind or self._kind in {"heading", "fence"}:
            return True
        if self._kind == "list":
            if line.startswith(("  ", "\t")):
                return False
            return bool(self._blanks) or kind in {"heading", "fence"} or (kind == "list" and self._size > _LONG_LIST)
        return bool(self._blanks) or kind in {"heading", "fence"}

    def _kind_of(self, line: str) -> str:
        line = line[: len(line) - len(line.lstrip(" ")) + _ENOUGH]  # independent of how much of it has arrived
        if _HEADING.match(line):
            return "heading"
        if _FENCE.match(line.rstrip("\n")) and not line.startswith("    "):
            return "fence"
        return "list" if _ITEM.match(line) else "text"

    def _end_line(self) -> None:
        line = self._line.rstrip("\n")
        self._line = ""
        self._decided = False
        found = _FENCE.match(line)
        if self._fence:
            if found and found[1].startswith(self._fence) and not line[found.end() :].strip():
                self._fence = ""
        elif found and (self._kind != "text" or not line.startswith("    ")):
            self._fence = found[1]
            self._kind = "list" if self._kind == "list" else "fence"
