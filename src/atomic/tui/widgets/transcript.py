"""The conversation: one widget that paints only what is seen of it.

What stays where it is is the anchor, the block and its line at the top of the view; Textual's own scroll offset only
follows it, for the scrollbar. Heights above the view may so turn out other than estimated, and no text moves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

from rich.cells import chop_cells
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Offset, Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget

from atomic.tui.state.model import Block, BlockKind, Screen
from atomic.tui.transcript.blocks import FOLDABLE, Painter, estimate, plain_text
from atomic.tui.transcript.heights import Heights
from atomic.tui.transcript.markdown import LINK
from atomic.tui.transcript.palette import Palette
from atomic.tui.transcript.welcome import is_welcome, welcome

if TYPE_CHECKING:
    from textual.app import App
    from textual.reactive import Reactive

_WHEEL = 3  # lines
_NEAR = 32  # blocks at the end whose heights are kept right while they are not seen
_LINES = 1 << 20  # a line's place for the selection is block * this + line: it outlives other heights above
_WORD = re.compile(r"[\w./~@:%+#=?&-]+")  # a path or an address is one word
_STEPS = 64  # the scrollbar moves when it would move by a part of this


class TranscriptView(ScrollView, can_focus=True):
    """Shows `Screen.blocks`. Give it a frame by `sync`; it follows the end while the reader is there."""

    DEFAULT_CSS = """
    TranscriptView {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
    }
    """

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
        self._screen_state = Screen()
        self._now = 0.0
        self._ids: list[int] = []
        self._known: set[int] = set()
        self._versions: list[int] = []  # for which the height is right; -1: it is estimated
        self._heights = Heights()
        self._anchor = (0, 0)
        self._following = True
        self._new = 0
        self._tail = (0, 0)  # the last block and its version, as they were when the reader left the end
        self._rows: list[tuple[int, int]] = []
        self._lines: list[Strip] = []
        self._gutters: list[int] = []
        self._welcome: list[Strip] = []  # below the lines, until something is said
        self._cursor: int | None = None
        self._toggled: tuple[int, int] | None = None  # the block that was clicked and its version then
        self._painter: Painter | None = None

    # what the app calls ------------------------------------------------------------------------------------------

    def sync(self, screen: Screen, now: float) -> None:
        """Show the state as it is now."""
        self._screen_state, self._now = screen, now
        if self._painter is None and not self._make_painter():
            return  # it has no size yet: the first resize paints
        self._take_blocks()
        self._arrange()
        self._follow_if_toggled()

    def follow(self) -> None:
        """Go to the end and stay there."""
        self._following, self._new = True, 0
        if self._is_ready():
            self._arrange()

    @property
    def is_following(self) -> bool:
        """Whether new text moves the view."""
        return self._following

    @property
    def unseen(self) -> int:
        """How many blocks came since the reader left the end."""
        return self._new

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

    def painted_rows(self) -> list[Strip]:
        """The rows of the view as they are painted, without cursor, pill and selection."""
        return list(self._lines)

    # blocks and heights ------------------------------------------------------------------------------------------

    @property
    def _blocks(self) -> list[Block]:
        return self._screen_state.blocks

    @property
    def _view_height(self) -> int:
        return max(1, self.scrollable_content_region.height)

    def _is_ready(self) -> bool:
        """Whether there is anything to move in; the state may have changed since the last frame."""
        if self._painter is None:
            return False
        self._take_blocks()
        return bool(self._ids)

    def _make_painter(self) -> bool:
        width = self.scrollable_content_region.width
        if width <= 0 or not self.is_attached:
            return False
        self._painter = Painter(self._palette(), width)
        return True

    def _palette(self) -> Palette:
        app = cast("App[object]", self.app)  # pyright: ignore[reportUnknownMemberType]  # any app will do
        return Palette.of(app.theme_variables, self.background_colors[1])

    def _take_blocks(self) -> None:
        """Find out what is new: only as far back as something was put in."""
        blocks, known = self._blocks, self._known
        fresh = len(blocks) - len(self._ids)
        if fresh < 0 or (self._ids and blocks and self._ids[0] != blocks[0].id):
            self._forget()
            fresh = len(blocks)
        if not fresh:
            self._look_at_tail()
            return
        at = len(blocks)
        while fresh:
            at -= 1
            if blocks[at].id not in known:
                fresh -= 1
                known.add(blocks[at].id)
                if not self._following and not blocks[at].hidden:
                    self._new += 1
        self._put_in(at)
        self._look_at_tail()

    def _put_in(self, at: int) -> None:
        anchor_id = self._ids[self._anchor[0]] if self._anchor[0] < len(self._ids) else None
        old = dict(zip(self._ids[at:], zip(self._heights.tail(at), self._versions[at:], strict=True), strict=True))
        blocks = self._blocks[at:]
        width = self._require_painter().width
        told = [old.get(block.id) or (estimate(block, width), -1 - block.version) for block in blocks]
        self._ids[at:] = [block.id for block in blocks]
        self._heights.replace(at, [height for height, _ in told])
        self._versions[at:] = [version for _, version in told]
        if anchor_id is not None and self._anchor[0] >= at:
            index = self._index_of(anchor_id)
            self._anchor = (index if index is not None else 0, self._anchor[1])

    def _look_at_tail(self) -> None:
        """Blocks near the end grow while nobody sees them: keep their heights about right."""
        blocks, width = self._blocks, self._require_painter().width
        for at in range(max(0, len(blocks) - _NEAR), len(blocks)):
            version = self._versions[at]
            if version != blocks[at].version and version != -1 - blocks[at].version:
                self._heights.set(at, estimate(blocks[at], width))
                self._versions[at] = -1 - blocks[at].version
        if not self._following and not self._new and blocks and self._tail != (blocks[-1].id, blocks[-1].version):
            self._new = 1

    def _forget(self) -> None:
        self._ids, self._versions, self._known = [], [], set()
        self._heights = Heights()
        self._rows, self._lines = [], []
        self._anchor, self._following, self._new, self._cursor = (0, 0), True, 0, None
        self.refresh()  # what stood there is not known any more

    def _index_of(self, id: int) -> int | None:
        """Where a block is; looked for from the end, where most of the work is."""
        ids = self._ids
        return next((at for at in range(len(ids) - 1, -1, -1) if ids[at] == id), None)

    def _require_painter(self) -> Painter:
        assert self._painter is not None
        return self._painter

    def _measure(self, index: int) -> int:
        """The real height of a block."""
        block = self._blocks[index]
        if self._versions[index] != block.version:
            painted = self._require_painter().paint(block, self._now)
            self._heights.set(index, len(painted.strips))
            self._versions[index] = painted.version
        return self._heights[index]

    # what is seen ------------------------------------------------------------------------------------------------

    def _arrange(self) -> None:
        """Find the rows of the view from the anchor, and repaint those that are other than before."""
        if self._painter is None:
            return
        height = self._view_height
        end = (len(self._ids), 0)
        if self._following:
            self._anchor = self._moved(end, -height)
        else:
            self._anchor = self._clamped(end, height)
        rows = self._rows_from(self._anchor, height)
        lines: list[Strip] = []
        gutters: list[int] = []
        for index, line in rows:
            painted = self._painter.paint(self._blocks[index], self._now)
            lines.append(painted.strips[line])
            gutters.append(painted.gutters[line])
        before, self._rows, self._lines, self._gutters = self._lines, rows, lines, gutters
        self._repaint(before, height)
        self._greet(self._painter, height - len(lines))
        self._tell_scrollbar()

    def _greet(self, painter: Painter, room: int) -> None:
        """Say what can be done here as long as nothing has been; painted anew only if it is another."""
        screen = self._screen_state
        before = self._welcome
        self._welcome = welcome(screen, painter.width, room, painter.palette) if is_welcome(screen) else []
        if self._welcome != before:
            self.refresh()

    def _clamped(self, end: tuple[int, int], height: int) -> tuple[int, int]:
        """The anchor, not so far down that the view would be half empty."""
        index, line = self._anchor
        if index >= len(self._ids):
            return self._moved(end, -height)
        line = min(line, max(0, self._measure(index) - 1))
        below, at = self._measure(index) - line, index + 1
        while below < height and at < len(self._ids):
            below += self._measure(at)
            at += 1
        return (index, line) if below >= height else self._moved(end, -height)

    def _moved(self, place: tuple[int, int], by: int) -> tuple[int, int]:
        """A place so many lines further, by real heights."""
        index, line = place
        line += by
        while line < 0 and index > 0:
            index -= 1
            line += self._measure(index)
        while index < len(self._ids) and line >= self._measure(index):
            line -= self._measure(index)
            index += 1
        return index, max(0, line)

    def _rows_from(self, place: tuple[int, int], height: int) -> list[tuple[int, int]]:
        index, line = place
        rows: list[tuple[int, int]] = []
        while len(rows) < height and index < len(self._ids):
            for at in range(line, min(self._measure(index), line + height - len(rows))):
                rows.append((index, at))
            index, line = index + 1, 0
        return rows

    def _repaint(self, before: list[Strip], height: int) -> None:
        lines, size = self._lines, self.size
        if len(before) != len(lines):
            self.refresh()
            return
        changed = [y for y, line in enumerate(lines) if line is not before[y]]
        if not self._following:
            changed.append(height - 1)  # the pill
        if changed:
            top = min(changed)
            self.refresh(Region(0, top, size.width, max(changed) + 1 - top))

    def _tell_scrollbar(self) -> None:
        """The bar shows about where we are; it moves in steps, each of which has to be painted."""
        height, total = self._view_height, self._heights.total
        step = max(1, total // _STEPS)
        total = -(-total // step) * step
        y = max(0, total - height) if self._following else self._heights.start(min(self._anchor[0], len(self._ids)))
        y += 0 if self._following else self._anchor[1]
        if self._following is False and self._is_at_end():
            y = max(0, total - height)
        # Set without their watchers: a new virtual size would be a layout of the whole screen in each frame.
        self.set_reactive(cast("Reactive[Size]", Widget.virtual_size), Size(self._require_painter().width, total))
        self.set_reactive(Widget.scroll_y, float(y))
        self.set_reactive(cast("Reactive[float]", Widget.scroll_target_y), float(y))
        bar = self.vertical_scrollbar
        bar.window_virtual_size, bar.window_size, bar.position = total, height, y

    def _is_at_end(self) -> bool:
        if not self._rows:
            return True
        index, line = self._rows[-1]
        last = len(self._ids) - 1
        while last > index and not self._measure(last):
            last -= 1
        return index == last and line == self._measure(index) - 1

    def _leave_end(self) -> None:
        if self._following and self._blocks:
            self._tail = (self._blocks[-1].id, self._blocks[-1].version)
        self._following = False

    # scrolling ---------------------------------------------------------------------------------------------------

    def scroll_lines(self, by: int) -> None:
        """Move by lines, exactly, whatever the heights that nobody has seen turn out to be."""
        if not self._is_ready():
            return
        at = self._moved((len(self._ids), 0), -self._view_height) if self._following else self._anchor
        self._leave_end()
        self._anchor = self._moved(at, by)
        self._arrange()
        if self._is_at_end():
            self.follow()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Somebody dragged the bar, or Textual scrolled for a selection."""
        if not self._is_ready() or (self._following and new_value >= self.max_scroll_y):
            return  # a view that has become higher is moved by Textual itself; its end is still the end
        by = round(new_value) - round(old_value)
        if abs(by) <= 2 * self._view_height:
            self.scroll_lines(by)
            return
        self._leave_end()
        index = self._heights.find(round(new_value))
        self._anchor = index, max(0, round(new_value) - self._heights.start(index))
        self._arrange()
        if self._is_at_end():
            self.follow()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Three lines up."""
        event.prevent_default().stop()
        self.scroll_lines(-_WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Three lines down."""
        event.prevent_default().stop()
        self.scroll_lines(_WHEEL)

    def action_scroll_up(self) -> None:
        """A line up."""
        self.scroll_lines(-1)

    def action_scroll_down(self) -> None:
        """A line down."""
        self.scroll_lines(1)

    def action_page_up(self) -> None:
        """A screen up; a line of the old one stays."""
        self.scroll_lines(1 - self._view_height)

    def action_page_down(self) -> None:
        """A screen down; a line of the old one stays."""
        self.scroll_lines(self._view_height - 1)

    def action_scroll_home(self) -> None:
        """To the beginning."""
        if not self._is_ready():
            return
        self._leave_end()
        self._anchor = (0, 0)
        self._arrange()
        if self._is_at_end():
            self.follow()

    def action_scroll_end(self) -> None:
        """To the end, and follow it."""
        self.follow()

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

    def on_mount(self) -> None:
        """Learn of other themes."""
        app = cast("App[object]", self.app)  # pyright: ignore[reportUnknownMemberType]  # any app will do
        app.theme_changed_signal.subscribe(self, self._theme_changed)

    def _theme_changed(self, theme: Theme) -> None:
        self._adapt()

    def on_resize(self, event: events.Resize) -> None:
        """Another width: everything is estimated anew, the anchor stays."""
        self._adapt()

    @property
    def room(self) -> int:
        """How long a line of text may be before it is broken; 0: not known yet."""
        return max(0, self.scrollable_content_region.width - 4)  # the margin, a sign and a space, a free one at the end

    def _adapt(self) -> None:
        if self._painter is None:
            self._make_painter()
        elif self.scrollable_content_region.width > 0:
            width = self.scrollable_content_region.width
            is_other_width = width != self._painter.width
            if self._painter.adapt(self._palette(), width) and is_other_width:
                self._heights.replace(0, [estimate(block, width) for block in self._blocks[: len(self._ids)]])
                self._versions = [-1] * len(self._ids)
        self._lines = []
        if self._painter is not None:
            self._take_blocks()
            self._arrange()

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
        return f" ↓ {self._new:,} new · End "

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
        """Paint what is marked."""
        self.refresh()


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
