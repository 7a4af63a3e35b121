"""Choose a model, an agent, a theme, a session or an MCP server."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from atomic.chat.protocol import PickKind, PickOpened
from atomic.tui.screens.listing import Listing
from atomic.tui.themes import textual_name

if TYPE_CHECKING:
    from textual.app import App

_NOTHING = {
    PickKind.MODEL: "The agent lists no models.",
    PickKind.PROVIDER: "No agent was found. `atomic doctor` says what each one needs.",
    PickKind.SESSION: "No runs and no conversations yet.",
    PickKind.MCP: "No MCP server is configured.",
}


class PickScreen(Listing):
    """Returns the chosen row's value, or None. The selected theme is previewed."""

    def __init__(self, pick: PickOpened) -> None:
        super().__init__(pick.title, pick.rows, nothing=_NOTHING.get(pick.kind, "Nothing to choose from."))
        self._kind = pick.kind
        self._before: str | None = None
        if pick.kind is PickKind.MCP:  # here `current` means that the server is on
            self.NO_MARK = "○"
            self.HINTS = (("⏎", "on or off"), ("↑↓", "move"), ("Esc", "close"))

    def _moved(self) -> None:
        row = self.chosen
        if self._kind is PickKind.THEME and row is not None:
            self._preview(textual_name(row.value))

    def _preview(self, theme: str) -> None:
        app = cast("App[object]", self.app)  # pyright: ignore[reportUnknownMemberType]
        self._before = app.theme if self._before is None else self._before
        if theme in app.available_themes and app.theme != theme:
            app.theme = theme

    def _finish(self, value: str | None) -> None:
        if value is None and self._before is not None:
            self._preview(self._before)
        super()._finish(value)
