"""Build the command registry for the prompt's hints from the engine's list."""

from __future__ import annotations

from collections.abc import Iterable

from atomic.chat.protocol import CommandInfo
from atomic.commands import Category, Command, CommandCall, CommandContext, CommandRegistry


def registry_of(commands: Iterable[CommandInfo]) -> CommandRegistry:
    """Return a registry to look commands up. The engine runs them, so they have no handler."""
    return CommandRegistry.of(
        Command(
            info.name,
            info.description,
            Category(info.category),
            _by_the_engine,
            info.aliases,
            info.argument_hint,
            info.hidden,
        )
        for info in commands
    )


async def _by_the_engine(call: CommandCall, context: CommandContext) -> None:
    raise AssertionError(f"/{call.name} is run by the engine")
