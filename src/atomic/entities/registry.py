"""Find commands, skills and agents by name, in the files of all providers.

Names are compared without case. If several files define the same name, `Source.rank`
decides, never the order of loading. When the winner is removed, the next definition
takes its place.

A search takes one pass over each name, so a thousand names are searched between two
keys: exact, then prefix, then fuzzy. Fuzzy means that the letters occur in this order:
`rescod` finds `research-codebase`.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from atomic.base.files import AnyPath
from atomic.base.text import fold
from atomic.entities.config_folders import places_of
from atomic.entities.discovery import Discovery
from atomic.entities.model import Diagnostic, Entity, EntityKind, EntityNotFoundError, Location, Provider

_log = logging.getLogger(__name__)
# The order in which a slash command is chosen.
_HINT_ORDER = (EntityKind.SKILL, EntityKind.COMMAND, EntityKind.AGENT)

_EXACT, _PREFIX, _WORD, _INSIDE, _SCATTERED = range(5)

# Class, distance of the letters, found by an alias, name.
Score = tuple[int, int, bool, str]


class EntityRegistry:
    """All definitions of all names, and the winner of each.

    covering: entities of the project that have the name of a built-in one
    ignored: the same, if the project is not trusted; they are not used
    """

    def __init__(self, entities: Iterable[Entity] = ()) -> None:
        self._registered = dict.fromkeys(entities)
        self._discovery: Discovery | None = None
        self._is_trusted: Callable[[], bool] = lambda: False
        self.covering: Sequence[Entity] = ()
        self.ignored: Sequence[Entity] = ()
        self._rebuild()

    @classmethod
    def load(
        cls,
        project: AnyPath | None = None,
        user: AnyPath | None = None,
        providers: Iterable[Provider | str] | None = None,
        *,
        is_trusted: Callable[[], bool] = lambda: False,
    ) -> EntityRegistry:
        """Read the definitions of the project, the user and the package.

        project: its folder; None: the project of the current folder
        user: the home folder; None: the real one, with folders from the environment
        providers: read only their files; None: of all
        is_trusted: called if the project defines a built-in name; if it returns False, the
            built-in definition is used
        """
        registry = cls()
        registry._is_trusted = is_trusted
        registry._discovery = Discovery(places_of(project, user, providers))
        registry._discovery.scan()
        registry._rebuild()
        _log_numbers(registry._discovery.entities)
        return registry

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """Return the problems of files, and the definitions that are not used."""
        found = self._discovery.diagnostics if self._discovery else []
        reason = 'ignored: "{}" is a built-in name, and this project is not trusted (atomic trust)'
        ignored = [Diagnostic(entity.source.path, 1, reason.format(entity.name)) for entity in self.ignored]
        return [*found, *ignored]

    def find(self, kind: EntityKind | str, name: str) -> Entity | None:
        """Return the entity with a name or alias, or None."""
        return self._index.find(EntityKind(kind), fold(name))

    def require(self, kind: EntityKind | str, name: str) -> Entity:
        """Return the entity with a name or alias. Raises EntityNotFoundError."""
        kind = EntityKind(kind)
        entity = self._index.find(kind, fold(name))
        if entity is None:
            raise EntityNotFoundError(kind, name, self._index.names(kind))
        return entity

    def search(self, kind: EntityKind | str, text: str) -> list[Entity]:
        """Return visible entities that match a text: exact, then prefix, then fuzzy."""
        return search(self._index.searchable(EntityKind(kind)), fold(text.strip()))

    def all(self, kind: EntityKind | str | None = None) -> list[Entity]:
        """Return the winner of each name, hidden ones too, sorted by name."""
        kinds = EntityKind if kind is None else (EntityKind(kind),)
        return [entity for each in kinds for entity in self._index.winners(each)]

    def hint(self, name: str) -> str:
        """Return the argument hint of `/name`, or ""."""
        for kind in _HINT_ORDER:
            entity = self.find(kind, name)
            if entity is not None:
                return entity.argument_hint
        return ""

    def definitions(self, kind: EntityKind | str, name: str) -> list[Entity]:
        """Return all definitions of a name or alias, the winner first."""
        entity = self.find(kind, name)
        return list(self._index.definitions(entity)) if entity else []

    def hides(self, entity: Entity) -> list[Entity]:
        """Return the definitions of the same name with lower precedence."""
        same = self._index.definitions(entity)
        return list(same[same.index(entity) + 1 :]) if entity in same else []

    def hidden_by(self, entity: Entity) -> Entity | None:
        """Return the winner of its name; None if it is the winner itself."""
        winner = next(iter(self._index.definitions(entity)), None)
        return None if winner is None or winner == entity else winner

    def register(self, entity: Entity) -> None:
        """Add a definition that stays when files are read again.

        Its source has a rank too.
        """
        self._registered[entity] = None
        self._rebuild()

    def refresh(self) -> bool:
        """Read changed files and the trust of the project.

        Return whether anything changed.
        """
        if self._discovery is None:
            return False
        if not self._discovery.scan() and bool(self.ignored) == self._ignores():
            return False
        self._rebuild()
        return True

    def _ignores(self) -> bool:
        return bool(self.covering) and not self._is_trusted()

    def _rebuild(self) -> None:
        found = self._discovery.entities if self._discovery else ()
        self.covering = covering_builtins(found)
        self.ignored = self.covering if self._ignores() else ()
        self._index = _Index((*self._registered, *(entity for entity in found if entity not in self.ignored)))


def covering_builtins(entities: Iterable[Entity]) -> list[Entity]:
    """Return entities of a project with built-in names.

    A skill and a command share one name, because both are slash commands.
    """
    known = [*entities]
    builtin = {_called(entity) for entity in known if entity.source.location is Location.BUILTIN}
    return [entity for entity in known if entity.source.location is Location.PROJECT and _called(entity) in builtin]


def _called(entity: Entity) -> tuple[bool, str]:
    return entity.kind is EntityKind.AGENT, fold(entity.name)


def find_covering(project: AnyPath) -> list[Entity]:
    """Return the entities of a project with built-in names, trusted or not."""
    places = [place for place in places_of(project) if place.location is not Location.USER]
    discovery = Discovery(places)
    discovery.scan()
    return covering_builtins(discovery.entities)


class _Index:
    """Definitions by name, the winner first; built again when they change."""

    def __init__(self, entities: Iterable[Entity]) -> None:
        self._names: dict[EntityKind, dict[str, list[Entity]]] = {kind: {} for kind in EntityKind}
        for entity in entities:
            self._names[entity.kind].setdefault(fold(entity.name), []).append(entity)
        for same in (same for names in self._names.values() for same in names.values() if len(same) > 1):
            # Two in one file by their content.
            same.sort(key=lambda entity: (entity.source.rank, repr(entity.facts())))
        self._aliases = {kind: _aliases(names) for kind, names in self._names.items()}
        self._searchable: dict[EntityKind, list[Searchable]] = {}

    def find(self, kind: EntityKind, name: str) -> Entity | None:
        same = self._names[kind].get(name)
        return same[0] if same else self._aliases[kind].get(name)

    def definitions(self, entity: Entity) -> list[Entity]:
        return self._names[entity.kind].get(fold(entity.name), [])

    def winners(self, kind: EntityKind) -> list[Entity]:
        names = self._names[kind]
        return [names[name][0] for name in sorted(names)]

    def names(self, kind: EntityKind) -> list[str]:
        """Return all names and aliases in their spelling."""
        winners = self.winners(kind)
        return [*(entity.name for entity in winners), *(alias for entity in winners for alias in entity.aliases)]

    def searchable(self, kind: EntityKind) -> list[Searchable]:
        if kind not in self._searchable:
            self._searchable[kind] = [
                Searchable(fold(entity.name), tuple(map(fold, entity.aliases)), entity)
                for entity in self.winners(kind)
                if not entity.hidden
            ]
        return self._searchable[kind]


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


def _aliases(names: dict[str, list[Entity]]) -> dict[str, Entity]:
    """Return the aliases of winners, except those that are names.

    The better source wins.
    """
    result: dict[str, Entity] = {}
    winners = (same[0] for same in names.values() if same[0].aliases)
    for entity in sorted(winners, key=lambda entity: (entity.source.rank, fold(entity.name))):
        for alias in map(fold, entity.aliases):
            if alias not in names:
                result.setdefault(alias, entity)
    return result


def _log_numbers(entities: Iterable[Entity]) -> None:
    counted: dict[Provider, Counter[EntityKind]] = {}
    for entity in entities:
        counted.setdefault(entity.source.provider, Counter())[entity.kind] += 1
    for provider in Provider:
        numbers = counted.get(provider)
        if numbers:
            parts = ", ".join(_plural(numbers[kind], kind.value) for kind in EntityKind if numbers[kind])
            _log.info("Registered %s from %s (%s)", _plural(numbers.total(), "entity"), provider.value, parts)


def _plural(number: int, word: str) -> str:
    if number == 1:
        return f"1 {word}"
    return f"{number} {word[:-1] + 'ies' if word.endswith('y') else word + 's'}"
