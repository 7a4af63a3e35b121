"""List all commands by category. Enter puts one into the prompt."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size

from atomic.chat.protocol import CommandInfo, PickRow
from atomic.tui.screens.listing import Listing

GROUPS = {
    "builtin": "Slash Commands",
    "command": "Slash Commands",
    "workflow": "Workflows",
    "skill": "Skills",
    "agent": "Sub-Agents",
}
_HINT_CUT = 20
_HINT_MOST = 23


class HelpScreen(Listing):
    """Returns the name of a command, or None."""

    HINTS = (("⏎", "insert"), ("↑↓", "move"), ("Esc", "close"))

    def __init__(self, commands: Sequence[CommandInfo]) -> None:
        super().__init__("Help", command_rows(commands), nothing="The commands are still being read.")


def command_rows(commands: Sequence[CommandInfo]) -> list[PickRow]:
    """Return the visible commands grouped as in `/help`. Aliases are part of the detail."""
    places = list(dict.fromkeys(GROUPS.values()))
    shown = [command for command in commands if not command.hidden]
    shown.sort(key=lambda command: places.index(_group(command)))  # a stable sort keeps the order inside a group
    return [PickRow(command.name, _label(command), _detail(command), _group(command)) for command in shown]


def short_hint(hint: str) -> str:
    """Shorten an argument hint: longer than 23 columns, it becomes 20 columns and `...`."""
    return hint if cell_len(hint) <= _HINT_MOST else set_cell_size(hint, _HINT_CUT) + "..."


def _label(command: CommandInfo) -> str:
    return f"/{command.name} {short_hint(command.argument_hint)}".rstrip()


def _detail(command: CommandInfo) -> str:
    also = f" (also {', '.join('/' + alias for alias in command.aliases)})" if command.aliases else ""
    return command.description + also


def _group(command: CommandInfo) -> str:
    return GROUPS.get(command.category, "Slash Commands")
