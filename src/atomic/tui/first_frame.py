"""Draw the first frame in plain ANSI before anything heavy is imported.

It looks like the frame that the screen paints a moment later.
"""

from __future__ import annotations

import os

DIM = "\x1b[2m"
REVERSE = "\x1b[7m"
PLAIN = "\x1b[0m"
HINT = "⏎ send · Ctrl+J newline · / commands · @ files · ! shell · ? keys"
NAME = "atomic"


def first_frame(columns: int, rows: int, *, colours: bool) -> str:
    """Return the frame: header, empty transcript, prompt and key hints at their final rows."""
    lines = {1: f" {NAME}", rows - 2: "─" * columns, rows - 1: " › ", rows: f" {HINT}"}
    dim, plain = (DIM, PLAIN) if colours else ("", "")
    parts = [f"\x1b[{row};1H{dim}{_cut(text, columns)}{plain}" for row, text in sorted(lines.items()) if row >= 1]
    return "".join(parts) + (f"\x1b[{rows - 1};4H{REVERSE} {PLAIN}" if rows > 1 and columns > 3 else "")


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: max(0, columns - 1)] + "…"


def frame_here() -> str:
    """Return the first frame for this terminal."""
    size = os.get_terminal_size(1)
    return first_frame(size.columns or 80, size.lines or 24, colours=not os.environ.get("NO_COLOR"))
