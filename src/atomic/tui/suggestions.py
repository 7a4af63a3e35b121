"""Compute the suggestions for the prompt from text, cursor and the known names.

A pure function without memory, so it is also right after a recalled text, a paste or
the editor.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from atomic.chat.protocol import CommandInfo
    from atomic.commands import CommandRegistry

_MENTION = re.compile(r"(?<!\S)@([^\s@]*)\Z")
_OPTIONAL = re.compile(r"\[[^\[\]]*\]")
_MOST = 50  # rows


class OfferKind(StrEnum):
    """Kind of suggestions."""

    NOTHING = "nothing"
    COMMANDS = "commands"
    MENTIONS = "mentions"
    HISTORY = "history"


class Suggestion(NamedTuple):
    """A suggestion. Taking it puts `insert` in place of the text from `start` to the
    cursor.
    """

    label: str
    insert: str
    start: int = 0
    hint: str = ""
    description: str = ""
    runs: bool = False  # Enter runs it; otherwise Enter inserts it


class Offer(NamedTuple):
    """The list of suggestions and the grey text after the cursor."""

    kind: OfferKind = OfferKind.NOTHING
    rows: tuple[Suggestion, ...] = ()
    ghost: str = ""
    note: str = ""  # shown if there are no rows


class KnownNames(NamedTuple):
    """Everything that can be suggested."""

    registry: CommandRegistry | None = None
    agents: Sequence[CommandInfo] = ()
    files: tuple[str, Sequence[str]] = ("", ())  # the typed prefix and the matching paths
    history: Sequence[str] | None = None  # matches during a history search


def offer(text: str, cursor: int, dismissed: bool, known: KnownNames) -> Offer:
    """Return the suggestions for this text."""
    if dismissed:
        return Offer()
    if known.history is not None:
        rows = tuple(Suggestion(" ".join(text.split()), text, 0) for text in known.history[:_MOST])
        return Offer(OfferKind.HISTORY, rows, note="" if rows else "Nothing that was sent before fits")
    if text.lstrip().startswith("/"):
        return _commands(text, cursor, known.registry)
    query = mention_at(text, cursor)
    return Offer() if query is None else _mentions(query, cursor, known)


def mention_at(text: str, cursor: int) -> str | None:
    """Return the characters between `@` and the cursor at the end of a word, or None."""
    if text[cursor : cursor + 1].strip():
        return None
    match = _MENTION.search(text, 0, cursor)
    return None if match is None else match[1]


def needs_argument(hint: str) -> bool:
    """Return whether a command requires an argument: `<…>`, not optional and not an
    alternative.
    """
    needed = _OPTIONAL.sub("", hint)
    return "<" in needed and "|" not in needed


def _commands(text: str, cursor: int, registry: CommandRegistry | None) -> Offer:
    if registry is None:
        is_first = text.strip() == "/" and cursor == len(text)
        return Offer(OfferKind.COMMANDS, note="The commands are still being read …") if is_first else Offer()
    from atomic.commands import HintState, complete, hint_state

    hint = hint_state(text, cursor, False, registry)
    if hint.state is HintState.SHOWING_HINT:
        return Offer(ghost=hint.hint)
    if hint.state is not HintState.SHOWING_SUGGESTIONS:
        return Offer()
    rows = tuple(
        Suggestion(
            f"/{command.name}",
            complete(text, command),
            0,
            command.argument_hint,
            command.description,
            runs=not needs_argument(command.argument_hint),
        )
        for command in hint.suggestions
    )
    return Offer(OfferKind.COMMANDS, rows, note="" if rows else "No command begins like this")


def _mentions(query: str, cursor: int, known: KnownNames) -> Offer:
    start = cursor - len(query) - 1
    folded = query.casefold()
    agents = [
        Suggestion(f"@{agent.name}", f"@{agent.name} ", start, "", agent.description or "agent")
        for agent in known.agents
        if not agent.hidden and folded in agent.name.casefold()
    ]
    asked, paths = known.files
    # Until the reply for this prefix arrives, matches of the prefix before are better
    # than an empty list.
    files = [path for path in paths if asked == query or folded in path.casefold()]
    quoted = [f'"{path}"' if re.search(r"\s", path) else path for path in files]
    rows = (*agents, *(Suggestion(f"@{path}", f"@{word} ", start) for path, word in zip(files, quoted, strict=True)))
    note = "" if rows or asked != query else "No file or agent fits"
    return Offer(OfferKind.MENTIONS, rows[:_MOST], note=note) if rows or note else Offer()


def registry_of(commands: Iterable[CommandInfo]) -> CommandRegistry:
    """Return a registry to look commands up.

    The engine runs them, so they have no handler.
    """
    from atomic.commands import Category, Command, CommandCall, CommandContext, CommandRegistry

    async def run_in_engine(call: CommandCall, context: CommandContext) -> None:
        raise AssertionError(f"/{call.name} is run by the engine")

    return CommandRegistry.of(
        Command(
            info.name,
            info.description,
            Category(info.category),
            run_in_engine,
            info.aliases,
            info.argument_hint,
            info.hidden,
        )
        for info in commands
    )
