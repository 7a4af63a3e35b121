"""Clean text and fit it to a width in cells."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells

from atomic.tui.clean_text import harmless

__all__ = ["cell_len", "fit"]


def fit(text: str, width: int, mark: str = "…", *, pad: bool = False) -> str:
    """Return one line of at most `width` cells; `pad` fills it up."""
    text = harmless(text.replace("\n", " ").replace("\r", " "))
    length = cell_len(text)
    if length > width:
        room = width - cell_len(mark)
        text = (chop_cells(text, room)[0] + mark) if room > 0 else mark[: max(0, width)]
        length = cell_len(text)
    return text + " " * (width - length) if pad else text
