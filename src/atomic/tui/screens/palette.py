"""List commands and key actions by name (Ctrl+P)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atomic.chat.protocol import CommandInfo, PickRow
from atomic.tui.screens.help import command_rows
from atomic.tui.screens.listing import Listing

COMMAND = "/"  # prefix of a command's value; an action's value is its name


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
