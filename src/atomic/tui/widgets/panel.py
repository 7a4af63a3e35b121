"""What all panels have in common: they read the screen's state and are lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from textual.content import Content
from textual.events import MouseScrollDown, MouseScrollUp
from textual.geometry import Size
from textual.widget import Widget

from atomic.tui.state.model import Screen
from atomic.tui.widgets.text import fit, lines_of

KEYS: Mapping[str, str] = {"stop": "Esc", "questions": "F6", "tasks": "Ctrl+T"}  # as they are unless remapped


def key_hint(keys: Mapping[str, str], action: str, does: str, before: str = " · ") -> str:
    """The key of an action and what it does; nothing where it has none."""
    return f"{before}{keys[action]} {does}" if keys.get(action) else ""


class Panel(Widget):
    """Lines that are made of the state. It starts no timer and asks nobody: `sync` says that something is new."""

    DEFAULT_CSS = """
    Panel { height: auto; width: 1fr; text-wrap: nowrap; text-overflow: clip; color: $text; }
    Panel.-empty { display: none; }
    """
    MOST: ClassVar[int] = 1000  # rows that it asks for where its height is its own choice

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.state = Screen()
        self.now = 0.0
        self.keys = KEYS  # what people press, for the hints
        self.shift = 0  # by how many rows the wheel has moved the list
        self._seen: list[Content] = []
        self._wanted = -1

    def rows(self, width: int, height: int) -> list[Content]:
        """The lines in so much room; no more than `height`. Pure: of `state`, `now` and `shift` alone."""
        raise NotImplementedError

    def has_something(self) -> bool:
        """Whether there is anything to show; else the panel takes no room."""
        return True

    def wanted(self) -> int:
        """How many rows it would take if there were room."""
        return len(self.rows(self.size.width or 80, self.MOST))

    def sync(self, screen: Screen, now: float) -> None:
        """Take what is new; drawn anew only if a line has changed."""
        self.state, self.now = screen, now
        something = self.has_something()
        self.set_class(not something, "-empty")  # a class: the app's style sheet may hide a panel as well
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
        """As many rows as there are lines."""
        return len(self.rows(width, min(self.MOST, container.height or self.MOST)))

    def render(self) -> Content:
        """All lines."""
        self._seen = self._now_shown()
        return lines_of(fit(row, self.size.width) for row in self._seen)

    def on_mouse_scroll_down(self, event: MouseScrollDown) -> None:
        """Move the list."""
        self._move(event, 1)

    def on_mouse_scroll_up(self, event: MouseScrollUp) -> None:
        """Move the list."""
        self._move(event, -1)

    def _move(self, event: MouseScrollDown | MouseScrollUp, by: int) -> None:
        event.stop()
        before, self.shift = self._now_shown(), self.shift + by
        if self._now_shown() == before:  # it is at its end
            self.shift -= by
        else:
            self.refresh()
