"""The first picture, in plain ANSI, before anything heavy is imported: what the screen itself paints a moment later."""

from __future__ import annotations

import os

DIM, REVERSE, PLAIN = "\x1b[2m", "\x1b[7m", "\x1b[0m"
HINT = "⏎ send · Ctrl+J newline · / commands · @ files · ! shell · ? keys"
NAME = "atomic"


def first_frame(columns: int, rows: int, project: str, *, colours: bool) -> str:
    """Header, an empty transcript, the prompt and its hint, each where the screen will have it."""
    lines = {1: _header(columns, project), rows - 2: "─" * columns, rows - 1: _prompt(columns), rows: _cut(f" {HINT}", columns)}
    dim, plain = (DIM, PLAIN) if colours else ("", "")
    shown = {row: text for row, text in lines.items() if row >= 1}
    parts = [f"\x1b[{row};1H{text if row == rows - 1 else dim + text + plain}" for row, text in sorted(shown.items())]
    return "".join(parts)


def _header(columns: int, project: str) -> str:
    left = f" {NAME}"
    room = columns - len(left) - 2
    return left if room < 4 else f"{left}{_cut_left(project, room).rjust(room)} "


def _prompt(columns: int) -> str:
    return _cut(" › ", columns - 1) + f"{REVERSE} {PLAIN}"


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: max(0, columns - 1)] + "…"


def _cut_left(text: str, columns: int) -> str:
    return text if len(text) <= columns else "…" + text[1 - columns :]


def project_name(folder: str, home: str) -> str:
    """A folder as a person writes it; what a terminal would obey is not in it."""
    inside = home and (folder == home or folder.startswith(home.rstrip("/") + "/"))
    text = "~" + folder[len(home.rstrip("/")) :] if inside else folder
    return "".join(sign if sign.isprintable() else "�" for sign in text)


def frame_here() -> str:
    """The first frame for this terminal and this folder."""
    size = os.get_terminal_size(1)
    try:
        folder = os.getcwd()
    except OSError:
        folder = ""  # it was deleted under us
    project = project_name(folder, os.environ.get("HOME", ""))
    return first_frame(size.columns or 80, size.lines or 24, project, colours=not os.environ.get("NO_COLOR"))
