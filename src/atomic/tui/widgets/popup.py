"""The lists at the prompt: suggestions below it, and above it the texts that wait for
the agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content, Span
from textual.message import Message
from textual.widget import Widget

from atomic.tui.text import HINT_COLUMNS, cells, chosen_style, fit_text, lines_of, one_line, short_hint

if TYPE_CHECKING:
    from textual import events

    from atomic.tui.suggestions import Suggestion

ROWS = 8
QUEUE_ROWS = 3
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
            return Content(fit_text(self._note, width))
        shown = self._rows[self._first : self._first + self.content_size.height]
        table = _table(shown, self.screen.size.width)
        rows = enumerate(zip(shown, table, strict=True), self._first)
        return lines_of(self._line(row, text, index, width) for index, (row, text) in rows)

    def _line(self, row: Suggestion, text: str, index: int, width: int) -> Content:
        is_chosen = index == self._chosen
        more = self._more(index)
        line = ("▸ " if is_chosen else "  ") + fit_text(text, width - 2 - len(more), pad=True) + more
        if is_chosen:
            return Content(line, spans=[Span(0, len(line), f"bold {chosen_style(self)}")])
        return Content(line, spans=[Span(2, min(2 + len(row.label), len(line)), "$text")])

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
    table: list[str] = []
    for row in rows:
        parts = [fit_text(row.label, names, pad=True)]
        if with_hints:
            parts.append(fit_text(short_hint(row.hint), HINT_COLUMNS, pad=True))
        if with_descriptions:
            parts.append(row.description)
        table.append("  ".join(parts).rstrip())
    return table


class QueueView(Widget):
    """The queued texts, the next one first."""

    DEFAULT_CSS = """
    QueueView {
        height: auto;
        display: none;
        padding: 0 1;
        color: $text-muted;
    }
    """

    def __init__(self) -> None:
        super().__init__(id="queue", markup=False)
        self._texts: tuple[str, ...] = ()

    def show(self, texts: Sequence[str]) -> None:
        """Show these texts. Hidden if there are none."""
        if tuple(texts) == self._texts:
            return
        self._texts = tuple(texts)
        self.display = bool(texts)
        self.styles.height = min(len(texts), QUEUE_ROWS)
        self.refresh()

    def render(self) -> Content:
        width = self.content_size.width
        shown = self._texts[:QUEUE_ROWS]
        hidden = len(self._texts) - len(shown)
        rows: list[Content] = []
        for number, text in enumerate(shown, 1):
            end = ""
            if number == len(shown):
                end = f"  +{hidden}" if hidden else "  ↑ edits"
            if len(end) + 12 >= width:
                end = ""
            line = f"{number} {fit_text(one_line(text), width - 2 - len(end), pad=bool(end))}{end}"
            rows.append(Content(line, spans=[Span(0, 2, "bold $primary")]))
        return lines_of(rows)
