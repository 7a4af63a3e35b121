"""What the prompt offers while the user types: pure functions of text, cursor and "dismissed".

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
    """What the prompt shows."""

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
    """Return what to show for a text. `dismissed`: Esc was pressed, and nothing typed since."""
    typed = text.lstrip()
    if dismissed or cursor != len(text) or not typed.startswith("/"):
        return Hint()
    name, blank, rest = _split(typed[1:])
    if name and not is_callable(name):  # a path, or a comment
        return Hint()
    if not blank:
        return Hint(HintState.SHOWING_SUGGESTIONS, suggestions=tuple(registry.search(name)))
    command = registry.get(name)
    if command is None:
        return Hint()
    if blank == " " and not rest and command.argument_hint:
        return Hint(HintState.SHOWING_HINT, command.argument_hint)
    return Hint(HintState.TYPING_ARGS)


def complete(text: str, suggestion: Command) -> str:
    """Return the text after Tab; the cursor is at its end."""
    before = text[: len(text) - len(text.lstrip())]
    return f"{before}/{suggestion.name} "


def short_hint(text: str) -> str:
    """Return a hint as the list of suggestions shows it."""
    return cut(text, HINT_COLUMNS, "...")


def _split(typed: str) -> tuple[str, str, str]:
    """Split a text into the name, the first blank after it, and the rest."""
    at = next((place for place, character in enumerate(typed) if character.isspace()), len(typed))
    return typed[:at], typed[at : at + 1], typed[at + 1 :]
