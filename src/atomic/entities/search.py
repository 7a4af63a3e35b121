"""Search names as somebody types: exact, then prefix, then fuzzy.

Fuzzy means that the letters come in this order: `rescod` finds `research-codebase`. That is one pass over each name,
quick enough for a thousand of them between two keys.
"""

from __future__ import annotations

from typing import NamedTuple

from atomic.entities.model import Entity

_EXACT, _PREFIX, _WORD, _INSIDE, _SCATTERED = range(5)

Score = tuple[int, int, bool, str]  # how well, how far apart, only by an alias, the name


class Searchable(NamedTuple):
    """An entity with its names as they are compared."""

    name: str
    aliases: tuple[str, ...]
    entity: Entity


def search(candidates: list[Searchable], text: str) -> list[Entity]:
    """The entities that fit the folded text, the best first; all of them where there is no text."""
    if not text:
        return [candidate.entity for candidate in candidates]
    scored: list[tuple[Score, Entity]] = []
    for candidate in candidates:
        score = _best(candidate, text)
        if score is not None:
            scored.append((score, candidate.entity))
    scored.sort(key=_score)
    return [entity for _, entity in scored]


def _score(pair: tuple[Score, Entity]) -> Score:
    return pair[0]


def _best(candidate: Searchable, text: str) -> Score | None:
    name = candidate.name
    found = _fit(name, text)
    best = None if found is None else (*found, False, name)
    for alias in candidate.aliases:
        found = _fit(alias, text)
        if found is not None and (best is None or (*found, True, name) < best):
            best = (*found, True, name)
    return best


def _fit(name: str, text: str) -> tuple[int, int] | None:
    """How well the text fits, and how far apart its letters stand; None: not at all."""
    at = name.find(text)
    if at == 0:
        return (_EXACT if len(name) == len(text) else _PREFIX), 0
    if at > 0:
        return (_INSIDE if name[at - 1].isalnum() else _WORD), at
    return _scattered(name, text)


def _scattered(name: str, text: str) -> tuple[int, int] | None:
    first = at = name.find(text[0])
    for letter in text[1:]:
        if at < 0:
            return None
        at = name.find(letter, at + 1)
    return None if at < 0 else (_SCATTERED, at - first)
