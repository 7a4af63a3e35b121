"""Render each kind of transcript block as strips."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from atomic.tui.state.model import Block, BlockKind
from atomic.tui.text import cells, clock, fit_text, harmless, one_line
from atomic.tui.transcript.markdown import markdown_rows
from atomic.tui.transcript.palette import Palette
from atomic.tui.transcript.rows import Row, Styled, length, wrap

_KEPT = 2_000  # painted blocks
# Lines of all painted blocks. A strip takes 2 KB and ten objects, which the garbage
# collector visits.
_KEPT_LINES = 1_200
_SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧"
_SHORT = 12  # visible lines of a folded prompt
_LAST = 12  # visible lines of a folded shell output
_MOST = 1_000  # lines of a block
_LONG = 0.02  # seconds to paint a block
_REST = 8  # times that duration until an open block is painted again
_BOLD = Style(bold=True)
_ITALIC = Style(italic=True)
FOLDABLE = frozenset({BlockKind.TOOL, BlockKind.THINKING, BlockKind.SUBAGENT, BlockKind.USER, BlockKind.SHELL})


class Painted(NamedTuple):
    """The lines of a block, the prefix length of each that is not text, and the
    version.
    """

    strips: list[Strip]
    gutters: list[int]
    version: int


class Painter:
    """Paints blocks at a width and caches them."""

    def __init__(self, palette: Palette, width: int) -> None:
        self.palette = palette
        self.width = width  # of a line, in cells
        self._kept: OrderedDict[int, tuple[tuple[int, int], Painted]] = OrderedDict()
        self._lines = 0
        self._rest: dict[int, float] = {}  # when a slow open block may be painted again

    def adapt(self, palette: Palette, width: int) -> bool:
        """Use another palette or width. Return whether it changed."""
        if palette.key == self.palette.key and width == self.width:
            return False
        self.palette = palette
        self.width = width
        self._kept.clear()
        self._lines = 0
        return True

    def paint(self, block: Block, now: float) -> Painted:
        """Return the lines of a block."""
        key = block.version, _tick(block, now)
        kept = self._kept.get(block.id)
        if kept is not None and (kept[0] == key or (block.open and now < self._rest.get(block.id, 0.0))):
            self._kept.move_to_end(block.id)
            return kept[1]
        painted = self._paint(block, now)
        self._lines += len(painted.strips) - (len(kept[1].strips) if kept is not None else 0)
        self._kept[block.id] = key, painted
        self._kept.move_to_end(block.id)
        while len(self._kept) > _KEPT or (self._lines > _KEPT_LINES and len(self._kept) > 1):
            _, (_, old) = self._kept.popitem(last=False)
            self._lines -= len(old.strips)
        return painted

    def _paint(self, block: Block, now: float) -> Painted:
        """Paint a block.

        One that grows and was slow twice is not repainted for a while.
        """
        if block.hidden:
            return Painted([], [], block.version)
        began = time.thread_time()
        page = _Page(block, self.width, self.palette, now)
        _LOOKS[block.kind](page)
        took = time.thread_time() - began
        if block.open and took > _LONG:
            # The first time may include imports.
            self._rest[block.id] = now + took * _REST if block.id in self._rest else 0.0
        elif self._rest:
            self._rest.pop(block.id, None)
        return Painted(page.strips, page.gutters, block.version)


def estimate(block: Block, width: int) -> int:
    """Estimate the number of lines of a block without painting it."""
    if block.hidden:
        return 0
    width = max(10, width - 4 - 2 * block.depth)
    if block.kind in {BlockKind.ANSWER, BlockKind.NOTICE, BlockKind.WARNING, BlockKind.ERROR}:
        text = block.text
        lines = 1 + max(text.count("\n", 0, len(text.rstrip())), len(text) // width)
    elif block.kind in {BlockKind.USER, BlockKind.SHELL}:
        text = block.text or block.output
        lines = text.count("\n") + len(text) // width + 1
        lines = min(lines, _SHORT + 1) if block.folded else lines
    else:
        lines = 1 if block.folded else 1 + block.input.count("\n") + block.output.count("\n")
    return min(lines, _MOST) + block.gap


def plain_text(block: Block) -> str:
    """Return the source of a block, for copying."""
    if block.kind is BlockKind.TOOL:
        return "\n".join(part for part in (f"{block.title} {block.detail}".strip(), block.input, block.output) if part)
    if block.kind is BlockKind.SHELL:
        return f"$ {block.title}\n{block.output}".strip()
    if block.kind is BlockKind.SUBAGENT:
        return f"{block.title}: {block.text}".strip(": ")
    return "\n".join(part for part in (block.text.strip("\n"), block.output) if part)


def seconds(value: float) -> str:
    """Format a duration."""
    return f"{value:.1f} s" if value < 9.95 else clock(value)


def _tick(block: Block, now: float) -> int:
    """Return the whole seconds that a running block shows, which change by themselves."""
    return int(now - block.started) if block.status == "running" else 0


class _Page:
    """Collects the rows of one block after the tree lines of its depth."""

    def __init__(self, block: Block, width: int, palette: Palette, now: float) -> None:
        self.block = block
        self.palette = palette
        self.now = now
        self._width = max(8, width)
        self._tree = " " + "│ " * min(block.depth, max(0, (self._width - 12) // 2))  # aligned with header and prompt
        self.room = self._width - len(self._tree) - 1  # keep a column free next to the scrollbar
        self.strips: list[Strip] = []
        self.gutters: list[int] = []
        if block.gap:
            self._add([], 0, palette.text)

    def put(self, sign: Styled, rows: list[Row], fill: Style | None = None) -> None:
        """Add rows after a sign that is on the first row."""
        size = cells(sign[0])
        blank = Segment(" " * size, fill or self.palette.text)
        first = Segment(sign[0], sign[1]) if sign[0] else None
        for at, row in enumerate(rows):
            lead = first if at == 0 else blank
            self._add([lead, *row] if lead is not None else row, size, fill or self.palette.text)

    def line(self, runs: list[Styled], right: str = "") -> None:
        """Add one line, cut to the width, with text at its right end."""
        right = right if cells(right) * 2 <= self.room else ""  # on a narrow screen the text matters more
        room = self.room - (cells(right) + 2 if right else 0)
        row: Row = []
        for text, style in runs:
            part = fit_text(text, room - length(row))
            if part:
                row.append(Segment(part, style))
            if part != text:
                break
        if right:
            row.append(Segment(" " * (self.room - length(row) - cells(right)), self.palette.text))
            row.append(Segment(right, self.palette.muted))
        self._add(row, 0, self.palette.text)

    def body(self, text: str, style: Style, colour: Callable[[str], Style] | None = None) -> None:
        """Add the lines of an unfolded card."""
        edge = Segment("  │ ", self.palette.muted)
        lines = harmless(text.strip("\n")).split("\n")
        for line in lines[:_MOST]:
            for row in wrap([(line, colour(line) if colour else style)], self.room - 4):
                self._add([edge, *row], 4, self.palette.text)
        if len(lines) > _MOST:
            self._add([edge, Segment(f"… {len(lines) - _MOST:,} more lines", self.palette.muted)], 4, self.palette.text)

    def _add(self, row: Row, gutter: int, fill: Style) -> None:
        row = [Segment(self._tree, self.palette.muted), *row]
        free = self._width - length(row)
        if free > 0:
            row = [*row, Segment(" " * free, fill)]
        self.strips.append(Strip(row, self._width))
        self.gutters.append(len(self._tree) + gutter)


# --- one function for each kind ---


def _user(page: _Page) -> None:
    palette = page.palette
    block = page.block
    text = harmless(block.text.strip("\n"))
    rows = wrap([(text, palette.user)], page.room - 2)
    most = _SHORT if block.folded else _MOST
    if len(rows) > most + 1:
        rows = [*rows[:most], [Segment(f"… {len(rows) - most:,} more lines", palette.comment)]]
    page.put(("› ", palette.user + _BOLD), rows, fill=palette.user)


def _answer(page: _Page) -> None:
    block = page.block
    rows = markdown_rows(block.text.rstrip("\n"), page.room - 2, page.palette, is_open=block.open)
    page.put(("● " if block.lead else "  ", page.palette.primary), rows or [[]])


def _thinking(page: _Page) -> None:
    block = page.block
    palette = page.palette
    style = palette.muted + _ITALIC
    title = "Thinking" if block.open else "Thought"
    time = f" {seconds(block.seconds)}" if block.seconds is not None and block.seconds >= 1 else ""
    first = one_line(block.text[:400])
    words = f"  {first}" if block.folded and first else ""
    page.line([(_arrow(block), palette.muted), (f"{title}{time}", style), (words, style)])
    if not block.folded:
        page.body(block.text, style)


def _tool(page: _Page) -> None:
    block = page.block
    palette = page.palette
    sign, style = _sign(block, palette, page.now)
    name = one_line(block.title)
    detail = one_line(block.detail)
    runs: list[Styled] = [(sign, style), (name, palette.text + _BOLD), ("  " if detail else "", palette.text)]
    page.line([*runs, *_detail(detail, palette)], _right(block, page.now))
    if not block.folded:
        page.body(block.input, palette.text, _diff_style(block, palette)) if block.input.strip() else None
        page.body(block.output, palette.muted) if block.output.strip() else None
    elif block.status == "failed" and block.output.strip():
        last = one_line(block.output.strip().splitlines()[-1])
        page.line([("  │ ", palette.muted), (last, palette.error)])


def _detail(detail: str, palette: Palette) -> list[Styled]:
    """Return the subject of a call, with `+42 -3` in the colours of a diff."""
    about, _, counts = detail.rpartition(" +")
    added, _, removed = counts.partition(" -")
    if not (added.isdigit() and removed.isdigit()):
        return [(detail, palette.muted)]
    return [(about, palette.muted), (f" +{added}", palette.added), (f" -{removed}", palette.removed)]


def _diff_style(block: Block, palette: Palette) -> Callable[[str], Style] | None:
    first = block.input.lstrip()[:1]
    if first not in {"+", "-", "@", "*", ""} and "\n+" not in block.input and "\n-" not in block.input:
        return None
    styles = {"+": palette.added, "-": palette.removed, "@": palette.primary, "*": palette.primary}
    return lambda line: styles.get(line[:1], palette.text)


def _subagent(page: _Page) -> None:
    block = page.block
    palette = page.palette
    sign, style = _sign(block, palette, page.now)
    runs: list[Styled] = [(sign, style), (one_line(block.title), palette.accent + _BOLD)]
    detail = one_line(block.detail)
    if detail:
        runs.append((f"  {detail}", palette.text))
    if block.status == "running" and block.output:
        runs.append((f" · {one_line(block.output)}", palette.muted))
    page.line(runs, " · ".join(part for part in (block.input, _right(block, page.now)) if part))
    if not block.folded and block.text.strip() != block.detail:
        page.body(block.text, palette.muted)
    elif block.folded and block.status == "failed" and block.output:
        page.line([("  │ ", palette.muted), (one_line(block.output), palette.error)])


def _note(sign: str, pick: Callable[[Palette], Style]) -> Callable[[_Page], None]:
    def look(page: _Page) -> None:
        style = pick(page.palette)
        rows = wrap([(harmless(page.block.text.strip("\n")), style)], page.room - 2)
        page.put((sign, style), rows[:_MOST])

    return look


def _notice(page: _Page) -> None:
    """Draw a short notice muted.

    A longer one, such as a list or help, was requested.
    """
    is_long = "\n" in page.block.text.strip("\n")
    _note("  " if is_long else "· ", lambda palette: palette.text if is_long else palette.muted)(page)


def _question(page: _Page) -> None:
    block = page.block
    palette = page.palette
    who = f"{one_line(block.title)}: " if block.title else ""
    style = palette.warning if block.status == "waiting" else palette.text
    runs: list[Styled] = [(who, palette.muted), (harmless(block.text.strip("\n")), style)]
    page.put(("? ", palette.warning + _BOLD), wrap(runs, page.room - 2))
    if block.output:
        page.put(("  → ", palette.success), wrap([(harmless(block.output), palette.text)], page.room - 4))
    elif block.status == "interrupted":
        page.put(("  → ", palette.muted), [[Segment("not answered", palette.muted + _ITALIC)]])


def _node(page: _Page) -> None:
    block = page.block
    palette = page.palette
    sign, style = _sign(block, palette, page.now, done="◆ ")
    detail = f"  {one_line(block.detail)}" if block.detail else ""
    words = one_line(block.text) or one_line(block.title)
    page.line([(sign, style), (words, palette.text), (detail, palette.muted)], _right(block, page.now))
    if block.output:
        page.body(block.output, palette.error)


def _shell(page: _Page) -> None:
    block = page.block
    palette = page.palette
    sign = ("! ", palette.warning + _BOLD) if block.status in {"running", "done"} else ("✗ ", palette.error)
    page.line([sign, (one_line(block.title), palette.text + _BOLD)], _right(block, page.now))
    text = block.output.strip("\n")
    lines = text.split("\n")
    if block.folded and len(lines) > _LAST + 1:
        page.body(f"… {len(lines) - _LAST:,} lines above", palette.muted)
        text = "\n".join(lines[-_LAST:])
    if text:
        page.body(text, palette.text)


def _run(page: _Page) -> None:
    block = page.block
    palette = page.palette
    if block.status == "running" or block.detail:
        sign, style = _sign(block, palette, page.now, done="⚙ ")
        detail = f"  {one_line(block.detail)}" if block.detail else ""
        page.line(
            [(sign, style), (one_line(block.title), palette.primary + _BOLD), (detail, palette.muted)],
            _right(block, page.now),
        )
        return
    sign, style = _END.get(block.status, ("✗ ", "error"))
    runs: list[Styled] = [(f"{sign}{one_line(block.title)} {one_line(block.status)}", getattr(palette, style) + _BOLD)]
    page.line(runs, " · ".join(part for part in (block.input, _right(block, page.now)) if part))
    if block.text:
        page.put(("  ", palette.text), wrap([(harmless(block.text), palette.text)], page.room - 2))
    if block.output:
        page.put(
            ("  ", palette.text),
            wrap([("Resume with: ", palette.muted), (harmless(block.output), palette.accent)], page.room - 2),
        )
    if block.actions:
        actions = ("  ".join(block.actions), palette.accent)
        page.put(("  ", palette.text), wrap([("Next: ", palette.muted), actions], page.room - 2))


_END = {
    "completed": ("✓ ", "success"),
    "done": ("✓ ", "success"),
    "paused": ("‖ ", "warning"),
    "waiting": ("‖ ", "warning"),
    "interrupted": ("‖ ", "warning"),
    "limit": ("‖ ", "warning"),
}


def _arrow(block: Block) -> str:
    return "▸ " if block.folded else "▾ "


def _sign(block: Block, palette: Palette, now: float, done: str = "") -> tuple[str, Style]:
    if block.status == "running":
        return f"{_SPINNER[_tick(block, now) % len(_SPINNER)]} ", palette.primary
    if block.status == "failed":
        return "✗ ", palette.error
    if block.status in {"done", "completed", ""}:
        return done or _arrow(block), palette.success
    return "■ ", palette.warning


def _right(block: Block, now: float) -> str:
    if block.seconds is not None:
        return seconds(block.seconds) if block.seconds >= 0.1 else ""
    return clock(_tick(block, now)) if block.status == "running" and now - block.started >= 1 else ""


_LOOKS: dict[BlockKind, Callable[[_Page], None]] = {
    BlockKind.USER: _user,
    BlockKind.ANSWER: _answer,
    BlockKind.THINKING: _thinking,
    BlockKind.TOOL: _tool,
    BlockKind.SUBAGENT: _subagent,
    BlockKind.NOTICE: _notice,
    BlockKind.WARNING: _note("▲ ", lambda palette: palette.warning),
    BlockKind.ERROR: _note("✗ ", lambda palette: palette.error),
    BlockKind.QUESTION: _question,
    BlockKind.NODE: _node,
    BlockKind.SHELL: _shell,
    BlockKind.RUN: _run,
}
