"""The lists of the screen: help, palette, keys, and the pickers of the engine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from atomic.chat.protocol import CommandInfo, PickKind, PickOpened, PickRow
from atomic.tui.screens.listing import Listing
from atomic.tui.text import short_hint
from atomic.tui.themes import textual_name

if TYPE_CHECKING:
    from textual.app import App

GROUPS = {
    "builtin": "Slash Commands",
    "command": "Slash Commands",
    "workflow": "Workflows",
    "skill": "Skills",
    "agent": "Sub-Agents",
}
COMMAND = "/"  # prefix of a command's value in the palette; an action's value is its name
_NOTHING = {
    PickKind.MODEL: "The agent lists no models.",
    PickKind.PROVIDER: "No agent was found. `atomic doctor` says what each one needs.",
    PickKind.SESSION: "No runs and no conversations yet.",
    PickKind.MCP: "No MCP server is configured.",
}


class HelpScreen(Listing):
    """All commands by category. Returns the name of one, or None."""

    HINTS = (("⏎", "insert"), ("↑↓", "move"), ("Esc", "close"))

    def __init__(self, commands: Sequence[CommandInfo]) -> None:
        super().__init__("Help", command_rows(commands), nothing="The commands are still being read.")


def command_rows(commands: Sequence[CommandInfo]) -> list[PickRow]:
    """Return the visible commands grouped as in `/help`.

    Aliases are part of the detail.
    """
    groups: dict[str, list[PickRow]] = {group: [] for group in GROUPS.values()}
    for command in commands:
        if command.hidden:
            continue
        label = f"/{command.name} {short_hint(command.argument_hint)}".rstrip()
        detail = command.description
        if command.aliases:
            detail += f" (also {', '.join('/' + alias for alias in command.aliases)})"
        group = GROUPS.get(command.category, "Slash Commands")
        groups[group].append(PickRow(command.name, label, detail, group))
    return [row for rows in groups.values() for row in rows]


@dataclass(frozen=True, slots=True)
class Action:
    """A key action: name in the key table, description and keys."""

    name: str
    description: str
    keys: str = ""


class PaletteScreen(Listing):
    """Returns `/name` of a command, the name of an action, or None."""

    HINTS = (("⏎", "do it"), ("↑↓", "move"), ("Esc", "close"))

    def __init__(self, commands: Sequence[CommandInfo], actions: Sequence[Action]) -> None:
        acts = [PickRow(action.name, action.description, action.keys, "Actions") for action in actions]
        rows = [PickRow(COMMAND + row.value, row.label, row.detail, row.group) for row in command_rows(commands)]
        super().__init__("What do you want to do?", [*acts, *rows])


class KeysScreen(Listing):
    """Rows of keys, action and place, to read and to filter."""

    CHOOSES = False
    HINTS = (("↑↓", "scroll"), ("Esc", "close"))

    def __init__(self, rows: Sequence[tuple[str, str, str]]) -> None:
        super().__init__("Keys", [PickRow(keys, keys, does, where) for keys, does, where in rows])

    def _number(self, rows: Sequence[PickRow]) -> int:
        """Count keys: a row may have several."""
        return sum(len(row.label.split(", ")) for row in rows)


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
