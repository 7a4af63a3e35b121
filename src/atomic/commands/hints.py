"""Hints next to the prompt while the user types: pure functions of text, cursor and
"dismissed".

Nothing is kept between two keys, so nothing can disagree with the text.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from atomic.base.text import cut
from atomic.commands.parse import is_callable
from atomic.commands.registry import Command, CommandRegistry

HINT_COLUMNS = 23


class HintState(StrEnum):
    """The state of the hints next to the prompt."""

    IDLE = "IDLE"
    SHOWING_SUGGESTIONS = "SHOWING_SUGGESTIONS"
    SHOWING_HINT = "SHOWING_HINT"
    TYPING_ARGS = "TYPING_ARGS"


class Hint(msgspec.Struct, frozen=True):
    """What to show: `hint` is the grey text after the cursor, `suggestions` the list."""

    state: HintState = HintState.IDLE
    hint: str = ""
    suggestions: tuple[Command, ...] = ()


def hint_state(text: str, cursor: int, dismissed: bool, registry: CommandRegistry) -> Hint:
    """Return what to show for a text.

    `dismissed`: Esc was pressed, and nothing typed since.
    """
    typed = text.lstrip()
    if dismissed or cursor != len(text) or not typed.startswith("/"):
        return Hint()
    end = next((at for at, character in enumerate(typed) if character.isspace()), len(typed))
    name = typed[1:end]
    after = typed[end:]
    if name and not is_callable(name):  # a path, or a comment
        return Hint()
    if not after:
        return Hint(HintState.SHOWING_SUGGESTIONS, suggestions=tuple(registry.search(name)))
    command = registry.get(name)
    if command is None:
        return Hint()
    if after == " " and command.argument_hint:
        return Hint(HintState.SHOWING_HINT, command.argument_hint)
    return Hint(HintState.TYPING_ARGS)


def complete(text: str, suggestion: Command) -> str:
    """Return the text after Tab; the cursor is at its end."""
    before = text[: len(text) - len(text.lstrip())]
    return f"{before}/{suggestion.name} "


def short_hint(text: str) -> str:
    """Return a hint as the list of suggestions shows it."""
    return cut(text, HINT_COLUMNS, "...")
