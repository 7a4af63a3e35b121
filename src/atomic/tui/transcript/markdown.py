"""Render Markdown as rows from the tokens of markdown-it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

from rich.segment import Segment
from rich.style import Style

from atomic.tui.text import cells, harmless
from atomic.tui.transcript.code import CHUNK, coloured
from atomic.tui.transcript.palette import Palette
from atomic.tui.transcript.rows import Row, Styled, chop, length, wrap

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LINK = "link"  # meta key of a segment that can be opened
_URL = re.compile(r"https?://[^\s<>\"'`\]\)]*[^\s<>\"'`\]\).,;:!?]")
_OPENABLE = ("http://", "https://", "mailto:")
_BULLETS = "•◦▪"
_BOLD = Style(bold=True)
_ITALIC = Style(italic=True)
_STRIKE = Style(strike=True)
_LONG_URL = 60
_DEEPEST = 30  # nested lists and quotes
_WRAPPED = 60  # columns: a longer source line was wrapped by its author
_MOST = 1_000  # lines of a fence; copying returns all
_COLUMN_GAP = 3  # " │ "
_LEAST_COLUMN = 4  # cells of a column
_LAST = 150  # visible lines of a long fence while it grows


def markdown_rows(text: str, width: int, palette: Palette, *, is_open: bool = False) -> list[Row]:
    """Render one part of an answer."""
    tokens = _parser().parse(text)
    if any(token.level + 1 >= _DEEPEST for token in tokens if token.nesting == 1):
        return wrap([(harmless(text), palette.text)], width)  # deeper content has no tokens, so show the source
    page = _Page(tokens, palette, is_open)
    return page.rows(len(tokens), width)


@cache
def _parser() -> MarkdownIt:
    """Return the parser. Imported late, because the first frame needs no Markdown.

    Raw HTML is shown as text.
    """
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST}).enable(["table", "strikethrough"])


class _Page:
    """Walks over the tokens once."""

    def __init__(self, tokens: list[Token], palette: Palette, is_open: bool) -> None:
        self.tokens = tokens
        self._palette = palette
        self._is_open = is_open
        self._at = 0
        self._depth = 0  # of lists

    def rows(self, end: int, width: int, *, is_tight: bool = False) -> list[Row]:
        """Render the blocks up to a token, separated by empty rows."""
        rows: list[Row] = []
        while self._at < end:
            block = self._block(max(1, width))
            if rows and block and not is_tight:
                rows.append([])
            rows += block
        return rows

    def _block(self, width: int) -> list[Row]:
        token = self.tokens[self._at]
        self._at += 1
        match token.type:
            case "heading_open":
                return self._heading(token, width)
            case "inline":
                return wrap(self._inline(token.children or (), self._palette.text), width)
            case "bullet_list_open" | "ordered_list_open":
                return self._list(token, width)
            case "blockquote_open":
                inner = self.rows(self._end_of(token), width - 2)
                return [[Segment("▌ ", self._palette.muted), *row] for row in inner]
            case "fence" | "code_block":
                return self._code(token, width)
            case "table_open":
                return table_rows(self._table(self._end_of(token)), width, self._palette)
            case "hr":
                return [[Segment("─" * width, self._palette.muted)]]
            case _:
                return []  # beginning or end of a paragraph

    def _end_of(self, token: Token) -> int:
        """Return the index of the token that ends the block."""
        at = self._at
        while self.tokens[at].level > token.level:
            at += 1
        return at

    def _heading(self, token: Token, width: int) -> list[Row]:
        style = self._palette.primary + _BOLD
        if token.tag == "h1":
            style += Style(underline=True)
        return wrap(self._next_inline(style), width)

    def _list(self, token: Token, width: int) -> list[Row]:
        end = self._end_of(token)
        number = int(token.attrGet("start") or 1) if token.type == "ordered_list_open" else None
        bullet = _BULLETS[min(self._depth, len(_BULLETS) - 1)]
        level = self.tokens[self._at].level + 1
        paragraphs = [token for token in self.tokens[self._at : end] if token.type == "paragraph_open"]
        is_tight = all(paragraph.hidden for paragraph in paragraphs if paragraph.level == level)
        rows: list[Row] = []
        self._depth += 1
        while self._at < end:
            item = self.tokens[self._at]
            self._at += 1
            if item.type != "list_item_open":
                continue
            sign = f"{bullet} " if number is None else f"{number}. "
            number = None if number is None else number + 1
            inner = self.rows(self._end_of(item), width - len(sign), is_tight=is_tight) or [[]]
            if rows and not is_tight:
                rows.append([])
            rows.append([Segment(sign, self._palette.primary), *_checked(inner[0])])
            space = Segment(" " * len(sign), self._palette.text)
            rows += [[space, *row] if row else row for row in inner[1:]]
        self._depth -= 1
        return rows

    def _code(self, token: Token, width: int) -> list[Row]:
        palette = self._palette
        lines = token.content.removesuffix("\n").split("\n")
        above = below = 0
        if self._is_open and len(lines) > 2 * _LAST:
            above = (len(lines) - _LAST) // CHUNK * CHUNK
        elif len(lines) > _MOST:
            below = len(lines) - _MOST
        code = "\n".join(lines[above : len(lines) - below])
        told = [[(f"… {above + below:,} lines", palette.comment)]] if above or below else []
        shown = coloured(code, token.info, palette, is_open=self._is_open)
        edge = Segment(" ", palette.code)
        rows: list[Row] = []
        for line in [*told, *shown] if above else [*shown, *told]:
            for row in chop(line, width - 2):
                space = width - 1 - length(row)
                rows.append([edge, *row, Segment(" " * max(0, space), palette.code)])
        return rows

    def _table(self, end: int) -> Table:
        table = Table()
        while self._at < end:
            token = self.tokens[self._at]
            self._at += 1
            if token.type == "tr_open" and table.head:
                table.body.append([])
            elif token.type == "th_open":
                table.head.append(self._next_inline(self._palette.text + _BOLD))
                table.alignments.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
            elif token.type == "td_open":
                table.body[-1].append(self._next_inline(self._palette.text))
        return table

    # inline

    def _next_inline(self, style: Style) -> list[Styled]:
        inline = self.tokens[self._at]
        self._at += 1
        return self._inline(inline.children or (), style)

    def _inline(self, tokens: Sequence[Token], base: Style) -> list[Styled]:
        runs: list[Styled] = []
        styles = [base]
        link = ""
        for token in tokens:
            match token.type:
                case "text":
                    self._text(token.content, styles[-1], runs, is_link=bool(link))
                case "code_inline":
                    runs.append((harmless(token.content), self._palette.inline_code))
                case "softbreak" | "hardbreak":
                    runs.append((_break(runs) if token.type == "softbreak" else "\n", styles[-1]))
                case "strong_open":
                    styles.append(styles[-1] + _BOLD)
                case "em_open":
                    styles.append(styles[-1] + _ITALIC)
                case "s_open":
                    styles.append(styles[-1] + _STRIKE)
                case "link_open":
                    link = str(token.attrGet("href") or "")
                    styles.append(styles[-1] + _link_style(link))
                    runs.append(("", styles[-1]))
                case "link_close":
                    styles.pop()
                    self._where(link, runs)
                    link = ""
                case "strong_close" | "em_close" | "s_close":
                    styles.pop()
                case "image":
                    runs.append((harmless(f"[image: {token.content}]"), self._palette.muted))
                case _:
                    runs.append((harmless(token.content), styles[-1]))
        return runs

    def _text(self, text: str, style: Style, runs: list[Styled], *, is_link: bool) -> None:
        """Add text. Addresses in it become links."""
        if is_link or "://" not in text:
            runs.append((harmless(text), style))
            return
        at = 0
        for found in _URL.finditer(text):
            runs.append((harmless(text[at : found.start()]), style))
            runs.append((harmless(found[0]), style + _link_style(found[0])))
            at = found.end()
        runs.append((harmless(text[at:]), style))

    def _where(self, link: str, runs: list[Styled]) -> None:
        """Add the target of a link if its text does not show it: a terminal has no
        hover.
        """
        shown = "".join(text for text, _ in runs)
        if link and not shown.endswith(link):
            short = link if len(link) <= _LONG_URL else f"{link[:_LONG_URL]}…"
            runs.append((harmless(f" ({short})"), self._palette.muted))


def _break(runs: Sequence[Styled]) -> str:
    """Return the replacement of a line break.

    A long line was wrapped by its author and continues. A short one ends on purpose.
    """
    line = ""
    for text, _ in reversed(runs):
        line = text + line
        if "\n" in text or len(line) >= _WRAPPED:
            break
    line = line.rpartition("\n")[2]
    if cells(line) < _WRAPPED:
        return "\n"
    return "" if cells(line[-1:]) > 1 else " "


def _link_style(url: str) -> Style:
    """Return an underlined style that a click opens if the address is safe.

    It is not a hyperlink of the terminal.
    """
    meta: dict[str, Any] = {LINK: url} if url.lower().startswith(_OPENABLE) else {}
    return Style(underline=True, meta=meta) if meta else Style(underline=True)


def _checked(row: Row) -> Row:
    """Replace `[x]` by a box."""
    if not row:
        return row
    text, style, _ = row[0]
    for mark, box in (("[ ] ", "☐ "), ("[x] ", "☑ "), ("[X] ", "☑ ")):
        if text.startswith(mark):
            return [Segment(box + text[len(mark) :], style), *row[1:]]
    return row


@dataclass
class Table:
    """Cells as runs, and the alignment of each column."""

    head: list[list[Styled]] = field(default_factory=list[list[Styled]])
    body: list[list[list[Styled]]] = field(default_factory=list[list[list[Styled]]])
    alignments: list[str] = field(default_factory=list[str])


def table_rows(table: Table, width: int, palette: Palette) -> list[Row]:
    """Render a table."""
    columns = len(table.head)
    if columns == 0:
        return []
    if columns * (_LEAST_COLUMN + _COLUMN_GAP) - _COLUMN_GAP > width:
        return _records(table, width, palette)
    widths = _widths([table.head, *table.body], width - _COLUMN_GAP * (columns - 1), columns)
    rows = _table_line(table.head, widths, table.alignments, palette)
    rule = "─┼─".join("─" * size for size in widths)
    rows.append([Segment(rule, palette.muted)])
    for line in table.body:
        rows += _table_line(line, widths, table.alignments, palette)
    return rows


def _widths(lines: Sequence[Sequence[Sequence[Styled]]], room: int, columns: int) -> list[int]:
    """Return the column widths. If they do not fit, the widest columns shrink first."""
    wanted = [1] * columns
    for line in lines:
        for at, cell in enumerate(line[:columns]):
            text = "".join(text for text, _ in cell)
            wanted[at] = max(wanted[at], max(map(cells, text.split("\n"))))
    limit = max(wanted)
    while sum(min(size, limit) for size in wanted) > room and limit > _LEAST_COLUMN:
        limit -= 1
    widths = [min(size, limit) for size in wanted]
    for at in sorted(range(columns), key=lambda at: wanted[at]):  # distribute the remaining cells
        more = min(room - sum(widths), wanted[at] - widths[at])
        widths[at] += max(0, more)
    return widths


def _table_line(
    line: Sequence[Sequence[Styled]], widths: list[int], alignments: list[str], palette: Palette
) -> list[Row]:
    boxes = [wrap(line[at] if at < len(line) else [], size) for at, size in enumerate(widths)]
    rows: list[Row] = []
    for level in range(max(map(len, boxes))):
        row: Row = []
        for at, size in enumerate(widths):
            if at:
                row.append(Segment(" │ ", palette.muted))
            cell = boxes[at][level] if level < len(boxes[at]) else []
            free = max(0, size - length(cell))
            left = {"right": free, "center": free // 2}.get(alignments[at], 0)
            parts = [Segment(" " * left, palette.text), *cell, Segment(" " * (free - left), palette.text)]
            row += [part for part in parts if part.text]
        rows.append(row)
    return rows


def _records(table: Table, width: int, palette: Palette) -> list[Row]:
    """Render each line as a list of names and values, if there are too many columns."""
    rows: list[Row] = []
    for number, line in enumerate(table.body):
        if number:
            rows.append([Segment("─" * min(width, 12), palette.muted)])
        for name, cell in zip(table.head, line, strict=False):
            rows += wrap([*name, (": ", palette.muted), *cell], width)
    return rows
