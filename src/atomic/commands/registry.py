"""Find a slash command by its name, and list commands that begin with the typed text.

Names are compared without case. Registering a name that is taken is an error.
`CommandRegistry.of` is lenient: it joins the files of every tool, and keeps a command
that loses its name as hidden by the winner.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

import msgspec

from atomic.base.errors import AtomicError, did_you_mean
from atomic.base.lazy_types import deferred
from atomic.base.text import fold
from atomic.commands.parse import CommandCall

if TYPE_CHECKING:
    from atomic.commands.context import CommandContext
else:
    CommandContext = deferred("atomic.commands.context", "CommandContext")

Run = Callable[[CommandCall, CommandContext], Awaitable[None]]


class CommandError(AtomicError):
    """A slash command failed."""


class CommandClashError(CommandError):
    """A name or an alias is taken."""

    def __init__(self, word: str, command: str, taken_by: str) -> None:
        self.word = word
        self.command = command
        self.taken_by = taken_by
        owner = f'"/{taken_by}"' if taken_by.casefold() == word.casefold() else f'an alias of "/{taken_by}"'
        what = "The name" if word == command else f'The alias "/{word}" of'
        super().__init__(f'{what} "/{command}" is taken: there is {owner} already')


class CommandNotFoundError(CommandError):
    """No command has that name."""

    def __init__(self, name: str, known: Iterable[str]) -> None:
        self.name = name
        hint = did_you_mean(name, known, otherwise="/help lists them", prefix="/")
        super().__init__(f'Command not found: "/{name}"{hint}')


class CommandUsageError(CommandError):
    """The arguments of a command are invalid."""


class UnsupportedError(CommandError):
    """The host cannot run this command."""


class BusyError(CommandError):
    """The command has to wait for the end of the turn."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"/{name} has to wait: the agent is answering (stop it, or wait for its end)")


class Category(StrEnum):
    """The origin of a command."""

    BUILTIN = "builtin"
    WORKFLOW = "workflow"
    SKILL = "skill"
    COMMAND = "command"
    AGENT = "agent"


# Of two with the same name the first wins; lists show the user's own before built-in
# commands.
_PRECEDENCE = {name: place for place, name in enumerate(Category)}
_LISTED = {name: place for place, name in enumerate((*list(Category)[1:], Category.BUILTIN))}


class Command(msgspec.Struct, frozen=True):
    """A command and its handler."""

    name: str
    description: str
    category: Category
    run: Run
    aliases: Sequence[str] = ()
    argument_hint: str = ""
    hidden: bool = False
    origin: str = ""  # the file that defines it, as users read it
    hides: Sequence[str] = ()  # other definitions of the name, as users read them
    flags: Sequence[tuple[str, str]] = ()  # as they are typed before its argument, and what each does


class Shadowed(msgspec.Struct, frozen=True):
    """A name or an alias that belongs to another command."""

    word: str
    command: Command
    by: Command


class CommandRegistry:
    """All commands of a prompt."""

    def __init__(self, commands: Iterable[Command] = ()) -> None:
        self._by_word: dict[str, Command] = {}
        self._commands: dict[str, Command] = {}
        self._losers: list[tuple[str, Command]] = []
        self._sorted: list[tuple[Command, tuple[str, ...]]] | None = None
        for command in commands:
            self.register(command)

    @classmethod
    def of(cls, commands: Iterable[Command]) -> CommandRegistry:
        """Return a registry of all: built-in beats workflow, skill, command and agent.

        `shadowed` has the losers.
        """
        registry = cls()
        by_rank: dict[Category, list[Command]] = {category: [] for category in _PRECEDENCE}
        for command in commands:
            by_rank[_category(command)].append(command)
        for group in by_rank.values():
            registry._add_group(sorted(group, key=lambda command: fold(command.name)))
        return registry

    def register(self, command: Command) -> None:
        """Add a command.

        Raise CommandClashError, without a change, if its name or an alias is taken.
        """
        _category(command)
        for word in (command.name, *command.aliases):
            if (owner := self._by_word.get(fold(word))) is not None:
                raise CommandClashError(word, command.name, owner.name)
        self._add(command)

    def unregister(self, name: str) -> bool:
        """Remove a command by its name and return whether it existed."""
        command = self._commands.pop(fold(name), None)
        if command is None:
            return False
        self._sorted = None
        for word in _words(command):
            del self._by_word[word]
        return True

    def get(self, name: str) -> Command | None:
        """Return the command of that name or alias, or None."""
        return self._by_word.get(fold(name))

    def require(self, name: str) -> Command:
        """Return the command of that name or alias.

        Raise CommandNotFoundError with the nearest name.
        """
        command = self.get(name)
        if command is None:
            shown = (word for command in self.all() if not command.hidden for word in (command.name, *command.aliases))
            raise CommandNotFoundError(name, shown)
        return command

    def search(self, text: str) -> list[Command]:
        """Return visible commands whose name or alias begins so: the exact one first,
        then by category and name.
        """
        wanted = fold(text)
        found = [
            command
            for command, words in self._in_order()
            if not command.hidden and any(word.startswith(wanted) for word in words)
        ]
        exact = self._by_word.get(wanted)
        if exact is None or exact.hidden:
            return found
        return [exact, *(command for command in found if command is not exact)]

    def all(self) -> list[Command]:
        """Return all commands, also hidden ones: workflows, skills, commands, agents,
        built-in; each by name.
        """
        return [command for command, _ in self._in_order()]

    def shadowed(self) -> Sequence[Shadowed]:
        """Return what cannot be called because another command has its name."""
        losers = ((word, command, self.get(word)) for word, command in self._losers)
        return [Shadowed(word, command, winner) for word, command, winner in losers if winner is not None]

    def _add_group(self, group: Iterable[Command]) -> None:
        """Add commands of one kind.

        Names first, so that no alias takes the name of another.
        """
        winners: list[Command] = []
        for command in group:
            if self.get(command.name) is None:
                self._add(msgspec.structs.replace(command, aliases=()))
                winners.append(command)
            else:
                self._losers.append((command.name, command))
        for command in winners:
            aliases: list[str] = []
            for alias in command.aliases:
                owner = self.get(alias)
                if owner is None or owner.name == command.name:
                    aliases.append(alias)
                else:
                    self._losers.append((alias, command))
            self._add(msgspec.structs.replace(command, aliases=tuple(aliases)))

    def _add(self, command: Command) -> None:
        self._sorted = None
        self._commands[fold(command.name)] = command
        self._by_word.update(dict.fromkeys(_words(command), command))

    def _in_order(self) -> list[tuple[Command, tuple[str, ...]]]:
        if self._sorted is None:
            commands = sorted(
                self._commands.values(), key=lambda command: (_LISTED[command.category], fold(command.name))
            )
            self._sorted = [(command, _words(command)) for command in commands]
        return self._sorted


def _category(command: Command) -> Category:
    try:
        return Category(command.category)
    except ValueError:
        known = ", ".join(Category)
        raise CommandError(f'"/{command.name}" has no category "{command.category}": it is one of {known}') from None


def _words(command: Command) -> tuple[str, ...]:
    return tuple(dict.fromkeys(fold(word) for word in (command.name, *command.aliases)))
