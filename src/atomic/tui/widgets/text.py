"""Lines for the panels: one line of outside text, left and right in so many columns, durations, windows of lists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from textual.content import Content

if TYPE_CHECKING:
    from textual.app import App
    from textual.widget import Widget

Piece: TypeAlias = str | Content | tuple[str, str]

MUTED = "$text-muted"

_CHOSEN = "$block-cursor-foreground on $block-cursor-background"
REVERSED = "reverse"  # where the terminal's colours are used, or none


def chosen_style(widget: Widget) -> str:
    """How the chosen row of a list looks. Textual's own component styles lose `reverse`, so it is given to the text."""
    app = cast("App[object]", widget.app)  # pyright: ignore[reportUnknownMemberType]
    return REVERSED if app.native_ansi_color else _CHOSEN


def content(*pieces: Piece) -> Content:
    """Pieces one after the other. Our own or already harmless text only: nothing here is markup."""
    return Content.assemble(*pieces)


def lines_of(rows: Iterable[Content]) -> Content:
    """Rows below each other."""
    return Content("\n").join(list(rows))


def fit(row: Content, width: int) -> Content:
    """A row in exactly so many columns, cut with `…` where it is too long."""
    return row.truncate(max(width, 0), ellipsis=True, pad=True)


def spread(left: Content, right: Content, width: int) -> Content:
    """One at the left edge and one at the right; where there is no room for both, the left one is cut."""
    room = width - right.cell_length
    if room < 1:
        return fit(right, width)
    return content(fit(left, room - 1), " ", right) if right.cell_length else fit(left, width)


def first_that_fits(choices: Sequence[Content], width: int) -> Content:
    """The first of them, which go from rich to poor, that has room; else the poorest, cut."""
    return next(
        (choice for choice in choices if choice.cell_length <= width), choices[-1].truncate(width, ellipsis=True)
    )


def heading(title: Content, width: int) -> Content:
    """The first line of a panel: its title on a rule."""
    room = width - 4
    name = title.truncate(max(room, 0), ellipsis=True)
    return content(("─ ", "$border"), name, (" " + "─" * max(0, room - name.cell_length + 1), "$border"))


def clock(seconds: float) -> str:
    """How long: `7 s`, `2:05`, `3:20:00`; whole seconds, so that it changes once a second at most."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def bar(share: float, cells: int) -> tuple[str, str]:
    """A share as its full and its empty cells; nothing is empty that is not, and full only what is full."""
    full = min(cells, max(0, round(share * cells)))
    if 0 < share < 1:
        full = min(max(full, 1), cells - 1)
    return "▮" * full, "▯" * (cells - full)


def window(count: int, room: int, focus: int) -> tuple[int, int]:
    """Which of `count` rows to show in `room`: begin and end, with the one in focus in the upper third."""
    if count <= room:
        return 0, count
    begin = max(0, min(focus - room // 3, count - room))
    return begin, begin + room


def windowed(rows: Sequence[Content], room: int, focus: int) -> list[Content]:
    """So many rows as there is room for, and how many more there are above and below."""
    if len(rows) <= room or room < 3:
        begin, end = window(len(rows), room, focus)
        return list(rows[begin:end])
    begin, end = window(len(rows), room, focus)
    above = begin + 1 if begin else 0
    below = len(rows) - end + 1 if end < len(rows) else 0
    shown = list(rows[begin:end])
    if above:
        shown[0] = content((f"  … {above} above", MUTED))
    if below:
        shown[-1] = content((f"  … {below} more", MUTED))
    return shown
