"""The text of `/help`."""

from __future__ import annotations

from collections.abc import Iterator

from atomic.base.text import collapse_spaces, table
from atomic.commands.hints import short_hint
from atomic.commands.registry import Category, Command, CommandRegistry

ROOM_FOR_HINTS = 100  # columns; with fewer, descriptions need the room
_TITLES = {
    Category.BUILTIN: "Slash Commands",
    Category.COMMAND: "Slash Commands",
    Category.WORKFLOW: "Workflows",
    Category.SKILL: "Skills",
    Category.AGENT: "Sub-Agents",
}


def commands_help(registry: CommandRegistry, width: int) -> str:
    """Return all commands that are not hidden, by category, one per line."""
    sections: dict[str, list[Command]] = {title: [] for title in _TITLES.values()}
    for command in registry.all():
        if not command.hidden:
            sections[_TITLES[command.category]].append(command)
    commands = [command for section in sections.values() for command in section]
    lines = iter(table((_row(command, with_hint=width >= ROOM_FOR_HINTS) for command in commands), width - 2))
    return "\n\n".join(_section(title, len(section), lines) for title, section in sections.items() if section)


def _row(command: Command, *, with_hint: bool) -> tuple[str, ...]:
    hint = (short_hint(command.argument_hint),) if with_hint else ()
    return f"/{command.name}", *hint, command.description


def _section(title: str, count: int, lines: Iterator[str]) -> str:
    return "\n".join([title, *(f"  {next(lines)}" for _ in range(count))])


def command_help(command: Command, registry: CommandRegistry) -> str:
    """Return one command in detail: its arguments, its file and what it hides."""
    hidden = [one for one in registry.shadowed() if one.by is command and one.word == one.command.name]
    hides = [*command.hides, *(_described(one.command) for one in hidden)]
    lines = [
        f"/{command.name} {command.argument_hint}".rstrip(),
        collapse_spaces(command.description),
        "",
        f"category: {_TITLES[command.category]}",
        f"aliases: {', '.join(f'/{alias}' for alias in command.aliases)}" if command.aliases else "",
        f"from: {command.origin}" if command.origin else "",
        *(f"hides: {what}" for what in hides),
        *_flags(command),
    ]
    return "\n".join(line for place, line in enumerate(lines) if line or place == 2)


def _flags(command: Command) -> list[str]:
    """Return the flags of a command, one per line; flags of all workflows are in their --help."""
    if not command.flags:
        return []
    rows = (f"  {line}" for line in table(command.flags))
    return ["flags, before the prompt:", *rows, f"flags of every run: /{command.name} --help"]


def _described(command: Command) -> str:
    origin = f", {command.origin}" if command.origin else ""
    return f"the {command.category} /{command.name}{origin}"
