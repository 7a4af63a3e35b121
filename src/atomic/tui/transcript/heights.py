"""How high each block is, and where it begins: estimated until a block was seen."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate


class Heights:
    """Heights of blocks with their sums. A change costs nothing; the next question sums up what lies behind it."""

    def __init__(self) -> None:
        self._heights: list[int] = []
        self._starts: list[int] = [0]  # where each begins, and the end; right up to `_valid`
        self._valid = 0

    def __len__(self) -> int:
        return len(self._heights)

    def __getitem__(self, index: int) -> int:
        return self._heights[index]

    def set(self, index: int, height: int) -> None:
        """A block has another height."""
        if self._heights[index] != height:
            self._heights[index] = height
            self._valid = min(self._valid, index)

    def replace(self, start: int, heights: Iterable[int]) -> None:
        """Everything from an index on is another."""
        self._heights[start:] = heights
        self._valid = min(self._valid, start)

    def tail(self, start: int) -> list[int]:
        """The heights from an index on."""
        return self._heights[start:]

    def start(self, index: int) -> int:
        """The line where a block begins."""
        self._sum()
        return self._starts[index]

    @property
    def total(self) -> int:
        """All lines."""
        self._sum()
        return self._starts[-1]

    def find(self, line: int) -> int:
        """The block that a line belongs to."""
        self._sum()
        return min(bisect_right(self._starts, max(0, line)) - 1, len(self._heights) - 1)

    def _sum(self) -> None:
        if self._valid == len(self._heights) and len(self._starts) == self._valid + 1:
            return
        at = self._valid
        self._starts[at:] = accumulate(self._heights[at:], initial=self._starts[at] if at else 0)
        self._valid = len(self._heights)
