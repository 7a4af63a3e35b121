"""The commands that the engine has listed, as the registry that the prompt's hints are made of."""

from __future__ import annotations

from collections.abc import Iterable

from atomic.commands import Category, Command, CommandCall, CommandContext, CommandRegistry
from atomic.tui.protocol import CommandInfo


def registry_of(commands: Iterable[CommandInfo]) -> CommandRegistry:
    """A registry to look things up in; what a command does is the engine's business."""
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
