"""The list below the prompt: commands, files and agents, or earlier prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content, Span
from textual.message import Message
from textual.widget import Widget

from atomic.tui.text import HINT_COLUMNS, cells, fit, short_hint
from atomic.tui.widgets.text import chosen_style

if TYPE_CHECKING:
    from textual import events

    from atomic.tui.suggestions import Suggestion

ROWS = 8
NAME_COLUMNS = 20
# Columns of the screen.
ROOM_FOR_HINT = 60
ROOM_FOR_DESCRIPTION = 40


class Popup(Widget):
    """Shows the rows around the selected one.

    Its only own state is the scroll position.
    """

    DEFAULT_CSS = """
    Popup {
        height: auto;
        display: none;
        padding: 0 1;
        color: $text-muted;
    }
    """

    class Taken(Message):
        """A row was clicked."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self) -> None:
        super().__init__(id="popup", markup=False)
        self._rows: Sequence[Suggestion] = ()
        self._chosen = 0
        self._first = 0
        self._note = ""

    def show(self, rows: Sequence[Suggestion], chosen: int, note: str = "", *, most: int = ROWS) -> None:
        """Show these rows, or hide the list if there are none."""
        if (rows, chosen, note) == (self._rows, self._chosen, self._note):
            return
        self._rows = rows
        self._chosen = chosen
        self._note = note
        count = min(len(rows), max(1, most))
        self._first = min(max(self._first, chosen - count + 1), chosen, max(0, len(rows) - count))
        height = count or int(bool(note))
        self.display = height > 0
        if self.styles.height is None or self.styles.height.value != height:
            self.styles.height = height
        self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        if not self._rows:
            return Content(fit(self._note, width))
        shown = self._rows[self._first : self._first + self.content_size.height]
        table = _table(shown, self.screen.size.width)
        lines = [
            self._line(row, text, self._first + at, width)
            for at, (row, text) in enumerate(zip(shown, table, strict=True))
        ]
        return Content("\n").join(lines)

    def _line(self, row: Suggestion, text: str, index: int, width: int) -> Content:
        is_chosen = index == self._chosen
        mark = "▸ " if is_chosen else "  "
        more = self._more(index)
        room = width - len(mark) - len(more)
        line = mark + fit(text, room, pad=True) + more
        name_end = len(mark) + len(row.label)
        style = f"bold {chosen_style(self)}" if is_chosen else ""
        spans = [Span(0, len(line), style)] if style else [Span(len(mark), min(name_end, len(line)), "$text")]
        return Content(line, spans=spans)

    def _more(self, index: int) -> str:
        """Return how many rows are hidden, at the ends of the visible part."""
        last = self._first + self.content_size.height - 1
        if index == self._first and self._first > 0:
            return f" ↑{self._first}"
        beyond = len(self._rows) - 1 - last
        return f" ↓{beyond}" if index == last and beyond > 0 else ""

    def on_click(self, event: events.Click) -> None:
        at = event.get_content_offset(self)
        if at is not None and self._rows:
            event.stop()
            self.post_message(self.Taken(min(self._first + at.y, len(self._rows) - 1)))


def _table(rows: Sequence[Suggestion], screen: int) -> list[str]:
    """Align names, hints and descriptions in as many columns as fit."""
    with_hints = screen >= ROOM_FOR_HINT and any(row.hint for row in rows)
    with_descriptions = screen >= ROOM_FOR_DESCRIPTION and any(row.description for row in rows)
    names = max((cells(row.label) for row in rows), default=0)  # without a size no row is shown
    names = max(NAME_COLUMNS, min(names, screen // 3)) if with_hints or with_descriptions else names
    return [_columns(row, names, with_hints, with_descriptions) for row in rows]


def _columns(row: Suggestion, names: int, with_hint: bool, with_description: bool) -> str:
    parts = [fit(row.label, names, pad=True)]
    if with_hint:
        parts.append(fit(short_hint(row.hint), HINT_COLUMNS, pad=True))
    if with_description:
        parts.append(row.description)
    return "  ".join(parts).rstrip()
