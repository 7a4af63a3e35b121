"""Heights and positions of blocks: estimated until a block is visible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Heights:
    """Heights of blocks and their sums. A change is cheap; the next query sums up the rest."""

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
