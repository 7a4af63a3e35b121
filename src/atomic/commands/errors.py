"""Errors of slash commands; each message is one sentence."""

from __future__ import annotations

from collections.abc import Iterable

from atomic.base.errors import AtomicError, did_you_mean


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
