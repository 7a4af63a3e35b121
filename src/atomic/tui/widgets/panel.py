"""Base of the panels: they draw lines from the screen's state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.content import Content
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Size
from textual.widget import Widget

from atomic.tui.state.model import Screen
from atomic.tui.text import fit, lines_of

KEYS: Mapping[str, str] = {"stop": "Esc", "questions": "F6", "tasks": "Ctrl+T"}  # defaults; they can be remapped


def key_hint(keys: Mapping[str, str], action: str, does: str, before: str = " · ") -> str:
    """Return the key of an action and its description, or an empty string without a
    key.
    """
    return f"{before}{keys[action]} {does}" if keys.get(action) else ""


class Panel(Widget):
    """Lines drawn from the state. It has no timer: `sync` passes a new state."""

    DEFAULT_CSS = """
    Panel { height: auto; width: 1fr; text-wrap: nowrap; text-overflow: clip; color: $text; }
    Panel.-empty { display: none; }
    """
    MOST: ClassVar[int] = 1000  # rows to request if its height is automatic

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.state = Screen()
        self.now = 0.0
        self.keys = KEYS  # shown in hints
        self.shift = 0  # rows that the wheel has scrolled
        self._seen: list[Content] = []
        self._wanted = -1

    def rows(self, width: int, height: int) -> list[Content]:
        """Return at most `height` lines.

        Pure: depends only on `state`, `now` and `shift`.
        """
        raise NotImplementedError

    def has_something(self) -> bool:
        """Return whether there is anything to show. An empty panel takes no room."""
        return True

    def wanted(self) -> int:
        """Return the number of rows it would use."""
        return len(self.rows(self.size.width or 80, self.MOST))

    def sync(self, screen: Screen, now: float) -> None:
        """Take a new state and redraw if a line has changed."""
        self.state = screen
        self.now = now
        something = self.has_something()
        self.set_class(not something, "-empty")  # a class, because the app's style sheet may hide a panel as well
        if not something:
            return
        wanted = self.wanted() if self.styles.is_auto_height else self._wanted
        if wanted != self._wanted:
            self._wanted = wanted
            self.refresh(layout=True)
        elif self._now_shown() != self._seen:
            self.refresh()

    def _now_shown(self) -> list[Content]:
        return self.rows(self.size.width, self.size.height)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines."""
        return len(self.rows(width, min(self.MOST, container.height or self.MOST)))

    def render(self) -> Content:
        """Draw the lines."""
        self._seen = self._now_shown()
        return lines_of(fit(row, self.size.width) for row in self._seen)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Scroll down."""
        self._move(event, 1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Scroll up."""
        self._move(event, -1)

    def _move(self, event: MouseScrollDown | MouseScrollUp, by: int) -> None:
        event.stop()
        before = self._now_shown()
        self.shift = self.shift + by
        if self._now_shown() == before:  # it is at its end
            self.shift -= by
        else:
            self.refresh()
