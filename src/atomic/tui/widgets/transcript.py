"""The conversation as one widget that paints only its visible rows.

`Viewport` places them.
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
from textual.widget import Widget

from atomic.tui.state.model import Block, BlockKind, Screen
from atomic.tui.text import app_of
from atomic.tui.transcript.blocks import FOLDABLE, Painter, plain_text
from atomic.tui.transcript.markdown import LINK
from atomic.tui.transcript.palette import Palette
from atomic.tui.transcript.viewport import Viewport
from atomic.tui.transcript.welcome import is_welcome, welcome

if TYPE_CHECKING:
    from textual.reactive import Reactive

# Selection uses block * this + line as y, which is independent of heights above.
_LINES = 1 << 20
_WORD = re.compile(r"[\w./~@:%+#=?&-]+")  # a path or an address is one word
_WHEEL = 3  # lines
_STEPS = 64  # the scrollbar moves in this number of steps


class TranscriptView(ScrollView, can_focus=True):
    """Shows `Screen.blocks`, with a cursor, clicks and selection.

    Call `sync` for each frame.

    Textual's scroll offset only follows the viewport, for the scrollbar.
    """

    DEFAULT_CSS = """
    TranscriptView {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
    }
    """
    FOCUS_ON_CLICK = False  # the prompt keeps the focus

    class Toggled(Message):
        """A card was clicked or toggled by key."""

        def __init__(self, block_id: int) -> None:
            super().__init__()
            self.block_id = block_id

    class LinkOpened(Message):
        """A link was clicked."""

        def __init__(self, url: str) -> None:
            super().__init__()
            self.url = url

    class Resized(Message):
        """The transcript has another size."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.end_key = ""  # the key that scrolls to the end, for display
        self._state = Screen()
        self._now = 0.0
        self._viewport: Viewport | None = None  # None until the widget has a size
        self._welcome: list[Strip] = []  # below the lines, until something is sent
        self._cursor: int | None = None
        self._toggled: tuple[int, int] | None = None  # the toggled block and its version then

    # interface for the app

    def sync(self, screen: Screen, now: float) -> None:
        """Show the state."""
        self._state = screen
        self._now = now
        viewport = self._viewport or self._make_viewport()
        if viewport is None:
            return  # it has no size yet: the first resize paints
        self._update(viewport)
        self._arrange(viewport)
        if self._toggled is not None:  # follow the end again, if it is still visible
            id, version = self._toggled
            at = viewport.index_of(id)
            if at is None or viewport.blocks[at].version != version:
                self._toggled = None
                if viewport.is_at_end():
                    self.follow()

    def follow(self) -> None:
        """Scroll to the end and follow it."""
        viewport = self._ready()
        if viewport is not None:
            viewport.follow()
            self._arrange(viewport)

    @property
    def is_following(self) -> bool:
        """Return whether the view follows the end."""
        return self._viewport is None or self._viewport.is_following

    @property
    def unseen(self) -> int:
        """Return the number of blocks added since the user left the end."""
        return 0 if self._viewport is None else self._viewport.unseen

    @property
    def room(self) -> int:
        """Return how long a line of text may be, or 0 before the first layout."""
        return max(0, self.scrollable_content_region.width - 4)  # margin, bullet, space, free column at the end

    def painted_rows(self) -> list[Strip]:
        """Return the visible rows without cursor, pill and selection."""
        return [] if self._viewport is None else list(self._viewport.lines)

    def selected_text(self) -> str:
        """Return the text selected with the mouse."""
        selection = self.text_selection
        found = self.get_selection(selection) if selection is not None else None
        return found[0] if found else ""

    def last_answer(self, screen: Screen) -> str:
        """Return the source of the agent's last answer."""
        blocks = screen.blocks
        end = len(blocks) - 1
        while end >= 0 and not (blocks[end].kind is BlockKind.ANSWER and blocks[end].depth == 0 and blocks[end].run):
            end -= 1
        if end < 0:
            return ""
        start = end
        while not blocks[start].lead and start and blocks[start - 1].kind is BlockKind.ANSWER:
            start -= 1
        parts = [("\n" if block.gap else "") + block.text.strip("\n") for block in blocks[start : end + 1]]
        return "\n".join(parts).strip("\n")

    # size and colours

    def on_mount(self) -> None:
        """Subscribe to theme changes."""
        app_of(self).theme_changed_signal.subscribe(self, lambda _: self._adapt())

    def on_resize(self, event: events.Resize) -> None:
        """Adapt to another size."""
        self._adapt()
        self.post_message(self.Resized())

    def _adapt(self) -> None:
        width = self.scrollable_content_region.width
        if self._viewport is not None and width > 0:
            self._viewport.adapt(self._palette(), width)
        viewport = self._viewport or self._make_viewport()
        if viewport is not None:
            self._update(viewport)
            self._arrange(viewport)
        self.refresh()

    def _make_viewport(self) -> Viewport | None:
        width = self.scrollable_content_region.width
        if width > 0 and self.is_attached:
            self._viewport = Viewport(Painter(self._palette(), width))
        return self._viewport

    def _palette(self) -> Palette:
        return Palette.of(app_of(self).theme_variables, self.background_colors[1])

    # visible rows

    def _update(self, viewport: Viewport) -> None:
        """Pass the state to the viewport."""
        viewport.height = max(1, self.scrollable_content_region.height)
        if viewport.update(self._state.blocks, self._now):
            self._cursor = None
            self.refresh()

    def _ready(self) -> Viewport | None:
        """Return the viewport with the changes since the last frame, or None without
        blocks.
        """
        viewport = self._viewport
        if viewport is None:
            return None
        self._update(viewport)
        return viewport if viewport.ids else None

    def _arrange(self, viewport: Viewport) -> None:
        """Compute the visible rows, and repaint those that changed."""
        viewport.height = max(1, self.scrollable_content_region.height)
        before = viewport.lines
        viewport.arrange()
        lines = viewport.lines
        if len(before) != len(lines):
            self.refresh()
        else:
            changed = [y for y, line in enumerate(lines) if line is not before[y]]
            if not viewport.is_following:
                changed.append(viewport.height - 1)  # the pill
            if changed:
                top = min(changed)
                self.refresh(Region(0, top, self.size.width, max(changed) + 1 - top))
        self._show_welcome(viewport)
        self._update_scrollbar(viewport)

    def _show_welcome(self, viewport: Viewport) -> None:
        """Show the welcome text in an empty conversation.

        Repaint only if it changed.
        """
        before = self._welcome
        self._welcome = []
        if is_welcome(self._state):
            painter = viewport.painter
            room = viewport.height - len(viewport.lines)
            self._welcome = welcome(self._state, painter.width, room, painter.palette)
        if self._welcome != before:
            self.refresh()

    def _update_scrollbar(self, viewport: Viewport) -> None:
        """Update the scrollbar in coarse steps, because each step is repainted."""
        height = viewport.height
        step = max(1, viewport.total // _STEPS)
        total = -(-viewport.total // step) * step
        y = max(0, total - height) if viewport.is_following or viewport.is_at_end() else viewport.top
        # Set without watchers: a new virtual size would trigger a layout of the whole
        # screen.
        self.set_reactive(cast("Reactive[Size]", Widget.virtual_size), Size(viewport.painter.width, total))
        self.set_reactive(Widget.scroll_y, float(y))
        self.set_reactive(cast("Reactive[float]", Widget.scroll_target_y), float(y))
        bar = self.vertical_scrollbar
        bar.window_virtual_size = total
        bar.window_size = height
        bar.position = y

    # scrolling

    def scroll_lines(self, by: int) -> None:
        """Scroll by exactly this number of lines, even if hidden heights are only
        estimates.
        """
        viewport = self._ready()
        if viewport is not None:
            viewport.scroll_by(by)
            self._scrolled(viewport)

    def _scrolled(self, viewport: Viewport) -> None:
        """Show the new position, and follow the end if it is visible."""
        self._arrange(viewport)
        if viewport.is_at_end():
            self.follow()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """React to a dragged scrollbar, or to Textual's scrolling for a selection."""
        viewport = self._ready()
        if viewport is None or (viewport.is_following and new_value >= self.max_scroll_y):
            return  # Textual moves a view that grew, but its end is still the end
        by = round(new_value) - round(old_value)
        if abs(by) <= 2 * viewport.height:
            viewport.scroll_by(by)
        else:
            viewport.scroll_to(round(new_value))
        self._scrolled(viewport)

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """Scroll three lines up."""
        event.prevent_default().stop()
        self.scroll_lines(-_WHEEL)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """Scroll three lines down."""
        event.prevent_default().stop()
        self.scroll_lines(_WHEEL)

    def action_scroll_up(self) -> None:
        """Scroll a line up."""
        self.scroll_lines(-1)

    def action_scroll_down(self) -> None:
        """Scroll a line down."""
        self.scroll_lines(1)

    def action_page_up(self) -> None:
        """Scroll a page up, keeping one line."""
        self.scroll_lines(1 - max(1, self.scrollable_content_region.height))

    def action_page_down(self) -> None:
        """Scroll a page down, keeping one line."""
        self.scroll_lines(max(1, self.scrollable_content_region.height) - 1)

    def action_scroll_start(self) -> None:
        """Scroll to the beginning."""
        viewport = self._ready()
        if viewport is not None:
            viewport.scroll_home()
            self._scrolled(viewport)

    def action_scroll_end(self) -> None:
        """Scroll to the end and follow it."""
        self.follow()

    # block cursor

    def action_block_next(self) -> None:
        """Move the cursor to the next block."""
        self._step(1)

    def action_block_previous(self) -> None:
        """Move the cursor to the previous block."""
        self._step(-1)

    def action_block_first(self) -> None:
        """Move the cursor to the first block."""
        self.action_scroll_start()
        self.clear_cursor()
        self._step(1)

    def action_block_last(self) -> None:
        """Move the cursor to the last block."""
        self.follow()
        self.clear_cursor()
        self._step(-1)

    def clear_cursor(self) -> None:
        """Remove the cursor."""
        self._cursor = None
        self.refresh()

    @property
    def current_block(self) -> int | None:
        """Return the id of the block with the cursor."""
        return self._cursor

    def current_text(self) -> str:
        """Return the source of the block with the cursor."""
        block = self._block_at_cursor()
        return plain_text(block) if block is not None else ""

    def action_block_unfold(self) -> None:
        """Fold or unfold the block with the cursor."""
        block = self._block_at_cursor()
        if block is not None and block.kind in FOLDABLE:
            self._toggle(block)

    def _block_at_cursor(self) -> Block | None:
        if self._viewport is None or self._cursor is None:
            return None
        at = self._viewport.index_of(self._cursor)
        return None if at is None else self._viewport.blocks[at]

    def _step(self, by: int) -> None:
        viewport = self._ready()
        if viewport is None:
            return
        at = viewport.index_of(self._cursor)
        if at is None:
            self._arrange(viewport)  # apply changes since the last frame
            at = 0
            if viewport.rows:
                at = viewport.rows[-1][0] + 1 if by < 0 else viewport.rows[0][0] - 1
        at += by
        while 0 <= at < len(viewport.blocks) and viewport.blocks[at].hidden:
            at += by
        if 0 <= at < len(viewport.blocks):
            self._put_cursor(viewport, at)

    def _put_cursor(self, viewport: Viewport, index: int) -> None:
        self._cursor = viewport.ids[index]
        first_line = int(viewport.blocks[index].gap)
        if (index, first_line) not in viewport.rows:
            viewport.reveal(index)
            self._arrange(viewport)
            viewport.is_following = viewport.is_at_end()
        self.refresh()

    # mouse

    def on_click(self, event: events.Click) -> None:
        """Open a link, toggle a card, or follow the end.

        Select a word or block on more clicks.
        """
        viewport = self._viewport
        if event.chain > 1:
            event.prevent_default()  # Textual would select the whole conversation
            if viewport is not None and 0 <= event.y < len(viewport.rows):
                self._select(viewport, event.x, event.y, is_word=event.chain == 2)
            return
        link = event.style.meta.get(LINK)
        if isinstance(link, str):
            self.post_message(self.LinkOpened(link))
            return
        if viewport is None:
            return
        if viewport.unseen and event.y == viewport.height - 1 and event.x >= self._pill_column(viewport):
            self.follow()
            return
        if not 0 <= event.y < len(viewport.rows) or self.text_selection is not None:
            return
        index, line = viewport.rows[event.y]
        id = viewport.ids[index]
        block = next((block for block in viewport.blocks[index:] if block.id == id), None)
        if block is not None and block.kind in FOLDABLE and line == int(block.gap):
            self._toggle(block)

    def _select(self, viewport: Viewport, x: int, y: int, *, is_word: bool) -> None:
        index, line = viewport.rows[y]
        if is_word:
            text = viewport.lines[y].text
            at = len(chop_cells(text, x)[0]) if x > 0 else 0
            word = next((found for found in _WORD.finditer(text) if found.start() <= at < found.end()), None)
            if word is None:
                return
            start = Offset(word.start(), index * _LINES + line)
            end = Offset(word.end(), index * _LINES + line)
        else:
            start = Offset(0, index * _LINES)
            end = Offset(self.size.width, (index + 1) * _LINES - 1)
        self.screen.selections = {self: Selection(start, end)}

    def _toggle(self, block: Block) -> None:
        # The clicked row stays where it is. If the end is still visible afterwards, it
        # is followed again.
        if self._viewport is not None:
            self._viewport.leave_end()
        self._toggled = block.id, block.version
        self.post_message(self.Toggled(block.id))

    # painting

    def render_line(self, y: int) -> Strip:
        """Draw one row of the view."""
        viewport = self._viewport
        if viewport is None:
            return Strip.blank(self.size.width, self.rich_style)
        width = viewport.painter.width
        palette = viewport.painter.palette
        if y >= len(viewport.lines):
            below = self._welcome[y - len(viewport.lines) :][:1]
            return below[0] if below else Strip.blank(width, palette.text)
        index, line = viewport.rows[y]
        place = index * _LINES + line
        strip = self._with_selection(viewport.lines[y], place, viewport.gutters[y])
        strip = _with_offsets(strip, place, width)
        if self._cursor is not None and self._cursor == viewport.ids[index]:
            strip = Strip([*strip.crop(0, width - 1), Segment("▐", palette.primary)], width)
        if viewport.unseen and y == viewport.height - 1:
            left = strip.crop(0, self._pill_column(viewport))
            strip = Strip([*left, Segment(self._pill(viewport), palette.pill), Segment(" ", palette.text)], width)
        return strip

    def _with_selection(self, strip: Strip, place: int, gutter: int) -> Strip:
        """Highlight the selected part of a strip."""
        selection = self.text_selection
        span = selection.get_span(place) if selection is not None else None
        if span is None:
            return strip
        text = strip.text.rstrip()
        start = max(span[0], gutter)
        end = len(text) if span[1] == -1 else min(span[1], len(text))
        if start >= end:
            return strip
        back = self.screen.get_component_rich_style("screen--selection").bgcolor
        style = Style(reverse=True) if back is None or back.is_default else Style(bgcolor=back)
        left = strip.index_to_cell_position(start)
        right = strip.index_to_cell_position(end)
        parts = strip.divide([left, right, strip.cell_length])
        # Above the strip's own style; `Strip.apply_style` applies it below.
        restyled = [Segment(text, own + style if own else style) for text, own, _ in parts[1]]
        return Strip.join([parts[0], Strip(restyled, parts[1].cell_length), *parts[2:]])

    def _pill(self, viewport: Viewport) -> str:
        key = f" · {self.end_key}" if self.end_key else ""
        return f" ↓ {viewport.unseen:,} new{key} "

    def _pill_column(self, viewport: Viewport) -> int:
        return max(0, viewport.painter.width - len(self._pill(viewport)) - 1)

    # selection

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the selected text without signs and tree lines.

        Whole blocks as their source.
        """
        viewport = self._ready()
        if viewport is None:
            return None
        if selection.start is None and selection.end is None:
            return "\n\n".join(plain_text(block) for block in viewport.blocks if not block.hidden), "\n"
        last_block = len(viewport.ids) - 1
        first = selection.start.y // _LINES if selection.start is not None else 0
        last = selection.end.y // _LINES if selection.end is not None else last_block
        lines: list[str] = []
        for index in range(first, min(last, last_block) + 1):
            painted = viewport.painter.paint(viewport.blocks[index], self._now)
            for at, (strip, gutter) in enumerate(zip(painted.strips, painted.gutters, strict=True)):
                span = selection.get_span(index * _LINES + at)
                if span is not None:
                    text = strip.text.rstrip()
                    end = len(text) if span[1] == -1 else span[1]
                    lines.append(text[max(span[0], gutter) : end])
        return "\n".join(lines), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Repaint the selection.

        If dragged out of the view, it ends at the edge of the view.
        """
        self.refresh()
        viewport = self._viewport
        if selection is None or viewport is None or not viewport.rows:
            return
        start = selection.start
        end = selection.end
        if start is not None and end is not None:
            return
        if start is None:  # Offset(0, 0) is falsy but valid
            index, line = viewport.rows[0]
            start = Offset(0, index * _LINES + line)
        if end is None:
            index, line = viewport.rows[-1]
            end = Offset(self.size.width, index * _LINES + line)
        self.screen.selections = {self: Selection(start, end)}


def _with_offsets(strip: Strip, place: int, width: int) -> Strip:
    """Attach offsets for Textual's selection: `Strip.apply_offsets` without its cache."""
    parts: list[Segment] = []
    x = 0
    for text, style, _ in strip:
        offset = Style.from_meta({"offset": (x, place)})
        parts.append(Segment(text, style + offset if style else offset))
        x += len(text)
    return Strip(parts, width)
