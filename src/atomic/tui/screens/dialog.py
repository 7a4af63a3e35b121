"""Parts of dialogs: a frame, and a list of drawn rows with a selected one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from textual.content import Content
from textual.events import Click, Event, MouseScrollDown, MouseScrollUp
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget

from atomic.tui.text import MUTED, REVERSED, app_of, chosen_style, content, fit, lines_of

ResultT = TypeVar("ResultT")


class Dialog(ModalScreen[ResultT], Generic[ResultT]):
    """A frame above the screen, which stays readable around it."""

    AUTO_FOCUS = ""
    DEFAULT_CSS = """
    Dialog { align: center middle; background: transparent; }
    Dialog > .frame {
        width: 96%; max-width: 104; height: auto; max-height: 100%;
        background: $surface; border: round $primary; padding: 0 1;
    }
    Dialog.-narrow > .frame { width: 100%; max-width: 100%; }
    """
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (100, "-wide")]

    def is_for(self, event: Event) -> bool:
        """Return whether a key or paste is meant for this dialog."""
        return True


@dataclass(frozen=True, slots=True)
class Item:
    """A row of a list, drawn as lines for a given width.

    Only a row with a value can be selected. If the rows do not fit, unselected rows are
    drawn with `short`.
    """

    draw: Callable[[int], Sequence[Content]]
    value: str | None = None
    short: Callable[[int], Sequence[Content]] | None = None


class RowList(Widget):
    """A list of rows in a window that follows the selection.

    The dialog handles the keys. It is not Textual's `OptionList`, which draws an option
    always in the same way: here rows that are not selected become shorter when room is
    scarce, and the first and last visible line count the hidden ones.
    """

    DEFAULT_CSS = """
    RowList { height: auto; width: 1fr; text-wrap: nowrap; text-overflow: clip; color: $text; }
    """

    class Chosen(Message):
        """A row was clicked."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.at = at

    def __init__(self, *, reserved: int) -> None:
        super().__init__()
        self.items: Sequence[Item] = ()
        self.at: int | None = None  # index of the selected item
        self._top = 0
        self.reserved = reserved  # rows that the rest of the dialog needs
        self._owners: list[int] = []  # the item of each visible line, -1 if it cannot be selected

    def show(self, items: Sequence[Item], at: int | None, *, top: bool = False) -> None:
        """Replace the rows. `top` scrolls to the first line."""
        self.items = items
        self.at = at
        self._top = 0 if top else self._top
        self.refresh(layout=True)

    def choose(self, at: int | None) -> None:
        """Select another row."""
        if at != self.at:
            self.at = at
            self.refresh()

    def step(self, by: int) -> None:
        """Select the next row, wrapping around.

        Without selectable rows scroll the window.
        """
        able = self._able()
        if not able:
            self.move(by)
            return
        before_first = -1 if by > 0 else 0
        place = able.index(self.at) if self.at in able else before_first
        self.choose(able[(place + by) % len(able)])

    def leap(self, by: int) -> None:
        """Select a row about a page further.

        Without selectable rows scroll the window.
        """
        able = self._able()
        if not able:
            self.move(by * max(1, self.size.height - 1))
            return
        place = able.index(self.at) if self.at in able else 0
        self.choose(able[min(max(0, place + by * max(1, self.size.height - 2)), len(able) - 1)])

    def move(self, by: int) -> None:
        """Scroll the window without changing the selection."""
        lines, _ = self._lines(self.size.width)
        self._top = min(max(0, self._top + by), max(0, len(lines) - self.size.height))
        self.refresh()

    def _able(self) -> list[int]:
        return [at for at, item in enumerate(self.items) if item.value is not None]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines, limited by the terminal's height."""
        lines, _ = self._lines(width)
        return max(1, min(len(lines), self._room()))

    def render(self) -> Content:
        """Draw the visible lines."""
        width = self.size.width
        height = self.size.height
        lines, owners = self._lines(width)
        self._follow(owners, height, len(lines))
        begin = self._top
        end = self._top + height
        self._owners = owners[begin:end]
        shown = [fit(row, width) for row in lines[begin:end]]
        if begin and height > 3:
            shown[0] = fit(content((f"  … {begin + 1} above", MUTED)), width)
        if end < len(lines):
            shown[-1] = fit(content((f"  … {len(lines) - end + 1} more", MUTED)), width)
        return lines_of(shown)

    def _lines(self, width: int) -> tuple[list[Content], list[int]]:
        """Return all lines, and for each the index of its item."""
        lines, owners = self._drawn(width, short=False)
        return (lines, owners) if len(lines) <= self._room() else self._drawn(width, short=True)

    def _room(self) -> int:
        return max(1, app_of(self).size.height - self.reserved)

    def _drawn(self, width: int, *, short: bool) -> tuple[list[Content], list[int]]:
        style = chosen_style(self)
        lines: list[Content] = []
        owners: list[int] = []
        for at, item in enumerate(self.items):
            draw = item.short if short and item.short is not None and at != self.at else item.draw
            drawn = draw(width)
            if at == self.at and style == REVERSED:  # another colour would become the background of its text
                drawn = [content((fit(row, width).plain, style)) for row in drawn]
            elif at == self.at:
                drawn = [fit(row, width).stylize_before(style) for row in drawn]
            lines += drawn
            owners += [at if item.value is not None else -1] * len(drawn)
        return lines, owners

    def _follow(self, owners: list[int], height: int, count: int) -> None:
        """Scroll so that the selected row is visible between the lines that count
        hidden rows.
        """
        rows = [row for row, owner in enumerate(owners) if owner == self.at and self.at is not None]
        if rows:
            last = rows[-1] + (1 if rows[-1] < count - 1 else 0)
            first = rows[0] - (1 if rows[0] else 0)
            if all(owner < 0 for owner in owners[: rows[0]]):
                # Show the lines above the first selectable row too, if there is room.
                first = 0
            self._top = max(min(self._top, first), last - height + 1)
            self._top = min(self._top, rows[0] - (1 if rows[0] and rows[-1] - rows[0] + 2 < height else 0))
        self._top = min(max(0, self._top), max(0, count - height))

    def on_click(self, event: Click) -> None:
        """Select the clicked row."""
        row = event.get_content_offset(self)
        if row is not None and row.y < len(self._owners) and self._owners[row.y] >= 0:
            event.stop()
            self.post_message(self.Chosen(self._owners[row.y]))

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Select the next row."""
        event.stop()
        self.step(1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Select the previous row."""
        event.stop()
        self.step(-1)


class DialogLine(Widget):
    """One line of a dialog, such as its title or its keys."""

    DEFAULT_CSS = """
    DialogLine { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: clip; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._draw: Callable[[int], Content] = lambda _: content()

    def show(self, draw: Callable[[int], Content]) -> None:
        """Replace the line. `draw` receives the available width."""
        self._draw = draw
        self.refresh()

    def render(self) -> Content:
        """Draw the line."""
        return fit(self._draw(self.size.width), self.size.width)


def fixed(*rows: Content) -> Item:
    """Return lines that cannot be selected."""
    return Item(lambda _: rows)


def paragraph(text: Content, indent: int = 0) -> Item:
    """Return wrapped text that cannot be selected."""
    return Item(lambda width: wrapped(text, width, indent))


def wrapped(text: Content, width: int, indent: int = 0) -> list[Content]:
    """Wrap text to a width and indent each line."""
    room = max(1, width - indent)
    return [content(" " * indent, row.rstrip()) for row in text.wrap(room)] or [content()]


def keys_line(*hints: tuple[str, str]) -> Callable[[int], Content]:
    """Return a function that draws as many key hints as fit."""

    def draw(width: int) -> Content:
        parts: list[Content] = []
        for key, does in hints:
            part = content((key, "$primary"), (f" {does}", MUTED))
            if sum(done.cell_length + 3 for done in parts) + part.cell_length > width:
                break
            parts.append(part)
        return content((" · ", MUTED)).join(parts)

    return draw
