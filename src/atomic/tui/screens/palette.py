"""Ctrl+P: everything that can be done, by its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from atomic.tui.protocol import CommandInfo, PickRow
from atomic.tui.screens.help import command_rows
from atomic.tui.screens.listing import Listing

COMMAND = "/"  # before the value of a row that is a command; an action's is its name alone


@dataclass(frozen=True, slots=True)
class Action:
    """Something that a key does as well: its name in the table of keys, the words, and the keys."""

    name: str
    description: str
    keys: str = ""


class PaletteScreen(Listing):
    """It ends with `/name` of a command, the name of an action, or None."""

    HINTS = (("⏎", "do it"), ("↑↓", "move"), ("Esc", "close"))

    def __init__(self, commands: Sequence[CommandInfo], actions: Sequence[Action]) -> None:
        acts = [PickRow(action.name, action.description, action.keys, "Actions") for action in actions]
        rows = [PickRow(COMMAND + row.value, row.label, row.detail, row.group) for row in command_rows(commands)]
        super().__init__("What do you want to do?", [*acts, *rows])
