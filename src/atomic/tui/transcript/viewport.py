"""Place the blocks of the conversation in the view.

The anchor is fixed: a block and its line at the top of the view. So text does not move
when heights above the view differ from their estimate. Only blocks in the view are
painted; the heights of the others are estimated.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import TypeAlias

from textual.strip import Strip

from atomic.tui.state.model import Block
from atomic.tui.transcript.blocks import Painter, estimate
from atomic.tui.transcript.palette import Palette


class Heights:
    """Heights of blocks and their sums.

    A change is cheap; the next query sums up the rest.
    """

    def __init__(self) -> None:
        self._heights: list[int] = []
        self._starts: list[int] = [0]  # start of each block, and the end; valid up to `_valid`
        self._valid = 0

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    def set(self, index: int, height: int) -> None:
        """Change the height of a block."""
        if self._heights[index] != height:
            self._heights[index] = height
            self._valid = min(self._valid, index)

    def replace(self, start: int, heights: Iterable[int]) -> None:
        """Replace all heights from an index on."""
        self._heights[start:] = heights
        self._valid = min(self._valid, start)

    def tail(self, start: int) -> list[int]:
        """Return the heights from an index on."""
        return self._heights[start:]

    def start(self, index: int) -> int:
        """Return the first line of a block."""
        self._sum()
        return self._starts[index]

    @property
    def total(self) -> int:
        """Return the number of lines."""
        self._sum()
        return self._starts[-1]

    def find(self, line: int) -> int:
        """Return the index of the block at a line."""
        self._sum()
        return min(bisect_right(self._starts, max(0, line)) - 1, len(self._heights) - 1)

    def _sum(self) -> None:
        if self._valid == len(self._heights) and len(self._starts) == self._valid + 1:
            return
        at = self._valid
        self._starts[at:] = accumulate(self._heights[at:], initial=self._starts[at] if at else 0)
        self._valid = len(self._heights)


Position: TypeAlias = tuple[int, int]  # index of a block, and a line of it

_NEAR = 32  # blocks at the end whose heights are kept up to date while hidden


class Viewport:
    """Maps rows of the view to lines of blocks, and follows the end while the user is
    there.
    """

    def __init__(self, painter: Painter) -> None:
        self.painter = painter
        self.height = 1  # rows of the view
        self.blocks: list[Block] = []
        self.ids: list[int] = []
        self.is_following = True
        self.unseen = 0  # blocks added since the user left the end
        self.rows: list[Position] = []
        self.lines: list[Strip] = []
        self.gutters: list[int] = []  # for each line, the length of its prefix that is not text
        self._now = 0.0
        self._known: set[int] = set()
        self._versions: list[int] = []  # of each measured height; negative: estimated
        self._heights = Heights()
        self._anchor: Position = (0, 0)
        self._tail = (0, 0)  # the last block and its version when the user left the end

    # blocks and heights

    def update(self, blocks: list[Block], now: float) -> bool:
        """Take the blocks. Return whether they belong to another conversation.

        Searches new blocks backwards, only as far as needed.
        """
        self.blocks = blocks
        self._now = now
        added = len(blocks) - len(self.ids)
        is_other = added < 0 or bool(self.ids and blocks and self.ids[0] != blocks[0].id)
        if is_other:
            self._clear()
            added = len(blocks)
        if added:
            at = len(blocks)
            while added:
                at -= 1
                block = blocks[at]
                if block.id not in self._known:
                    added -= 1
                    self._known.add(block.id)
                    if not self.is_following and not block.hidden:
                        self.unseen += 1
            self._insert(at)
        self._update_tail()
        return is_other

    def adapt(self, palette: Palette, width: int) -> None:
        """Use another palette or width. The anchor stays."""
        is_other_width = width != self.painter.width
        if self.painter.adapt(palette, width) and is_other_width:
            self._heights.replace(0, [estimate(block, width) for block in self.blocks[: len(self.ids)]])
            self._versions = [-1] * len(self.ids)

    def index_of(self, id: int | None) -> int | None:
        """Return the index of a block, or None. Searches from the end."""
        if id is None:
            return None
        ids = self.ids
        return next((at for at in range(len(ids) - 1, -1, -1) if ids[at] == id), None)

    def _clear(self) -> None:
        self.ids = []
        self._versions = []
        self._known = set()
        self._heights = Heights()
        self.rows = []
        self.lines = []
        self.gutters = []
        self._anchor = (0, 0)
        self.is_following = True
        self.unseen = 0

    def _insert(self, at: int) -> None:
        """Take the blocks from an index on. Known heights are kept."""
        anchor, line = self._anchor
        anchor_id = self.ids[anchor] if anchor < len(self.ids) else None
        old = dict(zip(self.ids[at:], zip(self._heights.tail(at), self._versions[at:], strict=True), strict=True))
        blocks = self.blocks[at:]
        width = self.painter.width
        measured = [old.get(block.id) or (estimate(block, width), -1 - block.version) for block in blocks]
        self.ids[at:] = [block.id for block in blocks]
        self._heights.replace(at, [height for height, _ in measured])
        self._versions[at:] = [version for _, version in measured]
        if anchor_id is not None and anchor >= at:
            self._anchor = (self.index_of(anchor_id) or 0, line)

    def _update_tail(self) -> None:
        """Update the estimated heights of hidden blocks near the end, which may grow."""
        blocks = self.blocks
        for at in range(max(0, len(blocks) - _NEAR), len(blocks)):
            version = self._versions[at]
            if version != blocks[at].version and version != -1 - blocks[at].version:
                self._heights.set(at, estimate(blocks[at], self.painter.width))
                self._versions[at] = -1 - blocks[at].version
        if not self.is_following and not self.unseen and blocks and self._tail != (blocks[-1].id, blocks[-1].version):
            self.unseen = 1

    def _measure(self, index: int) -> int:
        """Return the real height of a block."""
        block = self.blocks[index]
        if self._versions[index] != block.version:
            painted = self.painter.paint(block, self._now)
            self._heights.set(index, len(painted.strips))
            self._versions[index] = painted.version
        return self._heights[index]

    # visible rows

    def arrange(self) -> None:
        """Compute the visible rows from the anchor."""
        end = (len(self.ids), 0)
        if self.is_following:
            self._anchor = self._moved(end, -self.height)
        else:
            self._anchor = self._clamped(end)
        self.rows = self._rows_from(self._anchor)
        lines: list[Strip] = []
        gutters: list[int] = []
        for index, line in self.rows:
            painted = self.painter.paint(self.blocks[index], self._now)
            lines.append(painted.strips[line])
            gutters.append(painted.gutters[line])
        self.lines = lines
        self.gutters = gutters

    @property
    def total(self) -> int:
        """Return the estimated number of lines."""
        return self._heights.total

    @property
    def top(self) -> int:
        """Return the estimated line at the top of the view."""
        index, line = self._anchor
        return self._heights.start(min(index, len(self.ids))) + line

    def is_at_end(self) -> bool:
        """Return whether the last line is visible."""
        if not self.rows:
            return True
        index, line = self.rows[-1]
        last = len(self.ids) - 1
        while last > index and not self._measure(last):
            last -= 1
        return index == last and line == self._measure(index) - 1

    def _clamped(self, end: Position) -> Position:
        """Return the anchor, moved up if the view would be partly empty."""
        index, line = self._anchor
        if index >= len(self.ids):
            return self._moved(end, -self.height)
        line = min(line, max(0, self._measure(index) - 1))
        below = self._measure(index) - line
        at = index + 1
        while below < self.height and at < len(self.ids):
            below += self._measure(at)
            at += 1
        return (index, line) if below >= self.height else self._moved(end, -self.height)

    def _moved(self, position: Position, by: int) -> Position:
        """Return a position moved by a number of lines, using real heights."""
        index, line = position
        line += by
        while line < 0 and index > 0:
            index -= 1
            line += self._measure(index)
        while index < len(self.ids) and line >= self._measure(index):
            line -= self._measure(index)
            index += 1
        return index, max(0, line)

    def _rows_from(self, position: Position) -> list[Position]:
        index, line = position
        rows: list[Position] = []
        while len(rows) < self.height and index < len(self.ids):
            for at in range(line, min(self._measure(index), line + self.height - len(rows))):
                rows.append((index, at))
            index += 1
            line = 0
        return rows

    # movement; call `arrange` afterwards

    def follow(self) -> None:
        """Move to the end and stay there."""
        self.is_following = True
        self.unseen = 0

    def leave_end(self) -> None:
        """Stop following the end."""
        if self.is_following and self.blocks:
            self._tail = (self.blocks[-1].id, self.blocks[-1].version)
        self.is_following = False

    def scroll_by(self, lines: int) -> None:
        """Move by exactly this number of lines, even if hidden heights are only
        estimates.
        """
        at = self._moved((len(self.ids), 0), -self.height) if self.is_following else self._anchor
        self.leave_end()
        self._anchor = self._moved(at, lines)

    def scroll_to(self, line: int) -> None:
        """Move to an estimated line."""
        self.leave_end()
        index = self._heights.find(line)
        self._anchor = index, max(0, line - self._heights.start(index))

    def scroll_home(self) -> None:
        """Move to the first line."""
        self.leave_end()
        self._anchor = (0, 0)

    def reveal(self, index: int) -> None:
        """Move so that a block is visible: at the top, or at the bottom if it is
        further down.
        """
        self.leave_end()
        self._anchor = (index, 0)
        if self.rows and index > self.rows[-1][0]:
            self._anchor = self._moved((index, self._measure(index)), -self.height)
