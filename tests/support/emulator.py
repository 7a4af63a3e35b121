"""A terminal emulator: keeps the text and the modes, and answers queries.

It ignores colours and is fast enough to keep up with megabytes of output.
"""

from __future__ import annotations

import re
import unicodedata
from codecs import getincrementaldecoder
from functools import lru_cache

_TOKEN = re.compile(
    r"\x1b\[([<-?]*)([0-9;:]*)([ -/]*)([@-~])"  # CSI
    r"|\x1b\[[ -?]*(?=[\x18\x1a\x1b])"  # an unfinished CSI before another sequence
    r"|\x1b\]([^\x07\x1b]*)(?:\x07|\x1b\\)"  # OSC
    r"|\x1b[P_^X]([^\x1b]*)\x1b\\"  # DCS, APC
    r"|\x1b[()*+].|\x1b([^\[\]P_^X()*+])"  # the others
    r"|([\x00-\x1a\x1c-\x1f\x7f])"
    r"|([^\x00-\x1f\x7f]+)",
    re.DOTALL,
)
_ANSWERED_MODES = (1004, 1006, 2004, 2026)


class Emulator:
    """The screen of a terminal. `answers` collects its replies to queries."""

    def __init__(self, columns: int, rows: int, background: str = "1e1e/1e1e/1e1e") -> None:
        self.columns = columns
        self.rows = rows
        self.background = background
        self.modes: set[int] = {7, 25}
        # The stack of kitty's keyboard modes, on the alternate screen.
        self.keyboard: list[int] = []
        # The level of xterm's modifyOtherKeys.
        self.other_keys = 0
        self.title = ""
        self.clipboard = ""
        self.links = self.clears = self.bells = self.frames = 0
        self.attributes_are_plain = True
        self.answers = b""
        self._main = _empty(columns, rows)
        self._x = self._y = 0
        self._saved = (0, 0)
        self._rest = ""
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._cells = self._main

    @property
    def text(self) -> str:
        return "\n".join("".join(row) for row in self._cells)

    @property
    def lines(self) -> list[str]:
        return ["".join(row).rstrip() for row in self._cells]

    @property
    def cursor(self) -> tuple[int, int]:
        """The row and the column of the cursor, from 0."""
        return self._y, self._x

    def has(self, words: str) -> bool:
        return any(words in "".join(row) for row in reversed(self._cells))

    def resize(self, columns: int, rows: int) -> None:
        self.columns = columns
        self.rows = rows
        is_other = 1049 in self.modes
        self._main = _fitted(self._main, columns, rows)
        self._cells = _fitted(self._cells, columns, rows) if is_other else self._main
        self._x, self._y = min(self._x, columns - 1), min(self._y, rows - 1)

    def feed(self, data: bytes) -> None:
        text = self._rest + self._decode(data)
        at = 0
        while (match := _TOKEN.match(text, at)) is not None:
            at = match.end()
            self._take(match)
        self._rest = text[at:]

    def _take(self, match: re.Match[str]) -> None:
        private, numbers, between, final, osc, _, other, control, plain = match.groups()
        if plain is not None:
            self._print(plain)
        elif control is not None:
            self._control(control)
        elif final is not None:
            self._csi(private, numbers, between, final)
        elif osc is not None:
            self._osc(osc)
        elif other is not None:
            self._escape(other)

    def _print(self, text: str) -> None:
        if text.isascii():
            self._print_narrow(text)
            return
        for sign in text:
            width = _width(sign)
            if width == 0:
                continue
            if self._x + width > self.columns:
                self._wrap()
            row = self._cells[self._y]
            row[self._x] = sign
            if width == 2 and self._x + 1 < self.columns:
                row[self._x + 1] = ""
            self._x += width

    def _print_narrow(self, text: str) -> None:
        while text:
            if self._x >= self.columns:
                self._wrap()
            piece = text[: self.columns - self._x]
            self._cells[self._y][self._x : self._x + len(piece)] = piece
            self._x += len(piece)
            text = text[len(piece) :]

    def _wrap(self) -> None:
        if 7 in self.modes:
            self._x = 0
            self._down()
        else:
            self._x = self.columns - 1

    def _down(self) -> None:
        if self._y < self.rows - 1:
            self._y += 1
            return
        del self._cells[0]
        self._cells.append([" "] * self.columns)

    def _control(self, sign: str) -> None:
        if sign == "\n":
            self._down()
        elif sign == "\r":
            self._x = 0
        elif sign == "\b":
            self._x = max(0, self._x - 1)
        elif sign == "\t":
            self._x = min(self.columns - 1, self._x // 8 * 8 + 8)
        elif sign == "\a":
            self.bells += 1

    def _escape(self, sign: str) -> None:
        if sign == "7":
            self._saved = (self._x, self._y)
        elif sign == "8":
            self._x, self._y = self._saved
        elif sign == "c":
            self.clears += 1

    def _osc(self, text: str) -> None:
        number, _, rest = text.partition(";")
        if rest == "?" and number in ("10", "11"):
            colour = self.background if number == "11" else "d0d0/d0d0/d0d0"
            self.answers += f"\x1b]{number};rgb:{colour}\x1b\\".encode() if colour else b""
        elif number in ("0", "2"):
            self.title = rest
        elif number == "52":
            self.clipboard = rest
        elif number == "8":
            self.links += bool(rest.partition(";")[2])

    def _csi(self, private: str, numbers: str, between: str, final: str) -> None:
        values = [int(number.partition(":")[0] or 0) for number in numbers.split(";")] if numbers else []
        first = values[0] if values else 0
        if private == "?" and final in "hl":
            for mode in values:
                self._mode(mode, final == "h")
        elif final == "u" and private:
            self._kitty(private, first)
        elif final == "m" and private == ">" and first == 4:
            self.other_keys = values[1] if len(values) > 1 else 0
        elif final == "m" and not private:
            self.attributes_are_plain = first == 0 and len(values) < 2
        elif final in "cnpqt":
            self._answer_query(private, first, between, final)
        elif not private:
            self._edit(final, values, first)

    def _mode(self, mode: int, is_on: bool) -> None:
        self.frames += mode == 2026 and not is_on
        if mode == 1049 and is_on != (1049 in self.modes):
            self._cells = _empty(self.columns, self.rows) if is_on else self._main
            self._saved, (self._x, self._y) = (self._x, self._y), (self._x, self._y) if is_on else self._saved
        (self.modes.add if is_on else self.modes.discard)(mode)

    def _kitty(self, private: str, flags: int) -> None:
        if private == ">":
            self.keyboard.append(flags)
        elif private == "<":
            del self.keyboard[-max(1, flags) :]

    def _answer_query(self, private: str, first: int, between: str, final: str) -> None:
        if final == "c" and not private:
            self.answers += b"\x1b[?62;22c"
        elif final == "c" and private == ">":
            self.answers += b"\x1b[>41;354;0c"
        elif final == "n" and first in (5, 6):
            self.answers += b"\x1b[0n" if first == 5 else b"\x1b[%d;%dR" % (self._y + 1, self._x + 1)
        elif final == "p" and between == "$":
            self.answers += b"\x1b[?%d;%d$y" % (first, 2 if first in _ANSWERED_MODES else 0)
        elif final == "q" and private == ">":
            self.answers += b"\x1bP>|test(1)\x1b\\"

    def _edit(self, final: str, values: list[int], first: int) -> None:
        count = max(1, first)
        row = self._cells[self._y]
        if final in "Hf":
            column = values[1] if len(values) > 1 else 1
            self._y = _within(first - 1, self.rows)
            self._x = _within(column - 1, self.columns)
        elif final in "ABCD":
            self._y = _within(self._y + {"A": -count, "B": count}.get(final, 0), self.rows)
            self._x = _within(self._x + {"C": count, "D": -count}.get(final, 0), self.columns)
        elif final == "G":
            self._x = _within(count - 1, self.columns)
        elif final == "d":
            self._y = _within(count - 1, self.rows)
        elif final == "K":
            begin, end = {0: (self._x, self.columns), 1: (0, self._x + 1)}.get(first, (0, self.columns))
            row[begin:end] = " " * (end - begin)
        elif final == "X":
            end = min(self.columns, self._x + count)
            row[self._x : end] = " " * (end - self._x)
        elif final == "J":
            self._erase(first)

    def _erase(self, what: int) -> None:
        self.clears += what in (2, 3)
        erased = {0: range(self._y + 1, self.rows), 1: range(self._y)}
        for y in erased.get(what, range(self.rows)):
            self._cells[y][:] = " " * self.columns
        if what == 0:
            self._cells[self._y][self._x :] = " " * (self.columns - self._x)


def _empty(columns: int, rows: int) -> list[list[str]]:
    return [[" "] * columns for _ in range(rows)]


def _fitted(cells: list[list[str]], columns: int, rows: int) -> list[list[str]]:
    kept = [row[:columns] + [" "] * (columns - len(row)) for row in cells[:rows]]
    return kept + _empty(columns, rows - len(kept))


def _within(value: int, end: int) -> int:
    return max(0, min(end - 1, value))


@lru_cache(4096)
def _width(sign: str) -> int:
    if unicodedata.combining(sign) or unicodedata.category(sign) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(sign) in "WF" else 1
