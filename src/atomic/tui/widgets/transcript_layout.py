"""Where the blocks of the conversation stand in the view, and how it scrolls.

What stays where it is is the anchor, the block and its line at the top of the view; Textual's own scroll offset only
follows it, for the scrollbar. Heights above the view may so turn out other than estimated, and no text moves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.theme import Theme
from textual.widget import Widget

from atomic.tui.state.model import Block, Screen
from atomic.tui.transcript.blocks import Painter, estimate
from atomic.tui.transcript.heights import Heights
from atomic.tui.transcript.palette import Palette
from atomic.tui.transcript.welcome import is_welcome, welcome

if TYPE_CHECKING:
    from textual.app import App
    from textual.reactive import Reactive

_WHEEL = 3  # lines
_NEAR = 32  # blocks at the end whose heights are kept right while they are not seen
_STEPS = 64  # the scrollbar moves when it would move by a part of this


class TranscriptLayout(ScrollView):
    """Knows which line of which block stands in which row; it follows the end while the reader is there."""

    DEFAULT_CSS = """
    TranscriptLayout {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-gutter: stable;
    }
    """

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
        self._painter: Painter | None = None

    # what the app calls ------------------------------------------------------------------------------------------

    def sync(self, screen: Screen, now: float) -> None:
        """Show the state as it is now."""
        self._screen_state, self._now = screen, now
        if self._painter is None and not self._make_painter():
            return  # it has no size yet: the first resize paints
        self._take_blocks()
        self._arrange()

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

    def painted_rows(self) -> list[Strip]:
        """The rows of the view as they are painted, without cursor, pill and selection."""
        return list(self._lines)

    # size and colours -------------------------------------------------------------------------------------------

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
        self._anchor, self._following, self._new = (0, 0), True, 0
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
