"""The conversation: one widget that paints only what is seen of it. What stands where is `TranscriptLayout`'s."""

from __future__ import annotations

import re

from rich.cells import chop_cells
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from atomic.tui.state.model import Block, BlockKind, Screen
from atomic.tui.transcript.blocks import FOLDABLE, Painter, plain_text
from atomic.tui.transcript.markdown import LINK
from atomic.tui.widgets.transcript_layout import TranscriptLayout

_LINES = 1 << 20  # a line's place for the selection is block * this + line: it outlives other heights above
_WORD = re.compile(r"[\w./~@:%+#=?&-]+")  # a path or an address is one word


class TranscriptView(TranscriptLayout, can_focus=True):
    """Shows `Screen.blocks`: give it a frame by `sync`. A cursor, clicks and the selection work on them."""

    class Toggled(Message):
        """A card is to be folded or unfolded."""

        def __init__(self, block_id: int) -> None:
            super().__init__()
            self.block_id = block_id

    class LinkOpened(Message):
        """A link was clicked; it is one that a browser opens."""

        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    FOCUS_ON_CLICK = False  # who clicks on a card goes on typing in the prompt

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.end_key = ""  # the key that scrolls to the end, as people write it
        self._cursor: int | None = None
        self._toggled: tuple[int, int] | None = None  # the block that was clicked and its version then

    # what the app calls ------------------------------------------------------------------------------------------

    def sync(self, screen: Screen, now: float) -> None:
        """Show the state as it is now."""
        super().sync(screen, now)
        self._follow_if_toggled()

    def selected_text(self) -> str:
        """What is marked with the mouse."""
        selection = self.text_selection
        found = self.get_selection(selection) if selection is not None else None
        return found[0] if found else ""

    def last_answer(self, screen: Screen) -> str:
        """The source of the agent's last answer."""
        blocks = screen.blocks
        end = next((at for at in range(len(blocks) - 1, -1, -1) if _is_answer(blocks[at])), None)
        if end is None:
            return ""
        start = end
        while not blocks[start].lead and start and blocks[start - 1].kind is BlockKind.ANSWER:
            start -= 1
        parts = [("\n" if block.gap else "") + block.text.strip("\n") for block in blocks[start : end + 1]]
        return "\n".join(parts).strip("\n")

    # transcript mode ---------------------------------------------------------------------------------------------

    def next_block(self) -> None:
        """Put the cursor on the next block."""
        self._step(1)

    def previous_block(self) -> None:
        """Put the cursor on the block above."""
        self._step(-1)

    def clear_cursor(self) -> None:
        """Take the cursor away."""
        self._cursor = None
        self.refresh()

    @property
    def current_block(self) -> int | None:
        """The id of the block with the cursor."""
        return self._cursor

    def current_text(self) -> str:
        """The source of the block with the cursor."""
        at = self._index_of(self._cursor) if self._cursor is not None else None
        return plain_text(self._blocks[at]) if at is not None else ""

    def toggle_current(self) -> None:
        """Fold or unfold the block with the cursor."""
        at = self._index_of(self._cursor) if self._cursor is not None else None
        if at is not None and self._blocks[at].kind in FOLDABLE:
            self._toggle(self._ids[at], self._blocks[at].version)

    def find(self, text: str, *, backwards: bool = True) -> bool:
        """Put the cursor on the next block that has a text in it; whether there is one."""
        if not self._is_ready():
            return False
        wanted, blocks = text.casefold(), self._blocks
        at = self._index_of(self._cursor) if self._cursor is not None else None
        at = (len(blocks) if backwards else -1) if at is None else at
        order = range(at - 1, -1, -1) if backwards else range(at + 1, len(blocks))
        for index in order:
            if not blocks[index].hidden and wanted in plain_text(blocks[index]).casefold():
                self._put_cursor(index)
                return True
        return False

    def _step(self, by: int) -> None:
        if not self._is_ready():
            return
        at = self._index_of(self._cursor) if self._cursor is not None else None
        if at is None:
            self._arrange()  # there may be news since the last frame
            at = (self._rows[-1][0] + 1 if by < 0 else self._rows[0][0] - 1) if self._rows else 0
        at += by
        while 0 <= at < len(self._blocks) and self._blocks[at].hidden:
            at += by
        if 0 <= at < len(self._blocks):
            self._put_cursor(at)

    def _put_cursor(self, index: int) -> None:
        self._cursor = self._ids[index]
        first = self._blocks[index].gap
        if not any(row == (index, first) for row in self._rows):
            self._leave_end()
            self._anchor = (index, 0)
            if self._rows and index > self._rows[-1][0]:  # downwards: it comes in at the bottom
                self._anchor = self._moved((index, self._measure(index)), -self._view_height)
            self._arrange()
            self._following = self._is_at_end()
        self.refresh()

    def _forget(self) -> None:
        self._cursor = None
        super()._forget()

    # the mouse ---------------------------------------------------------------------------------------------------

    def on_click(self, event: events.Click) -> None:
        """Open a link, fold a card, or go to the end by the pill; twice marks a word, three times a block."""
        if event.chain > 1:
            event.prevent_default()  # Textual would mark the whole conversation
            if 0 <= event.y < len(self._rows):
                self._mark(event.x, event.y, is_word=event.chain == 2)
            return
        link = event.style.meta.get(LINK)
        if isinstance(link, str):
            self.post_message(self.LinkOpened(link))
            return
        if self._new and event.y == self._view_height - 1 and event.x >= self._pill_at():
            self.follow()
            return
        if not 0 <= event.y < len(self._rows) or self.text_selection is not None:
            return
        index, line = self._rows[event.y]
        id = self._ids[index]
        block = next((block for block in self._blocks[index:] if block.id == id), None)
        if block is not None and block.kind in FOLDABLE and line == int(block.gap):
            self._toggle(id, block.version)

    def _mark(self, x: int, y: int, *, is_word: bool) -> None:
        index, line = self._rows[y]
        if is_word:
            text = self._lines[y].text
            at = len(chop_cells(text, x)[0]) if x > 0 else 0
            word = next((found for found in _WORD.finditer(text) if found.start() <= at < found.end()), None)
            if word is None:
                return
            places = Offset(word.start(), index * _LINES + line), Offset(word.end(), index * _LINES + line)
        else:
            places = Offset(0, index * _LINES), Offset(self.size.width, (index + 1) * _LINES - 1)
        self.screen.selections = {self: Selection(*places)}

    def _toggle(self, id: int, version: int) -> None:
        self._leave_end()  # what was clicked stays where it is; if the end is still seen then, we follow again
        self._toggled = id, version
        self.post_message(self.Toggled(id))

    def _follow_if_toggled(self) -> None:
        if self._toggled is None:
            return
        at = self._index_of(self._toggled[0])
        if at is None or self._blocks[at].version != self._toggled[1]:
            self._toggled = None
            if self._is_at_end():
                self.follow()

    # painting ----------------------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """One row of the view."""
        painter = self._painter
        if painter is None:
            return Strip.blank(self.size.width, self.rich_style)
        if y >= len(self._lines):
            below = self._welcome[y - len(self._lines) :][:1]
            return below[0] if below else Strip.blank(painter.width, painter.palette.text)
        index, line = self._rows[y]
        place = index * _LINES + line
        strip = self._marked(self._lines[y], place, self._gutters[y])
        strip = _with_offsets(strip, place, painter.width)
        if self._cursor is not None and self._cursor == self._ids[index]:
            strip = Strip([*strip.crop(0, painter.width - 1), Segment("▐", painter.palette.primary)], painter.width)
        if self._new and y == self._view_height - 1:
            strip = self._with_pill(strip, painter)
        return strip

    def _marked(self, strip: Strip, place: int, gutter: int) -> Strip:
        """The strip with what is selected of it in the selection's colours."""
        selection = self.text_selection
        span = selection.get_span(place) if selection is not None else None
        if span is None:
            return strip
        text = strip.text.rstrip()
        start, end = max(span[0], gutter), len(text) if span[1] == -1 else min(span[1], len(text))
        if start >= end:
            return strip
        back = self.screen.get_component_rich_style("screen--selection").bgcolor
        style = Style(reverse=True) if back is None or back.is_default else Style(bgcolor=back)
        left, right = strip.index_to_cell_position(start), strip.index_to_cell_position(end)
        parts = strip.divide([left, right, strip.cell_length])
        return Strip.join([parts[0], _restyled(parts[1], style), *parts[2:]])

    def _pill(self) -> str:
        key = f" · {self.end_key}" if self.end_key else ""
        return f" ↓ {self._new:,} new{key} "

    def _pill_at(self) -> int:
        return max(0, self._require_painter().width - len(self._pill()) - 1)

    def _with_pill(self, strip: Strip, painter: Painter) -> Strip:
        at, pill = self._pill_at(), self._pill()
        parts = [*strip.crop(0, at), Segment(pill, painter.palette.pill), Segment(" ", painter.palette.text)]
        return Strip(parts, painter.width)

    # selection ---------------------------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text between two places, without signs and tree lines; whole blocks as they are written."""
        if not self._is_ready():
            return None
        if selection.start is None and selection.end is None:
            return "\n\n".join(plain_text(block) for block in self._blocks if not block.hidden), "\n"
        first = divmod(selection.start.y, _LINES) if selection.start is not None else (0, 0)
        last = divmod(selection.end.y, _LINES) if selection.end is not None else (len(self._ids) - 1, _LINES - 1)
        lines: list[str] = []
        for index in range(first[0], min(last[0], len(self._ids) - 1) + 1):
            lines += self._selected_lines(index, selection)
        return "\n".join(lines), "\n"

    def _selected_lines(self, index: int, selection: Selection) -> list[str]:
        painted = self._require_painter().paint(self._blocks[index], self._now)
        lines: list[str] = []
        for at, (strip, gutter) in enumerate(zip(painted.strips, painted.gutters, strict=True)):
            span = selection.get_span(index * _LINES + at)
            if span is not None:
                text = strip.text.rstrip()
                end = len(text) if span[1] == -1 else span[1]
                lines.append(text[max(span[0], gutter) : end])
        return lines

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint what is selected. A selection that is dragged out of the view ends at the edge of what is seen."""
        self.refresh()
        if selection is None or not self._rows or None not in (selection.start, selection.end):
            return
        first, last = (index * _LINES + line for index, line in (self._rows[0], self._rows[-1]))
        start, end = selection.start, selection.end
        if start is None:  # Offset(0, 0) is falsy, and a place like any other
            start = Offset(0, first)
        if end is None:
            end = Offset(self.size.width, last)
        self.screen.selections = {self: Selection(start, end)}


def _with_offsets(strip: Strip, place: int, width: int) -> Strip:
    """Tell Textual's selection where each part is: `Strip.apply_offsets`, but nothing of it is kept."""
    parts: list[Segment] = []
    x = 0
    for text, style, _ in strip:
        offset = Style.from_meta({"offset": (x, place)})
        parts.append(Segment(text, style + offset if style else offset))
        x += len(text)
    return Strip(parts, width)


def _restyled(strip: Strip, style: Style) -> Strip:
    """The strip with a style over its own; `Strip.apply_style` would put it under."""
    return Strip([Segment(text, own + style if own else style) for text, own, _ in strip], strip.cell_length)


def _is_answer(block: Block) -> bool:
    return block.kind is BlockKind.ANSWER and block.depth == 0 and bool(block.run)
