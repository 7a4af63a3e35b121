"""Clean untrusted text for the screen, and measure and cut it in cells."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells

from atomic.base import terminal

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


def fit(text: str, width: int, mark: str = "…", *, pad: bool = False) -> str:
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
    return fit(hint, HINT_COLUMNS, "...")
