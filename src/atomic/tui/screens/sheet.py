"""What dialogs are made of: a frame, and in it a list that is drawn as lines and knows which row is chosen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar, cast

from textual.content import Content
from textual.events import Click, Event, MouseScrollDown, MouseScrollUp
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen
from textual.widget import Widget

from atomic.tui.widgets.text import MUTED, REVERSED, chosen_style, content, fit, lines_of

if TYPE_CHECKING:
    from textual.app import App

ResultT = TypeVar("ResultT")


class Dialog(ModalScreen[ResultT], Generic[ResultT]):
    """A frame over the screen below, which stays readable."""

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
    """A row of a sheet: its lines in so many columns; what cannot be chosen has no value.

    Where not all rows have room, those that are not chosen are drawn short.
    """

    draw: Callable[[int], Sequence[Content]]
    value: str | None = None
    short: Callable[[int], Sequence[Content]] | None = None


class Sheet(Widget):
    """Rows below each other in a window that follows the chosen one. The screen around it has the keys."""

    DEFAULT_CSS = """
    Sheet { height: auto; width: 1fr; text-wrap: nowrap; text-overflow: clip; color: $text; }
    """

    class Chosen(Message):
        """A row was clicked."""

        def __init__(self, at: int) -> None:
            super().__init__()
            self.at = at

    def __init__(self, *, reserved: int) -> None:
        super().__init__()
        self.items: Sequence[Item] = ()
        self.at: int | None = None  # which item is chosen
        self._top = 0
        self.reserved = reserved  # rows of the dialog around it
        self._owners: list[int] = []  # for each line that is shown its item, -1 for none

    def show(self, items: Sequence[Item], at: int | None, *, top: bool = False) -> None:
        """Take new rows; `top` begins at the first line again."""
        self.items, self.at = items, at
        self._top = 0 if top else self._top
        self.refresh(layout=True)

    def choose(self, at: int | None) -> None:
        """Mark another row."""
        if at != self.at:
            self.at = at
            self.refresh()

    def step(self, by: int) -> None:
        """Mark the next row that can be chosen, round the ends; where there is none, move the window."""
        able = self._able()
        if not able:
            self.move(by)
            return
        place = able.index(self.at) if self.at in able else -1 if by > 0 else 0
        self.choose(able[(place + by) % len(able)])

    def leap(self, by: int) -> None:
        """Mark a row about a page further, or move the window where nothing can be chosen."""
        able = self._able()
        if not able:
            self.move(by * max(1, self.size.height - 1))
            return
        place = able.index(self.at) if self.at in able else 0
        self.choose(able[min(max(0, place + by * max(1, self.size.height - 2)), len(able) - 1)])

    def move(self, by: int) -> None:
        """Move the window alone."""
        lines, _ = self._lines(self.size.width)
        self._top = min(max(0, self._top + by), max(0, len(lines) - self.size.height))
        self.refresh()

    def _able(self) -> list[int]:
        return [at for at, item in enumerate(self.items) if item.value is not None]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """All lines, as far as the terminal has room."""
        lines, _ = self._lines(width)
        return max(1, min(len(lines), self._room()))

    def render(self) -> Content:
        """The window."""
        width, height = self.size.width, self.size.height
        lines, owners = self._lines(width)
        self._follow(owners, height, len(lines))
        begin, end = self._top, self._top + height
        self._owners = owners[begin:end]
        shown = [fit(row, width) for row in lines[begin:end]]
        if begin and height > 3:
            shown[0] = fit(content((f"  … {begin + 1} above", MUTED)), width)
        if end < len(lines):
            shown[-1] = fit(content((f"  … {len(lines) - end + 1} more", MUTED)), width)
        return lines_of(shown)

    def _lines(self, width: int) -> tuple[list[Content], list[int]]:
        """All lines, and for each the item that it belongs to."""
        lines, owners = self._drawn(width, short=False)
        return (lines, owners) if len(lines) <= self._room() else self._drawn(width, short=True)

    def _room(self) -> int:
        return max(1, _app(self).size.height - self.reserved)

    def _drawn(self, width: int, *, short: bool) -> tuple[list[Content], list[int]]:
        lines: list[Content] = []
        owners: list[int] = []
        for at, item in enumerate(self.items):
            draw = item.short if short and item.short is not None and at != self.at else item.draw
            drawn = [self._marked(row, width) for row in draw(width)] if at == self.at else draw(width)
            lines += drawn
            owners += [at if item.value is not None else -1] * len(drawn)
        return lines, owners

    def _marked(self, row: Content, width: int) -> Content:
        style, row = chosen_style(self), fit(row, width)
        if style == REVERSED:  # a colour of its own would become the background of that piece
            return content((row.plain, style))
        return row.stylize_before(style)

    def _follow(self, owners: list[int], height: int, count: int) -> None:
        """Keep the chosen row in the window, between the lines that say how many more there are."""
        rows = [row for row, owner in enumerate(owners) if owner == self.at and self.at is not None]
        if rows:
            last = rows[-1] + (1 if rows[-1] < count - 1 else 0)
            first = rows[0] - (1 if rows[0] else 0)
            if all(owner < 0 for owner in owners[: rows[0]]):
                first = 0  # what stands above the first row that can be chosen is seen too, if there is room
            self._top = max(min(self._top, first), last - height + 1)
            self._top = min(self._top, rows[0] - (1 if rows[0] and rows[-1] - rows[0] + 2 < height else 0))
        self._top = min(max(0, self._top), max(0, count - height))

    def on_click(self, event: Click) -> None:
        """A click on a row chooses it."""
        row = event.get_content_offset(self)
        if row is not None and row.y < len(self._owners) and self._owners[row.y] >= 0:
            event.stop()
            self.post_message(self.Chosen(self._owners[row.y]))

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """The next row."""
        event.stop()
        self.step(1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """The row before."""
        event.stop()
        self.step(-1)


class Row(Widget):
    """One line of a dialog, such as its title or its keys."""

    DEFAULT_CSS = """
    Row { height: 1; width: 1fr; text-wrap: nowrap; text-overflow: clip; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._draw: Callable[[int], Content] = lambda _: content()

    def show(self, draw: Callable[[int], Content]) -> None:
        """Take a new line, made for the width that there is."""
        self._draw = draw
        self.refresh()

    def render(self) -> Content:
        """The line."""
        return fit(self._draw(self.size.width), self.size.width)


def _app(widget: Widget) -> App[object]:
    return cast("App[object]", widget.app)  # pyright: ignore[reportUnknownMemberType]


def fixed(*rows: Content) -> Item:
    """Lines that cannot be chosen."""
    return Item(lambda _: rows)


def paragraph(text: Content, indent: int = 0) -> Item:
    """A text that is wrapped and cannot be chosen."""
    return Item(lambda width: wrapped(text, width, indent))


def wrapped(text: Content, width: int, indent: int = 0) -> list[Content]:
    """A text in lines of so many columns, all of them moved to the right."""
    room = max(1, width - indent)
    return [content(" " * indent, row.rstrip()) for row in text.wrap(room)] or [content()]


def keys_line(*hints: tuple[str, str]) -> Callable[[int], Content]:
    """The keys of a dialog: as many of them as there is room for."""

    def draw(width: int) -> Content:
        parts: list[Content] = []
        for key, does in hints:
            part = content((key, "$primary"), (f" {does}", MUTED))
            if sum(done.cell_length + 3 for done in parts) + part.cell_length > width:
                break
            parts.append(part)
        return content((" · ", MUTED)).join(parts)

    return draw
