"""Render the welcome text of an empty conversation: first steps, or how to get an
agent.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from atomic.tui.state.model import BlockKind, Screen
from atomic.tui.text import cells, fit_text, one_line
from atomic.tui.transcript.palette import Palette
from atomic.tui.transcript.rows import length, wrap

_BOLD = Style(bold=True)
_INDENT = 3
_ASIDE = {BlockKind.NOTICE, BlockKind.WARNING, BlockKind.ERROR}  # blocks that may come before the first prompt
_FEW = 4  # more of them replace the welcome text

_READY = (
    ('/ralph "…"', "plan, build and review"),
    ("/sessions", "go on with earlier work"),
    ("@file", "show the agent a file"),
    ("!command", "run it in your shell"),
    ("?", "all keys"),
)
_NO_AGENT = (
    ("atomic doctor", "what each one needs"),
    ("atomic demo", "a run without one"),
    ("/agent", "choose one"),
    ("?", "all keys"),
)


def is_welcome(screen: Screen) -> bool:
    """Return whether nothing has been sent or started. Early notices do not count."""
    blocks = screen.blocks
    return not screen.runs and len(blocks) <= _FEW and all(block.kind in _ASIDE for block in blocks)


def welcome(screen: Screen, width: int, height: int, palette: Palette) -> list[Strip]:
    """Return the lines that fit. The list of hints takes precedence over the title."""
    status = screen.status
    has_none = bool(status.problem) and not status.provider  # the reason is shown above
    hints = _NO_AGENT if has_none else _READY
    title = f"Ask {one_line(status.provider) or 'the agent'} for something, or let a workflow do it."
    room = max(1, width - _INDENT - 1)
    head = [*wrap([(title, palette.text + _BOLD)], room), []]
    keys = max(cells(key) for key, _ in hints) + 2
    if keys + max(cells(does) for _, does in hints) > room:  # only what to type
        rows = [[Segment(fit_text(key, room), palette.primary)] for key, _ in hints]
    else:
        rows = [[Segment(f"{key:<{keys}}", palette.primary), Segment(does, palette.muted)] for key, does in hints]
    if has_none or len(head) + len(rows) + 1 > height:
        head = []
    strips: list[Strip] = []
    for row in [[], *head, *rows][: max(0, height)]:
        indented = [Segment(" " * _INDENT, palette.text), *row]
        end = Segment(" " * max(0, width - length(indented)), palette.text)
        strips.append(Strip([*indented, end], max(width, length(indented))))
    return strips
