"""Text of the screen: clean what is untrusted, measure and cut strings in cells, and put
styled lines of panels and dialogs together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias, cast

from rich.cells import cell_len, chop_cells
from textual.content import Content

from atomic.base import terminal

if TYPE_CHECKING:
    from textual.app import App
    from textual.widget import Widget

Piece: TypeAlias = str | Content | tuple[str, str]

MUTED = "$text-muted"

_CHOSEN = "$block-cursor-foreground on $block-cursor-background"
REVERSED = "reverse"  # for terminal colours or no colours

HINT_COLUMNS = 23  # of an argument hint such as `<file> [--flag]`
_TAB = 4


def harmless(text: str) -> str:
    """Return text that a terminal can only display. Keeps line breaks, expands tabs."""
    if text.isascii() and text.isprintable():
        return text
    return terminal.without_joiners(terminal.harmless(text)).expandtabs(_TAB)


def one_line(text: str) -> str:
    """Return the cleaned text as one line."""
    return harmless(" ".join(text.split()))


def cells(text: str) -> int:
    """Return the number of columns of a text."""
    return len(text) if text.isascii() else cell_len(text)


def fit_text(text: str, width: int, mark: str = "…", *, pad: bool = False) -> str:
    """Return one cleaned line of at most `width` cells; `pad` fills it up."""
    text = harmless(text.replace("\n", " ").replace("\r", " "))
    length = cells(text)
    if length > width:
        room = width - cells(mark)
        text = (chop_cells(text, room)[0] + mark) if room > 0 else mark[: max(0, width)]
        length = cells(text)
    return text + " " * (width - length) if pad else text


def short_hint(hint: str) -> str:
    """Cut an argument hint to 23 columns, the last three of them `...`."""
    return fit_text(hint, HINT_COLUMNS, "...")


def chosen_style(widget: Widget) -> str:
    """Return the style of a selected row.

    Textual's component styles lose `reverse`, so it is applied to the text.
    """
    return REVERSED if app_of(widget).native_ansi_color else _CHOSEN


def app_of(widget: Widget) -> App[object]:
    """Return a widget's app. Textual does not say of what type its result is."""
    return cast("App[object]", widget.app)  # pyright: ignore[reportUnknownMemberType]


def content(*pieces: Piece) -> Content:
    """Join pieces of trusted or cleaned text. Markup is not interpreted."""
    return Content.assemble(*pieces)


def lines_of(rows: Iterable[Content]) -> Content:
    """Join rows with line breaks."""
    return Content("\n").join(list(rows))


def fit(row: Content, width: int) -> Content:
    """Fit a row to exactly `width` columns, cut with `…`."""
    return row.truncate(max(width, 0), ellipsis=True, pad=True)


def spread(left: Content, right: Content, width: int) -> Content:
    """Align one part left and one right. The left one is cut if both do not fit."""
    room = width - right.cell_length
    if room < 1:
        return fit(right, width)
    return content(fit(left, room - 1), " ", right) if right.cell_length else fit(left, width)


def first_that_fits(choices: Sequence[Content], width: int) -> Content:
    """Return the first choice that fits, or the last one cut."""
    return next(
        (choice for choice in choices if choice.cell_length <= width), choices[-1].truncate(width, ellipsis=True)
    )


def heading(title: Content, width: int) -> Content:
    """Return the first line of a panel: its title on a rule."""
    room = width - 4
    name = title.truncate(max(room, 0), ellipsis=True)
    return content(("─ ", "$border"), name, (" " + "─" * max(0, room - name.cell_length + 1), "$border"))


def clock(seconds: float) -> str:
    """Format a duration as `7 s`, `2:05` or `3:20:00`, in whole seconds."""
    whole = max(0, int(seconds))
    minutes, rest = divmod(whole, 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def bar(share: float, cells: int) -> tuple[str, str]:
    """Return a share as full and empty cells. Only 0 is empty and only 1 is full."""
    full = min(cells, max(0, round(share * cells)))
    if 0 < share < 1:
        full = min(max(full, 1), cells - 1)
    return "▮" * full, "▯" * (cells - full)


def window(count: int, room: int, focus: int) -> tuple[int, int]:
    """Return begin and end of the visible rows, with the focus in the upper third."""
    if count <= room:
        return 0, count
    begin = max(0, min(focus - room // 3, count - room))
    return begin, begin + room


def windowed(rows: Sequence[Content], room: int, focus: int) -> list[Content]:
    """Return the rows that fit, with counts of hidden rows at the ends."""
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
