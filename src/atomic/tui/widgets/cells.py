"""Text in cells: cut and filled to a width, as a terminal counts it, and harmless."""

from __future__ import annotations

from rich.cells import cell_len, chop_cells

__all__ = ["cell_len", "fit", "one_line"]

# Nothing from outside may move the cursor or hide: control characters, bidi and zero-width signs are shown as signs.
_SIGNS = {
    **{code: 0x2400 + code for code in range(0x20)},
    0x7F: 0x2421,
    **dict.fromkeys(
        (*range(0x80, 0xA0), 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x206A)), 0xFFFD
    ),
    0xFEFF: 0xFFFD,
}


def one_line(text: str) -> str:
    """A text as one line that a terminal only shows."""
    return " ".join(text.split()).translate(_SIGNS)


def fit(text: str, width: int, mark: str = "…", *, pad: bool = False) -> str:
    """One line of at most so many cells; `pad` fills it up."""
    text = one_line(text) if not text.isprintable() else text
    length = cell_len(text)
    if length > width:
        room = width - cell_len(mark)
        text = (chop_cells(text, room)[0] + mark) if room > 0 else mark[: max(0, width)]
        length = cell_len(text)
    return text + " " * (width - length) if pad else text
