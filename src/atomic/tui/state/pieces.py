"""Cut an answer into its top-level parts while it comes: only the last one can still grow.

A part is a paragraph, a heading, a fence, a table, a quote or a list. Where a part ends is decided by the first
characters of a line, so at most a few characters wait for their turn, never a line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

_ENOUGH = 8  # characters that tell what a line begins
_LONG_LIST = 1500  # a list of this length is cut between its items: its tail alone is painted anew
_FENCE = re.compile(r" *(`{3,}(?=[^`]*$)|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?:\s|$)")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,6}[.)])(?:\s|$)")


class Piece(NamedTuple):
    """Text to add: to the part that is open, or (`begins`) to a new one, below an empty line if `gap`."""

    text: str
    begins: bool = False
    gap: bool = False


@dataclass(slots=True)
class Pieces:
    """Where in the text we are."""

    _line: str = ""  # the beginning of the line that is coming
    _decided: bool = False  # what it begins is known and told
    _blanks: int = 0
    _kind: str = ""  # of the open part: "", text, list, fence, heading; fence and heading end by themselves
    _size: int = 0
    _fence: str = ""  # the signs that opened one

    def feed(self, text: str) -> list[Piece]:
        """Take some text; what can be shown of it."""
        if self._decided and "\n" not in text:  # nearly always
            self._line += text if len(self._line) < 200 else ""
            self._size += len(text)
            return [Piece(text)]
        pieces: list[Piece] = []
        for part in _lines(text):
            self._take(part, pieces)
        return pieces

    def flush(self) -> list[Piece]:
        """No more comes: show what waits."""
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
            if ends or _is_telling(self._line.lstrip()):
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
            self._kind, self._size = kind, 0
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
        line = line[: len(line) - len(line.lstrip(" ")) + _ENOUGH]  # the same, however much of it has come
        if _HEADING.match(line):
            return "heading"
        if _FENCE.match(line.rstrip("\n")) and not line.startswith("    "):
            return "fence"
        return "list" if _ITEM.match(line) else "text"

    def _end_line(self) -> None:
        line = self._line.rstrip("\n")
        self._line, self._decided = "", False
        found = _FENCE.match(line)
        if self._fence:
            if found and found[1].startswith(self._fence) and not line[found.end() :].strip():
                self._fence = ""
        elif found and (self._kind != "text" or not line.startswith("    ")):
            self._fence = found[1]
            self._kind = "list" if self._kind == "list" else "fence"


def _is_telling(start: str) -> bool:
    return start != "" and (start[0] not in "`~#-*+0123456789" or len(start) >= _ENOUGH)


def _lines(text: str) -> list[str]:
    """Lines that end with a newline alone: other signs that Python takes for ends are part of the text."""
    return [part for part in re.split(r"(?<=\n)", text) if part]
