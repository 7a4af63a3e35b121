"""List all keys and their actions."""

from __future__ import annotations

from collections.abc import Sequence

from atomic.chat.protocol import PickRow
from atomic.tui.screens.listing import Listing


class KeysScreen(Listing):
    """Rows of keys, action and place, to read and to filter."""

    CHOOSES = False
    HINTS = (("↑↓", "scroll"), ("Esc", "close"))

    def __init__(self, rows: Sequence[tuple[str, str, str]]) -> None:
        super().__init__("Keys", [PickRow(keys, keys, does, where) for keys, does, where in rows])

    def _number(self, rows: Sequence[PickRow]) -> int:
        """Count keys: a row may have several."""
        return sum(len(row.label.split(", ")) for row in rows)
