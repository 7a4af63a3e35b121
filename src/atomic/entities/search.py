"""Search names while a user types: exact, then prefix, then fuzzy. Pure.

Fuzzy means that the letters occur in this order: `rescod` finds `research-codebase`. It
takes one pass over each name, so a thousand names are searched between two keys.
"""

from __future__ import annotations

from typing import NamedTuple

from atomic.entities.model import Entity

_EXACT, _PREFIX, _WORD, _INSIDE, _SCATTERED = range(5)

# Class, distance of the letters, found by an alias, name.
Score = tuple[int, int, bool, str]


class Searchable(NamedTuple):
    """An entity with its folded names."""

    name: str
    aliases: tuple[str, ...]
    entity: Entity


def search(candidates: list[Searchable], text: str) -> list[Entity]:
    """Return the entities that match the folded text, best first.

    All for an empty text.
    """
    if not text:
        return [candidate.entity for candidate in candidates]
    scored: list[tuple[Score, Entity]] = []
    for candidate in candidates:
        score = _best(candidate, text)
        if score is not None:
            scored.append((score, candidate.entity))
    scored.sort(key=lambda pair: pair[0])
    return [entity for _, entity in scored]


def _best(candidate: Searchable, text: str) -> Score | None:
    name = candidate.name
    found = _match(name, text)
    best = None if found is None else (*found, False, name)
    for alias in candidate.aliases:
        found = _match(alias, text)
        if found is not None and (best is None or (*found, True, name) < best):
            best = (*found, True, name)
    return best


def _match(name: str, text: str) -> tuple[int, int] | None:
    """Return class and distance of a match; None: no match."""
    at = name.find(text)
    if at == 0:
        return (_EXACT if len(name) == len(text) else _PREFIX), 0
    if at > 0:
        return (_INSIDE if name[at - 1].isalnum() else _WORD), at
    first = name.find(text[0])
    at = first
    for letter in text[1:]:
        if at < 0:
            return None
        at = name.find(letter, at + 1)
    return None if at < 0 else (_SCATTERED, at - first)
